"""Chat replies, event by event."""

import json
from typing import Any

import pytest

from services.gateway.core.replies import ChatStream, ChatWhole, ReplyHead
from services.gateway.core.requests import ChatOrder
from stagemesh.errors import MeshError
from stagemesh.link.core import Row
from stagemesh.media import Body, Modality, OutputKind, Request, lane_of
from stagemesh.outcome import End, FinishReason, Outcome, Usage, error_for, status_of

HEAD = ReplyHead(request_id="req_0af", created_s=1700, model='m"odel')
TEXT = (Modality.TEXT,)
BOTH = (Modality.TEXT, Modality.AUDIO)


def _order(
    modalities: tuple[Modality, ...] = TEXT, *, choices: int = 1, **fields: Any
) -> ChatOrder:
    return ChatOrder(
        request=Request(model="m", messages=(), modalities=modalities, choices=choices),
        **{
            "stream": True, "include_usage": False, "audio_format": "", "names": {}, **fields
        },
    )  # fmt: skip


def _row(
    text: str = "",
    *,
    modality: Modality = Modality.TEXT,
    choice: int = 0,
    reason: FinishReason | None = None,
    **fields: Any,
) -> Row:
    end = None if reason is None else End(finish_reason=reason)
    return Row(1, lane_of(2, choice, modality), 0, 1, text, end=end, **fields)


def _sound(data: bytes, *, rate_hz: int = 16_000, media_type: str = "audio/pcm") -> Row:
    body = Body(inline=data, media_type=media_type, sample_rate_hz=rate_hz)
    return _row(modality=Modality.AUDIO, body=body)


def _events(data: bytes) -> list[Any]:
    assert data.endswith(b"\n\n") or not data
    return [
        json.loads(line.removeprefix("data: "))
        for line in data.decode().split("\n\n")
        if line and line != "data: [DONE]"
    ]


def _delta(event: Any) -> Any:
    return event["choices"][0]["delta"]


def test_each_row_is_one_event_and_all_that_wait_are_one_piece() -> None:
    stream = ChatStream(HEAD, _order())
    events = _events(stream.write([_row('a"\n'), _row("é"), _row("💬")]))
    assert [_delta(event).get("content") for event in events] == ["", 'a"\n', "é", "💬"]
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    assert events[1] == {
        "id": "chatcmpl-0af",
        "object": "chat.completion.chunk",
        "created": 1700,
        "model": 'm"odel',
        "choices": [
            {"index": 0, "delta": {"content": 'a"\n'}, "logprobs": None, "finish_reason": None}
        ],
    }


def test_rows_that_say_nothing_make_no_event_of_their_own() -> None:
    stream = ChatStream(HEAD, _order())
    stream.write([_row("a")])
    assert stream.write([_row(""), _row("hidden", kind=OutputKind.IDS)]) == b""


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        (FinishReason.STOP, "stop"),
        (FinishReason.LENGTH, "length"),
        (FinishReason.TOOL_CALLS, "tool_calls"),
        (FinishReason.CONTENT_FILTER, "content_filter"),
    ],
)
def test_a_choice_finishes_with_its_last_row_and_only_once(reason: FinishReason, word: str) -> None:
    stream = ChatStream(HEAD, _order())
    events = _events(stream.write([_row("a", reason=reason)]))
    assert events[-1]["choices"][0] == {
        "index": 0, "delta": {}, "logprobs": None, "finish_reason": word
    }  # fmt: skip
    assert stream.close(Usage()) == b"data: [DONE]\n\n"


def test_an_end_by_abort_is_no_finish() -> None:
    stream = ChatStream(HEAD, _order())
    events = _events(stream.write([_row("a", reason=FinishReason.ABORT)]))
    assert [event["choices"][0]["finish_reason"] for event in events] == [None, None]


def test_a_choice_finishes_with_the_last_of_its_lanes_for_the_reason_of_its_text() -> None:
    stream = ChatStream(HEAD, _order(BOTH))
    first = _events(stream.write([_row("a", reason=FinishReason.LENGTH)]))
    last = _events(
        stream.write([_sound(b"\1\0"), _row(modality=Modality.AUDIO, reason=FinishReason.STOP)])
    )
    assert [event["choices"][0]["finish_reason"] for event in first] == [None, None]
    assert last[-1]["choices"][0]["finish_reason"] == "length"
    assert _delta(last[0])["audio"] == {"id": "audio-0af-0", "data": "AQA="}
    assert _delta(last[1])["audio"] == {"id": "audio-0af-0", "transcript": "a"}
    assert _delta(last[2])["audio"] == {"id": "audio-0af-0", "expires_at": 1700}


def test_usage_is_null_until_its_own_event_if_asked_for() -> None:
    stream = ChatStream(HEAD, _order(include_usage=True))
    events = _events(stream.write([_row("a", reason=FinishReason.STOP)]))
    closing = stream.close(Usage(prompt_tokens=2, completion_tokens=3, cached_tokens=1))
    assert [event["usage"] for event in events] == [None, None, None]
    assert closing.endswith(b"data: [DONE]\n\n")
    last = _events(closing)[-1]
    assert last["choices"] == []
    assert last["usage"] == {
        "prompt_tokens": 2,
        "completion_tokens": 3,
        "total_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 1},
    }


def test_a_success_without_a_row_still_has_a_role_and_a_finish_for_each_choice() -> None:
    events = _events(ChatStream(HEAD, _order(choices=2)).close(Usage()))
    seen = [(e["choices"][0]["index"], e["choices"][0]["finish_reason"]) for e in events]
    assert seen == [(0, None), (0, "stop"), (1, None), (1, "stop")]


def test_an_error_is_an_event_with_openais_fields() -> None:
    info = error_for("stalled", stage="thinker")
    status = status_of(Outcome.FAILED, info.code)
    event = _events(ChatStream(HEAD, _order()).fail(info, status, "req_0af"))[0]
    assert event["error"] == {
        "message": info.message,
        "type": "server_error",
        "param": None,
        "code": "stalled",
        "request_id": "req_0af",
        "stage": "thinker",
    }


@pytest.mark.parametrize(
    "row", [_sound(b"\1\0", media_type="audio/mpeg"), _sound(b"\1\0", rate_hz=0)]
)
def test_audio_that_the_mesh_does_not_carry_is_refused(row: Row) -> None:
    with pytest.raises(MeshError) as caught:
        ChatStream(HEAD, _order(BOTH)).write([row])
    assert caught.value.info.reason == "protocol_error"


def test_audio_that_changes_its_rate_is_refused() -> None:
    stream = ChatStream(HEAD, _order(BOTH))
    stream.write([_sound(b"\1\0")])
    with pytest.raises(MeshError):
        stream.write([_sound(b"\1\0", rate_hz=8000)])


def test_a_whole_reply_has_each_choice_in_order() -> None:
    whole = ChatWhole(HEAD, _order(choices=2), bytes_max=100)
    whole.add([_row("b", choice=1), _row("a")])
    whole.add([_row("", choice=1, reason=FinishReason.LENGTH), _row(reason=FinishReason.STOP)])
    reply = json.loads(whole.close(Usage(prompt_tokens=1)))
    assert reply["object"] == "chat.completion"
    assert [choice["message"]["content"] for choice in reply["choices"]] == ["a", "b"]
    assert [choice["finish_reason"] for choice in reply["choices"]] == ["stop", "length"]
    assert "audio" not in reply["choices"][0]["message"]


def test_a_reply_of_sound_alone_has_no_content() -> None:
    whole = ChatWhole(HEAD, _order((Modality.AUDIO,), audio_format="pcm16"), bytes_max=100)
    whole.add([_sound(b"\1\0")])
    message = json.loads(whole.close(Usage()))["choices"][0]["message"]
    assert message["content"] is None
    assert message["audio"]["data"] == "AQA="


def test_a_whole_reply_is_bounded() -> None:
    whole = ChatWhole(HEAD, _order(BOTH), bytes_max=10)
    whole.add([_row("12345")])
    with pytest.raises(MeshError) as caught:
        whole.add([_sound(b"123456")])
    assert not caught.value.info.retryable
