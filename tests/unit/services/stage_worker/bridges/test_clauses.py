import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.stage_worker.bridges.base import Fed
from services.stage_worker.bridges.clauses import create
from services.stage_worker.engines.base import EngineInput, TextInput
from stagemesh.errors import MeshError
from stagemesh.media import OutputKind
from stagemesh.outcome import ErrorCode
from tests.helpers.bridge_contexts import context, said, source, user

THINKER = source()


def fed_all(*pieces: str) -> list[EngineInput]:
    bridge = create(context(sources=[THINKER], options={"chars_min": 4}))
    assert bridge.start() == []
    inputs: list[EngineInput] = []
    for at, piece in enumerate(pieces):
        inputs += bridge.feed(said(THINKER, piece, pos=at, last=at == len(pieces) - 1))
    assert bridge.complete
    return inputs


def test_streamed_text_is_given_clause_by_clause_with_its_units() -> None:
    assert fed_all(" Hello", " world", ".", " How", " are", " you", "?") == [
        TextInput(text=" Hello world.", units=3, origin=(0, 3)),
        TextInput(text=" How are you?", units=4, origin=(3, 7)),
    ]


def test_a_piece_that_spans_two_clauses_counts_where_it_ends() -> None:
    assert fed_all("One thing. Two", " things.") == [
        TextInput(text="One thing.", units=0, origin=(0, 1)),
        TextInput(text=" Two things.", units=2, origin=(0, 2)),
    ]


def test_a_rest_without_a_sound_is_not_spoken() -> None:
    assert fed_all("Hello world. ", "…") == [TextInput(text="Hello world.", units=0, origin=(0, 1))]
    assert fed_all(" ") == []


def test_reasoning_is_not_for_ears() -> None:
    bridge = create(context(sources=[THINKER]))
    thought = Fed(source=THINKER, units=1, text="Let me think, so. ", kind=OutputKind.REASONING)
    assert bridge.feed(thought) == []
    assert bridge.feed(said(THINKER, "The answer", pos=1, last=True)) == [
        TextInput(text="The answer", units=2, origin=(0, 2))
    ]


def test_with_two_sources_nobody_knows_where_a_clause_came_from() -> None:
    other = source(stage=2)
    bridge = create(context(sources=[THINKER, other]))
    bridge.feed(said(THINKER, "One and ", last=True))
    assert bridge.feed(said(other, "another", last=True)) == [
        TextInput(text="One and another", units=2)
    ]


@given(
    st.lists(st.tuples(st.text(alphabet="ab .,;!?\n'", max_size=8), st.integers(1, 3)), min_size=1),
    st.integers(1, 12),
    st.data(),
)
def test_begun_again_at_the_start_of_an_origin_it_gives_the_same_clauses(
    pieces: list[tuple[str, int]], chars_min: int, data: st.DataObject
) -> None:
    def run(first: int) -> list[TextInput]:
        bridge = create(context(sources=[THINKER], options={"chars_min": chars_min}))
        inputs: list[EngineInput] = []
        pos = 0
        for at, (text, units) in enumerate(pieces):
            last = at == len(pieces) - 1
            if pos >= first:
                inputs += bridge.feed(said(THINKER, text, pos=pos, units=units, last=last))
            pos += units
        return [given for given in inputs if isinstance(given, TextInput)]

    clauses = run(0)
    if not clauses:
        return
    origin = data.draw(st.sampled_from(clauses)).origin
    assert origin is not None
    again = run(origin[0])
    first = next(at for at, clause in enumerate(clauses) if clause.origin[:1] == origin[:1])  # type: ignore[index]
    assert again == clauses[first:]
    starts = [clause.origin[0] for clause in clauses if clause.origin]
    assert starts == sorted(starts)


def test_the_requests_own_text_is_cut_at_once() -> None:
    bridge = create(context(user("The first clause, the second clause. And more"), sources=[]))
    assert bridge.start() == [
        TextInput(text="The first clause,"),
        TextInput(text=" the second clause."),
        TextInput(text=" And more"),
    ]
    assert bridge.complete


def test_no_text_at_all_is_the_clients_mistake() -> None:
    with pytest.raises(MeshError) as caught:
        create(context(user("  "))).start()
    assert caught.value.info.code is ErrorCode.INVALID_ARGUMENT


@pytest.mark.parametrize("options", [{"chars": 3}, {"chars_min": 9, "chars_max": 9}])
def test_options_that_make_no_sense_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(MeshError) as caught:
        create(context(sources=[THINKER], options=options))
    assert caught.value.info.code is ErrorCode.UNSUPPORTED


def test_the_end_of_a_segment_ends_a_clause_and_not_the_attempt() -> None:
    thinker = source()
    bridge = create(context(sources=[thinker]))
    assert bridge.feed(said(thinker, "Well then")) == []
    (clause,) = bridge.feed(msgspec.structs.replace(said(thinker, "", units=0), segment_end=True))
    assert isinstance(clause, TextInput)
    assert clause.text == "Well then"
    assert not bridge.complete
    assert bridge.feed(said(thinker, "", units=0, last=True)) == []
    assert bridge.complete
