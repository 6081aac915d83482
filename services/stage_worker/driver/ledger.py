"""What a worker counts of itself."""

from typing import Final

from stagemesh.telemetry import Metrics, metrics

__all__ = ["Ledger"]

BATCH_BUCKETS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)


class Ledger:
    """The metrics of a worker; the launcher and the dashboards know them by name."""

    def __init__(self, registry: Metrics = metrics) -> None:
        ends = registry.counter(
            "worker_attempts", "Attempts by how they ended, refusals included.", ["end"]
        )
        self._ends = ends
        self._outputs = registry.counter("worker_outputs", "Pieces that the engine gave.").labels()
        self._steps = registry.counter("worker_engine_steps", "Engine steps with pieces.").labels()
        self._batch = registry.histogram(
            "worker_step_outputs", "Pieces of one engine step.", buckets=BATCH_BUCKETS
        ).labels()
        self._held = registry.gauge(
            "worker_held_bytes", "Outputs that wait for credit, in bytes."
        ).labels()
        self._stored = registry.counter(
            "worker_payload_bytes", "Bytes of outputs that went to the payload store."
        ).labels()
        self._stray = registry.gauge(
            "worker_stray_pieces", "Pieces for attempts that the engine had already let go of."
        ).labels()

    def step_made(self, pieces: int) -> None:
        """Count an engine step."""
        self._steps.inc()
        self._outputs.inc(pieces)
        self._batch.observe(pieces)

    def ended(self, end: str) -> None:
        """Count an attempt by its end."""
        self._ends.labels(end).inc()

    def stored(self, size_bytes: int) -> None:
        """Count bytes that went to the payload store."""
        self._stored.inc(size_bytes)

    def looked(self, *, held_bytes: int, stray_pieces: int) -> None:
        """Note what is looked at now and then."""
        self._held.set(held_bytes)
        self._stray.set(stray_pieces)
