"""Metrics whose series are bounded."""

import pytest

from stagemesh.telemetry import Metrics


def text(metrics: Metrics) -> str:
    body, content_type = metrics.render()
    assert content_type.startswith("text/plain")
    return body.decode()


def test_every_name_begins_with_the_prefix() -> None:
    metrics = Metrics(process=False)
    metrics.counter("starts", "Starts.").labels().inc(2)
    assert "stagemesh_starts_total 2.0" in text(metrics)


def test_series_are_told_apart_by_their_labels() -> None:
    metrics = Metrics(process=False)
    family = metrics.gauge("held_bytes", "Held.", ["pool", "kind"])
    family.labels("thinker", "a").set(1)
    family.labels("thinker", "b").set(2)
    assert 'stagemesh_held_bytes{kind="a",pool="thinker"} 1.0' in text(metrics)
    assert 'stagemesh_held_bytes{kind="b",pool="thinker"} 2.0' in text(metrics)


def test_what_exceeds_the_bound_counts_as_other() -> None:
    metrics = Metrics(process=False)
    family = metrics.counter("requests", "Requests.", ["model"], series_max=3)
    for name in ("a", "b", "c", "d", "a"):
        family.labels(name).inc()
    told = text(metrics)
    assert 'stagemesh_requests_total{model="a"} 2.0' in told
    assert 'stagemesh_requests_total{model="other"} 2.0' in told
    assert told.count("stagemesh_requests_total{") == 3


def test_the_wrong_number_of_labels_is_refused() -> None:
    family = Metrics(process=False).counter("requests", "Requests.", ["model"])
    with pytest.raises(ValueError, match="1 label values wanted, not 2"):
        family.labels("a", "b")


def test_a_histogram_has_the_buckets_it_was_given() -> None:
    metrics = Metrics(process=False)
    metrics.histogram("wait_seconds", "Wait.", buckets=[1, 2]).labels().observe(1.5)
    assert 'stagemesh_wait_seconds_bucket{le="2.0"} 1.0' in text(metrics)


def test_a_scraper_may_ask_for_openmetrics() -> None:
    body, content_type = Metrics(process=False).render("application/openmetrics-text")
    assert content_type.startswith("application/openmetrics-text")
    assert body == b"# EOF\n"


def test_a_process_tells_about_itself() -> None:
    assert "process_resident_memory_bytes" in text(Metrics())
