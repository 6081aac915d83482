import json
from typing import Any

import pytest

from services.stage_worker.engines.base import (
    AudioInput,
    ChatInput,
    EngineInput,
    Piece,
    Resume,
    ResumeContract,
    TensorsInput,
    TextInput,
    Work,
)
from services.stage_worker.engines.support.synthetic_media import colour_of, png, samples
from services.stage_worker.engines.support.synthetic_run import Run
from stagemesh.media import ImageParams, Modality, Params, Sampling
from stagemesh.outcome import FinishReason
from tests.helpers.bridge_contexts import user


def run_of(
    given: EngineInput | str = "",
    *wanted: Modality,
    params: Params | None = None,
    ids: bool = False,
    streamed: bool = False,
    resume: Resume | None = None,
    per_input: bool = False,
    **script: Any,
) -> Run:
    if isinstance(given, str):
        mark = f"#synthetic {json.dumps(script)}" if script else ""
        given = TextInput(text=given + mark)
    work = Work(
        attempt=1,
        request_id="req_a",
        stage="stage",
        companion="",
        choice=2,
        seed=7,
        seed_explicit=True,
        params=params or Params(),
        wanted=frozenset(wanted or (Modality.TEXT,)),
        ids_wanted=ids,
        input=given,
        streamed=streamed,
        resume=resume,
    )
    return Run(work, 0.0, per_input=per_input)


def all_of(run: Run) -> list[Piece]:
    pieces: list[Piece] = []
    while run.ready():
        pieces += run.give(run.step_units())
    return pieces


def text_of(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def test_tokens_are_counted_words_and_the_last_has_the_end() -> None:
    pieces = all_of(run_of(tokens=3))
    assert [piece.text for piece in pieces] == [" w0", " w1", " w2"]
    assert [piece.end is not None for piece in pieces] == [False, False, True]


def test_a_batch_is_one_piece_of_several_tokens_with_their_ids() -> None:
    pieces = all_of(run_of(tokens=5, batch=2, ids=True))
    assert [(piece.units, piece.text, piece.ids) for piece in pieces] == [
        (2, " w0 w1", [0, 1]),
        (2, " w2 w3", [2, 3]),
        (1, " w4", [4]),
    ]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (TextInput(text="say this back"), "say this back"),
        (ChatInput(messages=(user("first"), user("say this"))), "say this"),
        (TensorsInput(buffers={}, text="a circle"), "a circle"),
        (AudioInput(data=b"", media_type=""), " w0 w1 w2 w3 w4 w5 w6 w7"),
        (TextInput(text="  "), " w0 w1 w2 w3 w4 w5 w6 w7"),
    ],
)
def test_without_a_script_it_echoes_or_has_words_of_its_own(given: EngineInput, text: str) -> None:
    assert text_of(all_of(run_of(given))) == text


def test_a_script_may_give_the_text() -> None:
    pieces = all_of(run_of(text="one two"))
    assert [piece.text for piece in pieces] == ["one", " two"]


def test_a_script_that_only_sets_the_pace_echoes_what_stands_before_it() -> None:
    assert text_of(all_of(run_of("echo me ", batch=1))) == "echo me "


def test_no_tokens_end_at_once() -> None:
    (piece,) = all_of(run_of(tokens=0))
    assert (piece.units, piece.end is not None) == (0, True)


def test_more_tokens_than_allowed_end_by_length() -> None:
    params = Params(sampling=Sampling(tokens_max=3))
    pieces = all_of(run_of(tokens=9, params=params))
    assert text_of(pieces) == " w0 w1 w2"
    assert pieces[-1].end is not None
    assert pieces[-1].end.finish_reason is FinishReason.LENGTH
    fits = all_of(run_of(tokens=3, params=params))
    assert fits[-1].end is not None
    assert fits[-1].end.finish_reason is FinishReason.STOP


def test_the_script_names_the_finish_reason_and_ends_tell_what_was_used() -> None:
    last = all_of(run_of("two words ", tokens=4, finish="tool_calls"))[-1].end
    assert last is not None
    assert last.finish_reason is FinishReason.TOOL_CALLS
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (2, 4)


def test_streamed_input_allows_as_much_as_came_and_is_relayed() -> None:
    run = run_of("ignored", streamed=True)
    assert not run.ready()
    run.append(TextInput(text=" a b", units=2))
    assert text_of(list(run.give(run.step_units()))) == " a"
    assert text_of(list(run.give(run.step_units()))) == " b"
    assert not run.ready()
    run.append(TextInput(text="", units=1))
    assert text_of(list(run.give(run.step_units()))) == " w2"
    run.close()
    (last,) = all_of(run)
    assert (last.units, last.end is not None) == (0, True)
    assert run.done


def taken_by(run: Run) -> int:
    piece = run.take()
    return 0 if piece is None else piece.taken


def test_an_input_is_taken_once_its_units_were_given() -> None:
    run = run_of("", streamed=True)
    run.append(TextInput(text="", units=0))
    run.append(TextInput(text=" a b", units=2))
    run.append(TextInput(text=" c", units=1))
    assert taken_by(run) == 1
    list(run.give(run.step_units()))
    assert taken_by(run) == 0
    list(run.give(run.step_units()))
    assert (taken_by(run), taken_by(run)) == (1, 0)
    assert text_of(all_of(run)) == " c"
    assert taken_by(run) == 1


def test_an_input_behind_the_last_unit_is_taken_at_once() -> None:
    run = run_of("", streamed=True, tokens=1)
    run.append(TextInput(text=" a b", units=2))
    assert taken_by(run) == 0
    assert text_of(all_of(run)) == " w0"
    assert taken_by(run) == 1
    run.append(TextInput(text=" c", units=1))
    assert taken_by(run) == 1


def test_streamed_input_allows_a_scripts_words_and_the_rest_comes_at_the_close() -> None:
    run = run_of("", streamed=True, tokens=4)
    run.append(TextInput(text=" x", units=1))
    assert text_of(all_of(run)) == " w0"
    run.close()
    assert text_of(all_of(run)) == " w1 w2 w3"
    assert run.done


def test_a_first_piece_of_another_stage_is_relayed_without_a_request() -> None:
    run = run_of(TextInput(text=" a b", units=2))
    assert text_of(all_of(run)) == " a b"


def test_audio_is_20_ms_for_each_unit() -> None:
    pieces = all_of(run_of("", Modality.AUDIO, tokens=3, seed=5))
    assert [piece.units for piece in pieces] == [480, 480, 480]
    heard = b"".join(piece.body.inline for piece in pieces if piece.body)
    assert heard == samples(5 + 2, 0, 1440)  # The script's seed, and the choice.
    assert pieces[-1].end is not None
    assert pieces[-1].end.usage.audio_output_samples == 1440


@pytest.mark.parametrize("streamed", [False, True])
def test_audio_is_as_long_as_the_script_says(streamed: bool) -> None:
    run = run_of("", Modality.AUDIO, tokens=3, audio_ms=110, streamed=streamed)
    run.append(TextInput(text=" a", units=1))
    pieces = all_of(run)
    if streamed:
        run.close()
        pieces += all_of(run)
    assert sum(piece.units for piece in pieces) == 2640


def test_an_image_comes_with_the_end_in_the_colour_of_the_seed() -> None:
    params = Params(image=ImageParams(width=8, height=4))
    (piece,) = all_of(run_of("", Modality.IMAGE, tokens=3, params=params))
    assert piece.body is not None
    assert piece.body.inline == png(8, 4, colour_of(7))
    assert piece.body.shape == (8, 4)
    (square,) = all_of(run_of("", Modality.IMAGE, image_px=16, seed=1, params=params))
    assert square.body is not None
    assert square.body.inline == png(16, 16, colour_of(3))


def test_a_tensor_has_the_size_that_the_script_says() -> None:
    (piece,) = all_of(run_of("", Modality.TENSOR, tokens=1, payload_bytes=77))
    assert piece.body is not None
    assert len(piece.body.inline) == 77
    assert (piece.body.shape, piece.body.dtype) == ((77,), "uint8")


def test_a_video_is_one_picture_for_each_unit() -> None:
    pieces = all_of(run_of("", Modality.VIDEO, tokens=5, batch=2))
    assert [piece.units for piece in pieces] == [1] * 5
    assert [piece.end is not None for piece in pieces] == [False] * 4 + [True]
    assert len({piece.body.inline for piece in pieces if piece.body}) == 5


def test_every_modality_that_is_wanted_ends_once() -> None:
    pieces = all_of(run_of("", *Modality, tokens=3))
    ends = [piece.modality for piece in pieces if piece.end]
    assert sorted(ends) == sorted(Modality)


def test_a_step_stops_before_a_fault_and_does_not_end() -> None:
    run = run_of(tokens=5, batch=4, fail_at=3)
    assert run.step_units() == 3
    run = run_of(tokens=3, batch=3, fail_at=3)
    assert all(piece.end is None for piece in run.give(run.step_units()))
    assert run.ready()


def after(tokens: int) -> Resume:
    return Resume(
        contract=ResumeContract.TOKENS,
        positions={Modality.TEXT: tokens},
        token_ids=tuple(range(tokens)),
    )


@pytest.mark.parametrize("at", range(6))
def test_after_its_tokens_a_script_goes_on_with_the_next(at: int) -> None:
    whole = all_of(run_of(tokens=5, ids=True))
    rest = all_of(run_of(tokens=5, ids=True, resume=after(at)))
    assert text_of(whole[:at]) + text_of(rest) == text_of(whole)
    assert [id_ for piece in rest for id_ in piece.ids or ()] == list(range(at, 5))
    assert rest[-1].end == whole[-1].end


@pytest.mark.parametrize("stop", [" w2 w3", "w4", " w0 w1 w2 w3 w4 w5", "3"])
@pytest.mark.parametrize("at", range(4))
def test_text_that_is_held_back_for_a_stop_string_is_neither_lost_nor_doubled(
    stop: str, at: int
) -> None:
    params = Params(sampling=Sampling(stop=(stop,)))
    whole = all_of(run_of(tokens=8, params=params))
    if at >= len(whole):
        return
    rest = all_of(run_of(tokens=8, params=params, resume=after(at)))
    assert text_of(whole[:at]) + text_of(rest) == text_of(whole)
    assert rest[-1].end == whole[-1].end


def test_tokens_that_end_the_answer_end_it_at_once() -> None:
    limited = Params(sampling=Sampling(tokens_max=3))
    (last,) = all_of(run_of(tokens=9, params=limited, resume=after(3)))
    assert (last.units, last.text) == (0, "")
    assert last.end is not None
    assert last.end.finish_reason is FinishReason.LENGTH
    assert last.end.usage.completion_tokens == 3
    (last,) = all_of(
        run_of(tokens=9, params=Params(sampling=Sampling(stop=(" w1",))), resume=after(4))
    )
    assert last.end is not None
    assert (last.text, last.end.stop_match) == ("", " w1")


def test_a_relay_waits_until_the_input_is_past_its_tokens() -> None:
    run = run_of(TextInput(text=" a b", units=2), streamed=True, ids=True, resume=after(3))
    assert not run.ready()
    run.append(TextInput(text=" c d", units=2))
    assert [(piece.text, piece.ids) for piece in run.give(run.step_units())] == [(" d", [3])]
    run.close()
    assert text_of(all_of(run)) == ""
    assert run.done


def test_a_fault_that_is_behind_does_not_come_again() -> None:
    run = run_of(tokens=6, fail_at=2, resume=after(3))
    assert run.fault_at is None
    assert text_of(all_of(run)) == " w3 w4 w5"
    assert run_of(tokens=6, fail_at=3, resume=after(3)).fault_at == 3


def test_by_the_input_each_piece_names_the_one_that_it_was_made_of() -> None:
    inputs = [
        TextInput(text=" a b", units=2, origin=(0, 2)),
        TextInput(text=" c", units=1, origin=(2, 3)),
        TextInput(text=" d e", units=2, origin=(3, 5)),
    ]

    def run(first: int, at: int) -> list[Piece]:
        resume = Resume(
            contract=ResumeContract.PER_INPUT,
            positions={Modality.TEXT: at, Modality.AUDIO: at * 480},
        )
        started = run_of(
            "",
            Modality.TEXT,
            Modality.AUDIO,
            streamed=True,
            per_input=True,
            resume=resume if first else None,
        )
        for given in inputs[first:]:
            started.append(given)
        started.close()
        return all_of(started)

    whole = run(0, 0)
    assert [(p.text, p.origin) for p in whole if p.modality is Modality.TEXT] == [
        (" a", (0, 2)), (" b", (0, 2)), (" c", (2, 3)), (" d", (3, 5)), (" e", (3, 5)),
    ]  # fmt: skip
    assert run(1, 2) == whole[4:]
    assert run(2, 3) == whole[6:]


def test_by_the_input_a_batch_does_not_span_two_inputs() -> None:
    run = run_of(
        TextInput(text='#synthetic {"batch": 9}'), Modality.AUDIO, streamed=True, per_input=True
    )
    run.append(TextInput(text=" a b c", units=3, origin=(0, 3)))
    run.append(TextInput(text=" d", units=1, origin=(3, 4)))
    run.close()
    assert [(piece.units, piece.origin) for piece in all_of(run)] == [
        (1440, (0, 3)),
        (480, (3, 4)),
    ]
