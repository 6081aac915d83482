from services.stage_worker.driver import Ledger
from stagemesh.telemetry import Metrics


def test_what_is_counted_can_be_scraped() -> None:
    registry = Metrics(process=False)
    ledger = Ledger(registry)
    ledger.step_made(3)
    ledger.ended("finished")
    ledger.stored(10)
    ledger.looked(held_bytes=5, stray_pieces=2)
    lines = registry.render()[0].decode().splitlines()
    for line in (
        "stagemesh_worker_engine_steps_total 1.0",
        "stagemesh_worker_outputs_total 3.0",
        'stagemesh_worker_step_outputs_bucket{le="4.0"} 1.0',
        'stagemesh_worker_attempts_total{end="finished"} 1.0',
        "stagemesh_worker_payload_bytes_total 10.0",
        "stagemesh_worker_held_bytes 5.0",
        "stagemesh_worker_stray_pieces 2.0",
    ):
        assert line in lines
