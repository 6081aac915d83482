"""What the orchestrator's core costs per output, in batches as links bring them.

Everything is kept that recovery needs: token ids, and what stages read. Building the rows is not
counted: that is the link's work.
"""

import argparse
import gc
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Final

from services.orchestrator.core import events as ev
from services.orchestrator.core.contracts import ResumeContract
from services.orchestrator.core.machine import Orchestrator
from services.orchestrator.core.replicas import WorkerCard, WorkerState
from stagemesh.link.core import Grant, Row
from stagemesh.media import Message, Modality, Request, TextPart, lane_of
from stagemesh.outcome import End, FinishReason
from tests.helpers.core_mesh import core_mesh
from tests.perf.results import Row as Figure
from tests.perf.results import median, print_rows

REQUESTS: Final = 64
BUDGET_US: Final = 3.0
CLIENT, THINKER, TALKER = 1, 2, 3
THOUGHT: Final = lane_of(0, 0, Modality.TEXT)


def main() -> None:
    """Measure and print everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer steps and runs")
    quick = parser.parse_args().quick
    steps, runs = (100, 3) if quick else (300, 5)
    cases: dict[str, tuple[float | None, Callable[[], float]]] = {
        "core step, per output, batches of 64": (BUDGET_US, lambda: relay(64, steps)),
        "core step, per output, batches of 32": (BUDGET_US, lambda: relay(32, steps)),
        "core step, per output, batches of 1": (None, lambda: relay(1, steps)),
        "core step, per output fed to a stage too, batches of 64": (
            None,
            lambda: relay(64, steps, fed=True),
        ),
        "core, per request of one output, from open to end": (None, lifecycle),
    }
    for name, (budget, measure) in cases.items():
        values = [measure() for _ in range(runs)]
        value = median(values)
        figure = Figure(name=name, value=value, unit="us", runs=values)
        if budget is not None:
            figure.budget, figure.met = f"<= {budget:g}", value <= budget
        print_rows([figure])


def relay(batch: int, steps: int, *, fed: bool = False) -> float:
    """Pass outputs of open requests to their client; return microseconds per output."""
    core = make_core()
    for slot in range(1, REQUESTS + 1):
        core.step(opened(slot, fed=fed), 0.0)
    for step in range(2):  # First outputs start what streams, and are not counted.
        for rows in batches(step, REQUESTS):
            core.step(ev.RowsArrived(link=THINKER, rows=rows), 0.0)
    spent_s = 0.0
    gc.disable()
    for step in range(2, steps):
        for rows in batches(step, batch):
            event = ev.RowsArrived(link=THINKER, rows=rows)
            begun_s = perf_counter()
            core.step(event, step * 0.005)
            spent_s += perf_counter() - begun_s
        if step % 16 == 0:
            give_credit(core, step, fed=fed)
    gc.enable()
    return spent_s * 1e6 / (REQUESTS * (steps - 2))


def lifecycle() -> float:
    """Open requests of one stage and end them with one output; return microseconds per request."""
    core = make_core()
    spent_s = 0.0
    for slot in range(1, 2_001):
        event = opened(slot, fed=False)
        row = Row(slot, THOUGHT, 0, 1, " w0", [0], end=End(finish_reason=FinishReason.STOP))
        begun_s = perf_counter()
        core.step(event, slot * 0.001)
        core.step(ev.RowsArrived(link=THINKER, rows=[row]), slot * 0.001)
        spent_s += perf_counter() - begun_s
    return spent_s * 1e6 / 2_000


def make_core() -> Orchestrator:
    """Make a core with one client and a replica of each pool."""
    core = Orchestrator(core_mesh())
    core.step(
        ev.ClientAttached(link=CLIENT, window_units=64, window_bytes=1 << 20, mirrors=True), 0.0
    )
    for link, pool, contract in (
        (THINKER, "thinker", ResumeContract.TOKENS),
        (TALKER, "talker", ResumeContract.REPLAY),
    ):
        core.step(
            ev.ReplicaAttached(
                link=link,
                pool=pool,
                replica_id=pool,
                incarnation=1,
                card=WorkerCard(slots=2 * REQUESTS, resume_contract=contract, deterministic=True),
                state=WorkerState.READY,
                window_units=64,
                window_bytes=1 << 20,
            ),
            0.0,
        )
    return core


def opened(slot: int, *, fed: bool) -> ev.Opened:
    """Make a request: for text alone, or such that a talker reads the text too."""
    request = Request(
        model="talk",
        messages=(Message(role="user", parts=(TextPart("hello"),)),),
        modalities=() if fed else (Modality.TEXT,),
    )
    return ev.Opened(
        link=CLIENT,
        slot=slot,
        request_id=f"r{slot}",
        epoch=1,
        deadline_left_s=60.0,
        request=request,
        body=None,
    )


def batches(step: int, size: int) -> Iterator[list[Row]]:
    """Make the outputs of one engine step, in messages of `size`."""
    rows = [Row(slot, THOUGHT, step, 1, " word", [step]) for slot in range(1, REQUESTS + 1)]
    for at in range(0, REQUESTS, size):
        yield rows[at : at + size]


def give_credit(core: Orchestrator, step: int, *, fed: bool) -> None:
    """Let the client, and the talker, take everything so far."""
    units, size = step + 65, (step + 1) * 9 + (1 << 20)
    slots = range(1, REQUESTS + 1)
    grants = [Grant(slot, 0, units, size) for slot in slots]
    core.step(ev.CreditGranted(link=CLIENT, grants=grants), step * 0.005)
    if fed:
        inputs = [Grant(slot, THOUGHT, units, size) for slot in slots]
        core.step(ev.InputCreditGranted(link=TALKER, grants=inputs), step * 0.005)


if __name__ == "__main__":
    main()
