"""Control calls, their answers and gates, there and back."""

import msgspec
import pytest

from stagemesh.api.types.v1 import control_pb2, link_pb2
from stagemesh.control import (
    OPEN,
    Adapter,
    Answer,
    Call,
    CollectiveCall,
    ControlKind,
    ControlSupport,
    Drain,
    Gate,
    ListAdapters,
    LoadAdapter,
    Pause,
    PauseMode,
    ResetCache,
    Resume,
    Sleep,
    StartProfile,
    StopProfile,
    Undrain,
    UnloadAdapter,
    WakeUp,
)
from stagemesh.errors import MeshError
from stagemesh.outcome import error_for
from stagemesh.wire import (
    CapabilitiesValue,
    answer_from_proto,
    answer_to_proto,
    call_from_proto,
    call_to_proto,
    capabilities_from_proto,
    capabilities_to_proto,
    gate_from_proto,
    gate_to_proto,
    pause_mode_from_proto,
)

CALLS: list[Call] = [
    Pause(mode=PauseMode.KEEP),
    Resume(),
    Sleep(mode=PauseMode.ABORT, level=1, tags=("weights",)),
    WakeUp(tags=("kv_cache",)),
    ResetCache(),
    LoadAdapter(adapter=Adapter(name="a", path="/models/a")),
    UnloadAdapter(name="a"),
    ListAdapters(),
    StartProfile(),
    StopProfile(),
    CollectiveCall(name="state", arguments={"deep": {"n": 1}, "list": [True, "x"]}),
    Drain(drain_s=2.5),
    Undrain(),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: type(call).__name__)
def test_a_call_comes_as_it_was_sent(call: Call) -> None:
    message = call_to_proto(7, call, 3.5)
    assert (message.control_id, message.timeout_s) == (7, 3.5)
    assert call_from_proto(control_pb2.Control.FromString(message.SerializeToString())) == call


def test_every_call_of_the_wire_is_known() -> None:
    names = {field.name for field in control_pb2.Control.DESCRIPTOR.oneofs_by_name["call"].fields}
    assert {call_to_proto(1, call, 1.0).WhichOneof("call") for call in CALLS} == names


def test_a_call_that_only_a_newer_peer_knows_is_refused() -> None:
    with pytest.raises(MeshError, match="not known here"):
        call_from_proto(control_pb2.Control(control_id=1))


def test_no_mode_means_wait_and_there_are_no_others() -> None:
    assert pause_mode_from_proto(0) is PauseMode.WAIT
    with pytest.raises(MeshError, match="no pause mode 9"):
        pause_mode_from_proto(9)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(),
        Answer(error=error_for("conflict", "It is asleep.")),
        Answer(adapters=(Adapter(name="a", path="/a"),)),
        Answer(value={}),
        Answer(value={"n": 1}),
    ],
)
def test_an_answer_comes_as_it_was_sent(answer: Answer) -> None:
    message = answer_to_proto(7, answer)
    assert message.control_id == 7
    assert answer_from_proto(message) == answer


@pytest.mark.parametrize(
    "gate",
    [
        OPEN,
        Gate(paused=PauseMode.ABORT),
        Gate(paused=PauseMode.WAIT, asleep=frozenset({"weights", "kv_cache"})),
        Gate(drained=True),
    ],
)
def test_a_gate_comes_as_it_was_sent(gate: Gate) -> None:
    assert gate_from_proto(gate_to_proto(gate)) == gate


def test_what_an_engine_carries_out_comes_as_it_was_sent_but_for_what_is_new() -> None:
    control = ControlSupport(
        kinds=frozenset(ControlKind),
        sleep_tags=frozenset({"weights"}),
        collective_calls=frozenset({"state"}),
    )
    message = capabilities_to_proto(CapabilitiesValue(control=control))
    message.controls.append(link_pb2.Capabilities(controls=[99]).controls[0])  # type: ignore[list-item]
    assert capabilities_from_proto(message).control == control


def test_the_numbers_are_those_of_the_wire() -> None:
    modes = control_pb2.PauseMode.items()
    assert {name.removeprefix("PAUSE_MODE_"): n for name, n in modes if n} == {
        mode.name: mode.value for mode in PauseMode
    }
    kinds = control_pb2.ControlKind.items()
    assert {name.removeprefix("CONTROL_KIND_"): n for name, n in kinds if n} == {
        kind.name: kind.value for kind in ControlKind
    }


@pytest.mark.parametrize("call", CALLS, ids=lambda call: type(call).__name__)
def test_a_call_can_be_written_down_and_read_again(call: Call) -> None:
    assert msgspec.json.decode(msgspec.json.encode(call), type=Call) == call
