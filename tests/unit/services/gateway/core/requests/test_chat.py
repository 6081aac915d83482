"""Chat bodies: what is taken, and what is wrong with the rest, field by field."""

import base64
import json
from typing import Any

import pytest

from services.gateway.core.requests import CHAT_UNSERVED, ChatOrder, Origin, read_chat
from stagemesh.errors import MeshError
from stagemesh.media import MediaPart, Message, Modality, TextPart

USER = {"role": "user", "content": "Hi"}
WAV = base64.b64encode(b"RIFF-and-more").decode()
PNG_URL = "data:image/png;base64," + base64.b64encode(b"\x89PNG").decode()


def _read(**body: Any) -> ChatOrder:
    full = {"model": "m", "messages": [USER], **body}
    return read_chat(json.dumps(full).encode(), Origin(label="l", seed=3))


def _message(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", **fields}]}


def _part(**fields: Any) -> dict[str, Any]:
    return _message(content=[{"type": "text", "text": "a"}, fields])


def _audio(**fields: Any) -> dict[str, Any]:
    return _part(type="input_audio", input_audio={"data": WAV, "format": "wav", **fields})


def _image(url: str) -> dict[str, Any]:
    return _part(type="image_url", image_url={"url": url})


_AT = "messages[0].content[1]"
BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"model": None}, "model", "invalid_type"),
    ({"model": ""}, "model", "invalid_value"),
    ({"model": 5}, "model", "invalid_type"),
    ({"messages": None}, "messages", "invalid_type"),
    ({"messages": []}, "messages", "invalid_value"),
    ({"messages": "Hi"}, "messages", "invalid_type"),
    ({"messages": ["Hi"]}, "messages[0]", "invalid_type"),
    ({"messages": [{"content": "a"}]}, "messages[0].role", "missing_required_parameter"),
    ({"messages": [{"role": "king", "content": "a"}]}, "messages[0].role", "invalid_value"),
    ({"messages": [{"role": "tool", "content": "a"}]}, "messages[0].role", "unsupported_value"),
    ({"messages": [USER, {"role": "user"}]}, "messages[1].content", "missing_required_parameter"),
    (_message(content=None), "messages[0].content", "missing_required_parameter"),
    (_message(content=[]), "messages[0].content", "invalid_value"),
    (_message(content=7), "messages[0].content", "invalid_type"),
    (_message(content="a", mood="good"), "messages[0].mood", "unknown_parameter"),
    (_message(content="a", name=7), "messages[0].name", "invalid_type"),
    (_message(content="a", tool_calls=[{}]), "messages[0].tool_calls", "unsupported_parameter"),
    (_part(text="b"), f"{_AT}.type", "missing_required_parameter"),
    (_part(type="smell"), f"{_AT}.type", "invalid_value"),
    (_part(type="text"), f"{_AT}.text", "missing_required_parameter"),
    (_part(type="text", text=5), f"{_AT}.text", "invalid_type"),
    (_part(type="text", text="b", size=5), f"{_AT}.size", "unknown_parameter"),
    (_part(type="file", file={"file_id": "f"}), f"{_AT}.type", "unsupported_value"),
    (_part(type="input_audio"), f"{_AT}.input_audio", "missing_required_parameter"),
    (_audio(data="not base64!"), f"{_AT}.input_audio.data", "invalid_value"),
    (_audio(data="YQ"), f"{_AT}.input_audio.data", "invalid_value"),
    (_audio(data="é==="), f"{_AT}.input_audio.data", "invalid_value"),
    (_audio(data=""), f"{_AT}.input_audio.data", "invalid_value"),
    (_audio(data=5), f"{_AT}.input_audio.data", "invalid_type"),
    (_audio(format="ogg"), f"{_AT}.input_audio.format", "invalid_value"),
    (_audio(rate=5), f"{_AT}.input_audio.rate", "unknown_parameter"),
    (_image("https://host.example/a.png"), f"{_AT}.image_url.url", "unsupported_value"),
    (_image("file:///etc/passwd"), f"{_AT}.image_url.url", "unsupported_value"),
    (_image("data:text/html;base64,YQ=="), f"{_AT}.image_url.url", "invalid_value"),
    (_image("data:image/png,raw"), f"{_AT}.image_url.url", "invalid_value"),
    (_image("data:image/png;base64,@"), f"{_AT}.image_url.url", "invalid_value"),
    ({"stream": "yes"}, "stream", "invalid_type"),
    ({"stream_options": {"include_usage": True}}, "stream_options", "invalid_value"),
    ({"stream": True, "stream_options": 1}, "stream_options", "invalid_type"),
    ({"stream": True, "stream_options": {"all": 1}}, "stream_options.all", "unknown_parameter"),
    ({"n": 0}, "n", "invalid_value"),
    ({"n": -1}, "n", "invalid_value"),
    ({"n": 1.5}, "n", "invalid_type"),
    ({"n": True}, "n", "invalid_type"),
    ({"n": 2**32}, "n", "invalid_value"),
    ({"n": 10**40}, "n", "invalid_value"),
    ({"max_tokens": "many"}, "max_tokens", "invalid_type"),
    ({"max_completion_tokens": -1}, "max_completion_tokens", "invalid_value"),
    ({"max_tokens": 1, "max_completion_tokens": 2}, "max_tokens", "invalid_value"),
    ({"temperature": "hot"}, "temperature", "invalid_type"),
    ({"top_p": []}, "top_p", "invalid_type"),
    ({"top_k": -2}, "top_k", "invalid_value"),
    ({"seed": 1.5}, "seed", "invalid_type"),
    ({"stop": 5}, "stop", "invalid_type"),
    ({"stop": ["a", 5]}, "stop[1]", "invalid_type"),
    ({"modalities": []}, "modalities", "invalid_value"),
    ({"modalities": "text"}, "modalities", "invalid_type"),
    ({"modalities": ["text", "smell"]}, "modalities[1]", "invalid_value"),
    ({"modalities": ["audio"], "audio": {"format": "mp3"}}, "audio.format", "unsupported_value"),
    ({"modalities": ["audio"], "audio": {"voice": ""}}, "audio.voice", "invalid_value"),
    ({"audio": {"speed": 1}}, "audio.speed", "unknown_parameter"),
    ({"metadata": {"a": 1}}, "metadata[...]", "invalid_type"),
    ({"user": 1}, "user", "invalid_type"),
    ({"store": True}, "store", "unsupported_parameter"),
    ({"tools": [{"type": "function"}]}, "tools", "unsupported_parameter"),
    ({"tool_choice": "required"}, "tool_choice", "unsupported_parameter"),
    ({"logprobs": True}, "logprobs", "unsupported_parameter"),
    ({"logprobs": 0}, "logprobs", "unsupported_parameter"),
    ({"top_logprobs": 3}, "top_logprobs", "unsupported_parameter"),
    ({"response_format": {"type": "json_object"}}, "response_format", "unsupported_parameter"),
    ({"logit_bias": {"5": 1}}, "logit_bias", "unsupported_parameter"),
    ({"beam_width": 4}, "beam_width", "unknown_parameter"),
]


@pytest.mark.parametrize(("body", "param", "reason"), BAD)
def test_a_field_that_is_wrong_is_named(body: dict[str, Any], param: str, reason: str) -> None:
    with pytest.raises(MeshError) as caught:
        _read(**body)
    assert (caught.value.info.param, caught.value.info.reason) == (param, reason)
    assert caught.value.info.message


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"null ",
        b"\xff\xfe",
        b'{"model": "m", "messages": [{"role": "user", "content": ""}]} more',
        b'{"model": "\xff", "messages": []}',
        b'{"model": "\\ud800", "messages": []}',
        b'{"model": "m", "temperature": NaN}',
        b'{"tools": ' + b"[" * 100_000,
        b'{"metadata": ' + b"[" * 100_000,
        b"[" * 100_000,
    ],
)
def test_a_body_that_is_no_such_json_is_the_clients_mistake(raw: bytes) -> None:
    with pytest.raises(MeshError) as caught:
        read_chat(raw, Origin())
    assert caught.value.info.reason in {"invalid_json", "invalid_type"}


@pytest.mark.parametrize(
    "messages",
    [[USER] * 4097, [{"role": "user", "content": [{"type": "text", "text": ""}] * 8193}] * 2],
    ids=["messages", "parts"],
)
def test_more_than_is_worth_anybody_s_time_is_refused(messages: Any) -> None:
    with pytest.raises(MeshError) as caught:
        _read(messages=messages)
    assert (caught.value.info.param, caught.value.info.reason) == ("messages", "invalid_value")


def test_a_missing_field_is_named() -> None:
    with pytest.raises(MeshError) as caught:
        read_chat(b'{"model": "m"}', Origin())
    assert caught.value.info.param == "messages"
    assert caught.value.info.reason == "missing_required_parameter"


@pytest.mark.parametrize(
    ("name", "value"), [(name, no_op) for name, many in CHAT_UNSERVED.items() for no_op in many]
)
def test_a_value_that_asks_for_nothing_is_taken(name: str, value: Any) -> None:
    assert _read(**{name: value}) == _read(**{name: None}) == _read()


def test_defaults_are_left_to_the_pipeline() -> None:
    order = _read()
    assert order.request.params == type(order.request.params)()
    assert order.request.messages == (Message(role="user", parts=(TextPart("Hi"),)),)
    assert order.request.modalities == (Modality.TEXT,)
    assert (order.request.seed, order.request.seed_explicit, order.request.label) == (3, False, "l")
    assert (order.stream, order.include_usage, order.audio_format) == (False, False, "")


def test_labels_of_openai_are_taken_and_change_nothing() -> None:
    labels = {
        "user": "u", "metadata": {"a": "b"}, "safety_identifier": "s", "prompt_cache_key": "k"
    }  # fmt: skip
    assert _read(**labels) == _read()


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_both_names_of_the_limit_are_taken(field: str) -> None:
    order = _read(**{field: 7})
    assert order.request.params.sampling.tokens_max == 7
    assert order.names.get("max_completion_tokens", "max_completion_tokens") == field


@pytest.mark.parametrize(
    ("stop", "wanted"), [(None, ()), ("a", ("a",)), ([], ()), (["a", "b"], ("a", "b"))]
)
def test_stops_are_a_string_or_a_list(stop: Any, wanted: tuple[str, ...]) -> None:
    assert _read(stop=stop).request.params.sampling.stop == wanted


@pytest.mark.parametrize(("seed", "wanted"), [(0, 0), (-1, 2**64 - 1), (2**63, 2**63)])
def test_a_seed_is_taken_as_64_bits(seed: int, wanted: int) -> None:
    request = _read(seed=seed).request
    assert (request.seed, request.seed_explicit) == (wanted, True)


@pytest.mark.parametrize(("top_k", "wanted"), [(-1, 0), (0, 0), (5, 5)])
def test_no_limit_of_candidates_is_written_in_two_ways(top_k: int, wanted: int) -> None:
    assert _read(top_k=top_k).request.params.sampling.top_k == wanted


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ({"modalities": ["audio", "text"], "stream": True}, "pcm16"),
        ({"modalities": ["text", "audio"]}, "wav"),
        ({"modalities": ["audio"], "audio": {"format": "pcm16", "voice": {"id": "v"}}}, "pcm16"),
        ({"audio": {"format": "mp3"}}, ""),
    ],
)
def test_the_format_of_audio_depends_on_the_stream(body: dict[str, Any], wanted: str) -> None:
    assert _read(**body).audio_format == wanted


def test_a_streamed_wav_is_refused() -> None:
    with pytest.raises(MeshError) as caught:
        _read(modalities=["audio"], audio={"format": "wav"}, stream=True)
    assert caught.value.info.param == "audio.format"


def test_media_become_parts_that_remember_their_fields() -> None:
    content = [
        {"type": "text", "text": "a"},
        {"type": "input_audio", "input_audio": {"data": WAV, "format": "mp3"}},
        {"type": "image_url", "image_url": {"url": PNG_URL, "detail": "low"}},
    ]
    parts = _read(messages=[{"role": "user", "content": content}]).request.messages[0].parts
    assert parts[0] == TextPart("a")
    audio, image = parts[1:]
    assert isinstance(audio, MediaPart)
    assert isinstance(image, MediaPart)
    assert (audio.modality, audio.body.media_type) == (Modality.AUDIO, "audio/mpeg")
    assert audio.body.inline == b"RIFF-and-more"
    assert audio.param == "messages[0].content[1].input_audio.data"
    assert (image.modality, image.body.media_type) == (Modality.IMAGE, "image/png")
    assert image.param == "messages[0].content[2].image_url.url"


def test_media_belong_into_messages_of_the_user() -> None:
    content = [{"type": "image_url", "image_url": {"url": PNG_URL}}]
    with pytest.raises(MeshError) as caught:
        _read(messages=[{"role": "system", "content": content}])
    assert caught.value.info.param == "messages[0].content[0].type"


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"content": "said", "audio": {"id": "x"}}, "said"),
        ({"content": None, "audio": {"id": "x", "transcript": "spoken"}}, "spoken"),
        ({"content": None, "refusal": "No."}, "No."),
        ({"content": [{"type": "refusal", "refusal": "Never."}]}, "Never."),
        ({"content": "said", "annotations": [], "tool_calls": None, "function_call": None}, "said"),
    ],
)
def test_an_earlier_reply_comes_back_as_the_sdk_keeps_it(
    fields: dict[str, Any], wanted: str
) -> None:
    order = _read(messages=[USER, {"role": "assistant", **fields}])
    assert order.request.messages[1].text == wanted


def test_an_earlier_spoken_reply_without_its_words_is_not_known_here() -> None:
    with pytest.raises(MeshError) as caught:
        _read(messages=[USER, {"role": "assistant", "audio": {"id": "x"}}])
    assert (caught.value.info.param, caught.value.info.reason) == (
        "messages[1].audio.id", "unsupported_value",
    )  # fmt: skip
