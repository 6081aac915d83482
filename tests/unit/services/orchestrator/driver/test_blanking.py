"""No content in what is written down."""

import msgspec

from services.orchestrator.core import events as ev
from services.orchestrator.driver.blanking import blanked
from stagemesh.link.core import Journal, LaneJournal, Row
from stagemesh.media import (
    AudioParams,
    Body,
    Handle,
    ImageParams,
    MediaPart,
    Message,
    Modality,
    Params,
    Request,
    Sampling,
    TextPart,
)
from stagemesh.outcome import End, ErrorCode, ErrorInfo, FinishReason, Outcome, Terminal

MODELS = frozenset({"echo"})
HANDLE = Handle(
    handle_id="h_secret", request_id="r1", holder_id="t-0", incarnation=5, address="secret:1",
    probe="/secret", size_bytes=70_000, digest=b"12",
)  # fmt: skip
END = End(finish_reason=FinishReason.STOP, stop_match="secret")
OPENED = ev.Opened(
    link=1,
    slot=2,
    request_id="r1",
    epoch=3,
    deadline_left_s=4.0,
    request=Request(
        model="echo",
        messages=(
            Message(
                role="user",
                name="secret",
                parts=(
                    TextPart("secret"),
                    MediaPart(modality=Modality.AUDIO, body=Body(inline=b"secret")),
                    MediaPart(modality=Modality.IMAGE, body=Body(handle=HANDLE)),
                ),
            ),
        ),
        params=Params(
            sampling=Sampling(stop=("secret",), temperature=0.5),
            audio=AudioParams(voice="secret"),
            image=ImageParams(negative_prompt="secret"),
        ),
        label="secret",
    ),
    body="a secret message of the wire",
    journal=Journal(
        lanes=[
            LaneJournal(
                lane=1, next=2, ids=[7, 8], end=END, rows=[Row(0, 1, 0, 2, "secret", [7, 8])]
            )
        ]
    ),
)


def test_no_content_of_an_opening_is_left() -> None:
    told = msgspec.json.encode(blanked(OPENED, MODELS)).decode()
    assert "secret" not in told
    assert msgspec.json.encode(b"secret").decode().strip('"') not in told


def test_sizes_names_and_numbers_stay() -> None:
    event = blanked(OPENED, MODELS)
    assert isinstance(event, ev.Opened)
    request, before = event.request, OPENED.request
    assert (request.model, event.request_id, event.epoch) == ("echo", "r1", 3)
    assert request.params.sampling.temperature == 0.5
    assert [len(stop) for stop in request.params.sampling.stop] == [6]
    text, audio, image = request.messages[0].parts
    assert text == TextPart("x" * 6)
    assert isinstance(audio, MediaPart)
    assert isinstance(image, MediaPart)
    assert (audio.body.size_bytes, image.body.size_bytes) == (6, 70_000)
    assert request.input_modalities == before.input_modalities
    [lane] = event.journal.lanes
    assert (lane.next, lane.ids, lane.rows[0].units) == (2, [0, 0], 2)
    assert event.body is None


def test_words_that_clients_make_up_are_content() -> None:
    request = msgspec.structs.replace(
        OPENED.request, model="secret", messages=(Message(role="secret", parts=()),)
    )
    event = blanked(msgspec.structs.replace(OPENED, request=request), MODELS)
    assert isinstance(event, ev.Opened)
    assert event.request.model == "xxxxxx"
    assert event.request.messages[0].role == "xxxxxx"


def test_a_handle_stays_the_same_wherever_it_is_named() -> None:
    lost = blanked(ev.HandleLost(link=1, slot=2, handle_id="h_secret"), MODELS)
    held = blanked(ev.Fenced(link=1, request_id="r", epoch=2, held=("h_secret", "b")), MODELS)
    part = blanked(OPENED, MODELS).request.messages[0].parts[2]
    assert lost.handle_id == held.held[0] == part.body.handle.handle_id
    assert lost.handle_id not in ("h_secret", held.held[1])


def test_what_an_engine_said_of_its_failure_is_content() -> None:
    error = ErrorInfo(code=ErrorCode.ENGINE_ERROR, reason="engine_error", message="secret")
    event = ev.AttemptEnded(link=1, slot=2, terminal=Terminal(outcome=Outcome.FAILED, error=error))
    told = blanked(event, MODELS)
    assert told.terminal.error.reason == "engine_error"
    assert told.terminal.error.message == "xxxxxx"


def test_the_event_itself_is_left_alone() -> None:
    row = Row(1, 2, 0, 1, "secret")
    blanked(ev.RowsArrived(link=1, rows=[row]), MODELS)
    assert row.text == "secret"


def test_another_prompt_is_content() -> None:
    asked = ev.InteractAsked(link=1, slot=2, interaction_id="secret", text="secret")
    assert "secret" not in msgspec.json.encode(blanked(asked, MODELS)).decode()


def test_what_is_wished_of_a_stage_is_content() -> None:
    wishes = {"painter": Params(image=ImageParams(negative_prompt="secret"))}
    request = Request(model="echo", messages=(), stage_params=wishes)
    opened = ev.Opened(
        link=1, slot=1, request_id="r", epoch=1, deadline_left_s=0.0, request=request, body=None
    )
    assert "secret" not in msgspec.json.encode(blanked(opened, MODELS)).decode()
