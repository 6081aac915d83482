"""Metrics: one Prometheus registry for the process, whose series are bounded.

A label takes values from a small set: pools, stages, models, outcomes; never ids. As a guard, a
metric that has all the series it may have counts further label values as `other`.
"""

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.exposition import choose_encoder

__all__ = ["DURATION_BUCKETS_S", "SERIES_MAX", "Family", "Metrics", "metrics"]

DURATION_BUCKETS_S: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0,
)  # fmt: skip

SERIES_MAX: Final = 1_000
"""How many label combinations a metric may have."""

_PREFIX: Final = "stagemesh_"

_M = TypeVar("_M")


class Family(Generic[_M]):
    """A metric with labels; `labels` gives the series for some values of them."""

    def __init__(
        self, whole: _M, child: Callable[..., _M], names: Sequence[str], series_max: int
    ) -> None:
        self._whole = whole
        self._child = child
        self._others = ("other",) * len(names)
        self._series: dict[tuple[str, ...], _M] = {}
        self._series_max = series_max

    def labels(self, *values: str) -> _M:
        """Give the series for these values, in the order of the label names; cheap after the first.

        Raises:
            ValueError: If there are more or fewer values than names.
        """
        series = self._series.get(values)
        if series is not None:
            return series
        if len(values) != len(self._others):
            raise ValueError(f"{len(self._others)} label values wanted, not {len(values)}")
        if not values:
            return self._whole
        if len(self._series) >= self._series_max - 1:  # The last one is that of the others.
            values = self._others
        series = self._child(*values)
        self._series[values] = series
        return series


class Metrics:
    """The metrics of one process."""

    def __init__(self, *, process: bool = True) -> None:
        self._registry = CollectorRegistry()
        if process:
            ProcessCollector(registry=self._registry)
            PlatformCollector(registry=self._registry)
            GCCollector(registry=self._registry)

    def counter(
        self, name: str, text: str, labels: Sequence[str] = (), *, series_max: int = SERIES_MAX
    ) -> Family[Counter]:
        """Make a counter; `name` without the prefix `stagemesh_` and the suffix `_total`."""
        metric = Counter(f"{_PREFIX}{name}", text, labels, registry=self._registry)
        return Family(metric, metric.labels, labels, series_max)

    def gauge(
        self, name: str, text: str, labels: Sequence[str] = (), *, series_max: int = SERIES_MAX
    ) -> Family[Gauge]:
        """Make a gauge; `name` without the prefix, with the unit last."""
        metric = Gauge(f"{_PREFIX}{name}", text, labels, registry=self._registry)
        return Family(metric, metric.labels, labels, series_max)

    def histogram(
        self,
        name: str,
        text: str,
        labels: Sequence[str] = (),
        *,
        buckets: Sequence[float] = DURATION_BUCKETS_S,
        series_max: int = SERIES_MAX,
    ) -> Family[Histogram]:
        """Make a histogram; `name` without the prefix, with the unit last."""
        metric = Histogram(
            f"{_PREFIX}{name}", text, labels, buckets=buckets, registry=self._registry
        )
        return Family(metric, metric.labels, labels, series_max)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Give the text of all metrics, and its content type, for an HTTP `Accept` header."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


metrics: Final = Metrics()
"""The metrics of this process."""
