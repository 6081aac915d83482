from services.stage_worker.core import ProcessState
from services.stage_worker.core.gate import Gate
from stagemesh.control import PauseMode


def test_the_gravest_of_what_is_closed_is_the_state() -> None:
    gate = Gate()
    states = [gate.state]
    gate.pause(PauseMode.WAIT)
    states.append(gate.state)
    gate.sleep(frozenset({"weights"}))
    states.append(gate.state)
    gate.drain(drained=True)
    states.append(gate.state)
    assert states == [
        ProcessState.READY,
        ProcessState.PAUSED,
        ProcessState.ASLEEP,
        ProcessState.DRAINING,
    ]


def test_waking_up_leaves_it_paused() -> None:
    gate = Gate()
    gate.pause(PauseMode.WAIT)
    gate.sleep(frozenset({"weights", "kv_cache"}))
    gate.wake_up(frozenset({"weights"}))
    assert gate.value.asleep == {"kv_cache"}
    gate.wake_up(frozenset({"kv_cache"}))
    woken = gate.state
    gate.resume()
    assert (woken, gate.state) == (ProcessState.PAUSED, ProcessState.READY)
