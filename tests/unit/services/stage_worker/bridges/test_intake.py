import pytest

from services.stage_worker.bridges.base import Fed
from services.stage_worker.bridges.intake import Append, Begin, Close, Intake, Nothing, Order
from services.stage_worker.engines.base import EngineInput, TensorsInput, TextInput
from stagemesh.errors import MeshError
from tests.helpers.bridge_contexts import said, source

A, B, C = (TextInput(text=text, units=1) for text in "abc")
FED = said(source())


class Scripted:
    """A bridge that gives what it was made with, one list for each call."""

    def __init__(self, *steps: list[EngineInput]) -> None:
        self._steps = list(steps)

    @property
    def complete(self) -> bool:
        """After the last step."""
        return not self._steps

    def start(self) -> list[EngineInput]:
        """The first step."""
        return self._steps.pop(0)

    def feed(self, fed: Fed) -> list[EngineInput]:
        """The next step."""
        return self._steps.pop(0)


def orders(*steps: list[EngineInput], streams: bool = True) -> list[list[Order]]:
    intake = Intake(Scripted(*steps), streams=streams)
    return [intake.start(), *(intake.feed(FED) for _ in steps[1:])]


def test_one_complete_input_is_no_stream() -> None:
    assert orders([A]) == [[Begin(A, streamed=False)]]


def test_input_that_comes_later_is_appended_and_closed() -> None:
    assert orders([A], [B, C], []) == [
        [Begin(A, streamed=True)],
        [Append(B), Append(C)],
        [Close()],
    ]


def test_several_inputs_at_once_are_a_stream_that_is_closed() -> None:
    assert orders([A, B]) == [[Begin(A, streamed=True), Append(B), Close()]]


def test_an_engine_that_does_not_stream_gets_everything_joined_at_the_end() -> None:
    joined = TextInput(text="abc", units=3)
    assert orders([A], [B], [C], streams=False) == [[], [], [Begin(joined, streamed=False)]]


def test_what_cannot_be_joined_is_an_error() -> None:
    with pytest.raises(MeshError):
        orders([A, TensorsInput(buffers={})], streams=False)


@pytest.mark.parametrize("streams", [True, False])
def test_no_input_at_all_is_nothing_to_do(streams: bool) -> None:
    assert orders([], [], streams=streams) == [[], [Nothing()]]


def test_what_comes_after_the_end_is_not_asked_for() -> None:
    intake = Intake(Scripted([A]), streams=True)
    intake.start()
    assert intake.feed(FED) == []
