from services.stage_worker.core import ProcessState
from services.stage_worker.core.gate import Gate
from stagemesh.control import PauseMode


def test_the_gravest_of_what_is_closed_is_the_state() -> None:
    gate = Gate()
    assert gate.state is ProcessState.READY
    gate.pause(PauseMode.WAIT)
    assert gate.state is ProcessState.PAUSED
    gate.sleep(frozenset({"weights"}))
    assert gate.state is ProcessState.ASLEEP
    gate.drain(drained=True)
    assert gate.state is ProcessState.DRAINING


def test_waking_up_leaves_it_paused() -> None:
    gate = Gate()
    gate.pause(PauseMode.WAIT)
    gate.sleep(frozenset({"weights", "kv_cache"}))
    gate.wake_up(frozenset({"weights"}))
    assert gate.value.asleep == {"kv_cache"}
    gate.wake_up(frozenset({"kv_cache"}))
    assert gate.state is ProcessState.PAUSED
    gate.resume()
    assert gate.state is ProcessState.READY
