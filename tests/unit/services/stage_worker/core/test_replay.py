import hashlib
from itertools import pairwise
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.stage_worker.core.replay import LaneReplay, Replays
from services.stage_worker.engines.base import Piece, ResumeContract
from stagemesh.errors import MeshError
from stagemesh.link.core import LaneJournal
from stagemesh.media import AUDIO_PCM, Body, Modality, lane_of
from stagemesh.outcome import End, FinishReason, error_for
from tests.helpers.worker_core import STAGE, TEXT_LANE, submission

END = End(finish_reason=FinishReason.STOP)
AUDIO_LANE = lane_of(STAGE, 0, Modality.AUDIO)
IMAGE_LANE = lane_of(STAGE, 0, Modality.IMAGE)

Items = TypeVar("Items", str, list[str], list[int])


def digest(*parts: str | bytes) -> bytes:
    data = b"".join(part.encode() if isinstance(part, str) else part for part in parts)
    return hashlib.blake2b(data, digest_size=16).digest()


def counted(piece: Piece) -> bytes:
    return b"" if piece.body is None else piece.body.inline


def text(said: str, units: int | None = None, *, end: End | None = None) -> Piece:
    return Piece(attempt=1, units=len(said) if units is None else units, text=said, end=end)


def sound(*samples: int, end: End | None = None) -> Piece:
    data = b"".join(sample.to_bytes(2, "little") for sample in samples)
    body = Body(inline=data, media_type=AUDIO_PCM, sample_rate_hz=8000) if samples else None
    return Piece(attempt=1, modality=Modality.AUDIO, units=len(samples), body=body, end=end)


def lane(
    next_: int, expected: bytes = b"", *, number: int = TEXT_LANE, end: End | None = None
) -> LaneReplay:
    journal = LaneJournal(lane=number, next=next_, digest=expected, end=end)
    return LaneReplay(journal, counted)


def cut(replay: LaneReplay, *pieces: Piece) -> list[Piece]:
    return [rest for piece in pieces if (rest := replay.cut(piece)) is not None]


def diverges(replay: LaneReplay, *pieces: Piece) -> str:
    with pytest.raises(MeshError) as caught:
        cut(replay, *pieces)
    assert caught.value.info.reason == "replay_diverged"
    return caught.value.info.message


def test_what_lies_below_the_cursor_is_dropped_and_the_rest_goes_on() -> None:
    replay = lane(5, digest("Hello"))
    assert cut(replay, text("Hel"), text("lo"), text(" you")) == [text(" you")]
    assert replay.over


def test_characters_are_cut_where_the_cursor_lies() -> None:
    assert cut(lane(4, digest("Hell")), text("Hello you", end=END)) == [text("o you", end=END)]
    assert cut(lane(4), text("Hello you")) == [text("o you")]


def test_tokens_are_cut_where_their_digest_says() -> None:
    three = Piece(attempt=1, units=3, text=" one two three", ids=[7, 8, 9])
    (rest,) = cut(lane(2, digest(" one two")), three)
    assert (rest.units, rest.text, rest.ids) == (1, " three", [9])


def test_tokens_that_no_digest_belongs_to_cannot_be_cut() -> None:
    assert "without a digest" in diverges(lane(2), text(" one two three", 3))


def test_samples_are_cut_to_the_sample() -> None:
    data = sound(1, 2, 3).body
    assert data is not None
    replay = lane(3, digest(data.inline), number=AUDIO_LANE)
    (rest,) = cut(replay, sound(1, 2), sound(3, 4, 5))
    assert rest == sound(4, 5)


def test_only_raw_samples_can_be_cut() -> None:
    body = Body(inline=b"abcd", media_type="audio/mpeg")
    piece = Piece(attempt=1, modality=Modality.AUDIO, units=4, body=body)
    assert "cannot be cut" in diverges(lane(2, number=AUDIO_LANE), piece)


def test_an_end_at_the_cursor_goes_bare() -> None:
    replay = lane(5, digest("Hello"))
    assert cut(replay, text("Hello", end=END)) == [Piece(attempt=1, end=END)]
    replay = lane(5, digest("Hello"))
    assert cut(replay, text("Hello"), text("", end=END)) == [text("", end=END)]


def test_text_that_is_held_back_until_the_end_is_new() -> None:
    replay = lane(2, digest(" a b"))
    assert cut(replay, text(" a", 1), text(" b", 1), text(" rest", 0, end=END)) == [
        text(" rest", 0, end=END)
    ]


def test_an_end_before_the_cursor_is_a_divergence() -> None:
    assert "ends at 3" in diverges(lane(5, digest("Hello")), text("Hel", end=END))


@pytest.mark.parametrize(
    "pieces", [[text("Hallo")], [text("Hal"), text("lo")], [text("Hallo you")]]
)
def test_another_text_is_a_divergence(pieces: list[Piece]) -> None:
    assert "differs" in diverges(lane(5, digest("Hello")), *pieces)


def test_other_samples_are_a_divergence() -> None:
    data = sound(1, 2, 3).body
    assert data is not None
    replay = lane(3, digest(data.inline), number=AUDIO_LANE)
    assert "differs" in diverges(replay, sound(1, 2), sound(9, 4))


def test_a_lane_that_had_ended_gives_its_end_only() -> None:
    replay = lane(1, digest(" a rest"), end=END)
    assert cut(replay, text(" a", 1), text(" rest", 0, end=END)) == [Piece(attempt=1, end=END)]
    assert "had ended" in diverges(lane(1, end=END), text("ab"))


@given(
    st.text(min_size=1, max_size=40),
    st.lists(st.integers(1, 40), max_size=6),
    st.integers(0, 40),
    st.booleans(),
)
def test_text_cut_anywhere_gives_the_same_concatenation(
    said: str, bounds: list[int], at: int, by_digest: bool
) -> None:
    at = min(at, len(said))
    replay = lane(at, digest(said[:at]) if by_digest else b"")
    pieces = chunks(said, bounds)
    rest = cut(replay, *(text(piece) for piece in pieces), text("", end=END))
    assert "".join(piece.text for piece in rest) == said[at:]
    assert sum(piece.units for piece in rest) == len(said) - at
    assert [piece.end for piece in rest if piece.end] == [END]


@given(
    st.lists(st.sampled_from([" one", " two", "", "!", " one two"]), min_size=1, max_size=20),
    st.lists(st.integers(1, 20), max_size=6),
    st.integers(0, 20),
)
def test_tokens_cut_anywhere_give_the_same_concatenation(
    words: list[str], bounds: list[int], at: int
) -> None:
    at = min(at, len(words))
    replay = lane(at, digest(*words[:at]) if at else b"")
    pieces = [
        Piece(attempt=1, units=len(some), text="".join(some)) for some in chunks(words, bounds)
    ]
    rest = cut(replay, *pieces, text("", end=END))
    assert "".join(piece.text for piece in rest) == "".join(words[at:])
    assert sum(piece.units for piece in rest) == len(words) - at


@given(
    st.lists(st.integers(0, 65535), min_size=1, max_size=60),
    st.lists(st.integers(1, 60), max_size=6),
    st.integers(0, 60),
)
def test_samples_cut_anywhere_give_the_same_concatenation(
    samples: list[int], bounds: list[int], at: int
) -> None:
    at = min(at, len(samples))
    head = sound(*samples[:at]).body
    replay = lane(at, digest(head.inline) if head else b"", number=AUDIO_LANE)
    rest = cut(replay, *(sound(*some) for some in chunks(samples, bounds)), sound(end=END))
    whole = sound(*samples).body
    assert whole is not None
    assert b"".join(counted(piece) for piece in rest) == whole.inline[2 * at :]
    assert sum(piece.units for piece in rest) == len(samples) - at


def chunks(items: Items, bounds: list[int]) -> list[Items]:
    cuts = sorted({0, len(items), *(bound for bound in bounds if bound < len(items))})
    return [items[start:end] for start, end in pairwise(cuts)]


def test_only_attempts_that_replay_are_cut() -> None:
    replays = Replays(counted)
    tokens = submission(
        contract=ResumeContract.TOKENS, resume=[LaneJournal(lane=TEXT_LANE, next=2, ids=[1, 2])]
    )
    replays.start(1, tokens, tokens.roles[0])
    first = submission(contract=ResumeContract.REPLAY)
    replays.start(2, first, first.roles[0])
    assert not replays
    assert replays.cut([text("ab")]) == ([text("ab")], [])


def test_an_attempt_past_its_cursors_is_cut_no_more() -> None:
    replays = Replays(counted)
    again = submission(
        modalities=(Modality.TEXT, Modality.IMAGE),
        contract=ResumeContract.REPLAY,
        resume=[LaneJournal(lane=TEXT_LANE, next=2), LaneJournal(lane=IMAGE_LANE, next=1)],
    )
    replays.start(1, again, again.roles[0])
    image = Piece(attempt=1, modality=Modality.IMAGE, units=1, body=Body(inline=b"png"))
    other = Piece(attempt=9, units=1, text="x")
    assert replays.cut([text("ab"), other, image]) == ([other], [])
    assert not replays
    assert replays.cut([text("cd")]) == ([text("cd")], [])


def test_a_divergence_breaks_its_attempt_alone_and_hides_nothing_of_the_engine() -> None:
    replays = Replays(counted)
    for attempt in (1, 2):
        again = submission(
            contract=ResumeContract.REPLAY,
            resume=[LaneJournal(lane=TEXT_LANE, next=2, digest=digest("ab"))],
        )
        replays.start(attempt, again, again.roles[0])
    good = Piece(attempt=2, units=3, text="abc")
    last = text("xy", end=END)
    new, broken = replays.cut([last, good])
    assert new == [last, Piece(attempt=2, units=1, text="c")]
    assert [(event.attempt, event.error.reason) for event in broken] == [(1, "replay_diverged")]


def test_an_error_goes_through_and_a_forgotten_attempt_does_too() -> None:
    replays = Replays(counted)
    again = submission(contract=ResumeContract.REPLAY, resume=[LaneJournal(lane=TEXT_LANE, next=2)])
    replays.start(1, again, again.roles[0])
    failed = Piece(attempt=1, error=error_for("engine_error"))
    assert replays.cut([failed]) == ([failed], [])
    replays.forget(1)
    assert replays.cut([text("ab")]) == ([text("ab")], [])
