import asyncio
import base64
import json
from typing import Any

import httpx
import pytest

from tests.helpers.e2e_mesh import E2eMesh
from tests.helpers.e2e_scripts import user, words

CHAT = "/v1/chat/completions"
SPEECH = "/v1/audio/speech"
IMAGES = "/v1/images/generations"
TRANSCRIPTIONS = "/v1/audio/transcriptions"

HELLO = [{"role": "user", "content": "hello"}]
WAV = base64.b64encode(b"RIFF\x24\x00\x00\x00WAVE" + bytes(32)).decode()


def said(part: Any) -> Any:
    return [{"role": "user", "content": [part]}]


def sound(**data: Any) -> Any:
    return said({"type": "input_audio", "input_audio": data})


VALUE, TYPE, UNKNOWN = "invalid_value", "invalid_type", "unknown_parameter"
MODALITY, UNSERVED, MISSING = (
    "unsupported_modality", "unsupported_parameter", "missing_required_parameter",
)  # fmt: skip
UNSUPPORTED = "unsupported_value"

# What a chat's body says beside `model: echo` and one message; status, param and code.
CHATS: list[tuple[dict[str, Any], int, str | None, str]] = [
    ({"model": "gpt-4o"}, 404, "model", "model_not_found"),
    ({"model": ""}, 400, "model", VALUE),
    ({"model": "echo\0"}, 404, "model", "model_not_found"),
    ({"model": "x" * 100_000}, 404, "model", "model_not_found"),
    ({"model": 7}, 400, "model", TYPE),
    ({"model": None}, 400, "model", TYPE),
    ({"modalities": ["audio"]}, 400, "modalities", MODALITY),
    ({"modalities": ["text", "audio"]}, 400, "modalities", MODALITY),
    ({"modalities": ["smell"]}, 400, "modalities[0]", VALUE),
    ({"modalities": []}, 400, "modalities", VALUE),
    ({"modalities": "text"}, 400, "modalities", TYPE),
    ({"messages": []}, 400, "messages", VALUE),
    ({"messages": None}, 400, "messages", TYPE),
    ({"messages": "hello"}, 400, "messages", TYPE),
    ({"messages": [{}]}, 400, "messages[0].role", MISSING),
    ({"messages": [{"role": "user"}]}, 400, "messages[0].content", MISSING),
    ({"messages": [{"role": "user", "content": []}]}, 400, "messages[0].content", VALUE),
    ({"messages": [{"role": "king", "content": "x"}]}, 400, "messages[0].role", VALUE),
    ({"messages": [{"role": "user", "content": 3}]}, 400, "messages[0].content", TYPE),
    ({"messages": [*HELLO, {"role": "user", "content": "x", "mood": 1}]}, 400, "messages[1].mood", UNKNOWN),
    ({"messages": said({"type": "smell"})}, 400, "messages[0].content[0].type", VALUE),
    ({"messages": said({"text": "no type"})}, 400, "messages[0].content[0].type", MISSING),
    ({"messages": sound(data=WAV, format="wav")}, 400, "messages[0].content[0].input_audio.data", MODALITY),
    ({"messages": sound(data="%%%", format="wav")}, 400, "messages[0].content[0].input_audio.data", VALUE),
    ({"messages": sound(data="", format="wav")}, 400, "messages[0].content[0].input_audio.data", VALUE),
    ({"messages": sound(data=WAV, format="exe")}, 400, "messages[0].content[0].input_audio.format", VALUE),
    ({"messages": sound(format="wav")}, 400, "messages[0].content[0].input_audio.data", MISSING),
    ({"messages": said({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}})}, 400, "messages[0].content[0].image_url.url", UNSUPPORTED),
    ({"messages": said({"type": "image_url", "image_url": {"url": "http://169.254.169.254/"}})}, 400, "messages[0].content[0].image_url.url", UNSUPPORTED),
    ({"messages": said({"type": "image_url", "image_url": {"url": "data:image/png;base64,###"}})}, 400, "messages[0].content[0].image_url.url", VALUE),
    ({"messages": HELLO * 5_000}, 400, "messages", VALUE),
    ({"temperature": 9}, 400, "temperature", VALUE),
    ({"temperature": -0.1}, 400, "temperature", VALUE),
    ({"temperature": "hot"}, 400, "temperature", TYPE),
    ({"top_p": 0}, 400, "top_p", VALUE),
    ({"top_p": 1.1}, 400, "top_p", VALUE),
    ({"top_k": -2}, 400, "top_k", VALUE),
    ({"min_p": 2}, 400, "min_p", VALUE),
    ({"frequency_penalty": 2.5}, 400, "frequency_penalty", VALUE),
    ({"presence_penalty": -2.5}, 400, "presence_penalty", VALUE),
    ({"repetition_penalty": 0}, 400, "repetition_penalty", VALUE),
    ({"n": 0}, 400, "n", VALUE),
    ({"n": 99}, 400, "n", VALUE),
    ({"n": -1}, 400, "n", VALUE),
    ({"n": 1.5}, 400, "n", TYPE),
    ({"n": 2**70}, 400, "n", VALUE),
    ({"n": True}, 400, "n", TYPE),
    ({"max_completion_tokens": 0}, 400, "max_completion_tokens", VALUE),
    ({"max_completion_tokens": -5}, 400, "max_completion_tokens", VALUE),
    ({"max_completion_tokens": 2**33}, 400, "max_completion_tokens", VALUE),
    ({"max_tokens": 0}, 400, "max_tokens", VALUE),
    ({"max_tokens": 3, "max_completion_tokens": 4}, 400, "max_tokens", VALUE),
    ({"max_completion_tokens": 3, "min_tokens": 4}, 400, "min_tokens", VALUE),
    ({"stop": ["a", "b", "c", "d", "e"]}, 400, "stop", VALUE),
    ({"stop": [""]}, 400, "stop", VALUE),
    ({"stop": "x" * 5_000}, 400, "stop", VALUE),
    ({"stop": {"a": 1}}, 400, "stop", TYPE),
    ({"seed": "x"}, 400, "seed", TYPE),
    ({"seed": 1.5}, 400, "seed", TYPE),
    ({"stream": "yes"}, 400, "stream", TYPE),
    ({"stream_options": {"include_usage": True}}, 400, "stream_options", VALUE),
    ({"stream": True, "stream_options": {"x": 1}}, 400, "stream_options.x", UNKNOWN),
    ({"unheard_of": 1}, 400, "unheard_of", UNKNOWN),
    ({"": 1}, 400, None, UNKNOWN),
    ({"tools": [{"type": "function"}]}, 400, "tools", UNSERVED),
    ({"response_format": {"type": "json_object"}}, 400, "response_format", UNSERVED),
    ({"logprobs": True}, 400, "logprobs", UNSERVED),
    ({"logit_bias": {"1": 2}}, 400, "logit_bias", UNSERVED),
    ({"messages": user(tokens="many")}, 400, "messages", VALUE),
    ({"messages": user(each_ms=-1)}, 400, "messages", VALUE),
    ({"messages": user(nonsense=1)}, 400, "messages", VALUE),
    ({"messages": [{"role": "user", "content": "#synthetic {"}]}, 400, "messages", VALUE),
    ({"messages": [{"role": "user", "content": "#synthetic []"}]}, 400, "messages", VALUE),
    ({"messages": [{"role": "user", "content": "#synthetic " + "[" * 50_000}]}, 400, "messages", VALUE),
]  # fmt: skip

# The same for the other routes that take JSON.
OTHERS: list[tuple[str, dict[str, Any], int, str | None, str]] = [
    (CHAT, {"model": "film", "messages": HELLO}, 400, "modalities", MODALITY),
    (CHAT, {"model": "paint", "messages": HELLO}, 400, "modalities", MODALITY),
    (CHAT, {"model": "talk", "messages": HELLO, "modalities": ["audio"], "audio": {"format": "mp3"}}, 400, "audio.format", UNSUPPORTED),
    (CHAT, {"model": "talk", "messages": HELLO, "modalities": ["audio"], "audio": {"voice": "v" * 300}}, 400, "audio.voice", VALUE),
    (CHAT, {"messages": HELLO}, 400, "model", MISSING),
    (CHAT, {}, 400, "model", MISSING),
    (SPEECH, {"model": "talk"}, 400, "input", MISSING),
    (SPEECH, {"model": "talk", "input": ""}, 400, "input", VALUE),
    (SPEECH, {"model": "none", "input": "x"}, 404, "model", "model_not_found"),
    (SPEECH, {"model": "echo", "input": "x"}, 400, "modalities", MODALITY),
    (SPEECH, {"model": "talk", "input": "x", "speed": 0.1}, 400, "speed", VALUE),
    (SPEECH, {"model": "talk", "input": "x", "speed": 99}, 400, "speed", VALUE),
    (SPEECH, {"model": "talk", "input": "x", "response_format": "mp3"}, 400, "response_format", UNSUPPORTED),
    (SPEECH, {"model": "talk", "input": "x", "voice": ""}, 400, "voice", VALUE),
    (SPEECH, {"model": "talk", "input": 5}, 400, "input", TYPE),
    (IMAGES, {"model": "paint"}, 400, "prompt", MISSING),
    (IMAGES, {"model": "paint", "prompt": ""}, 400, "prompt", VALUE),
    (IMAGES, {"model": "none", "prompt": "x"}, 404, "model", "model_not_found"),
    (IMAGES, {"model": "echo", "prompt": "x"}, 400, "modalities", MODALITY),
    (IMAGES, {"model": "paint", "prompt": "x", "n": 0}, 400, "n", VALUE),
    (IMAGES, {"model": "paint", "prompt": "x", "n": 99}, 400, "n", VALUE),
    (IMAGES, {"model": "paint", "prompt": "x", "size": "0x0"}, 400, "size", VALUE),
    (IMAGES, {"model": "paint", "prompt": "x", "size": "0x64"}, 400, "size", VALUE),
    (IMAGES, {"model": "paint", "prompt": "x", "size": "1000000x1000000"}, 400, "size", VALUE),
    (IMAGES, {"model": "paint", "prompt": "x", "size": "4096x4096"}, 400, "size", VALUE),
    (IMAGES, {"model": "paint", "prompt": "x", "size": "9999999999x1"}, 400, "size", VALUE),
    (IMAGES, {"model": "paint", "prompt": "x", "size": "-64x64"}, 400, "size", VALUE),
    (IMAGES, {"model": "paint", "prompt": "x", "size": "big"}, 400, "size", VALUE),
    (IMAGES, {"model": "paint", "prompt": "x", "size": "64X64"}, 400, "size", VALUE),
    (IMAGES, {"model": "paint", "prompt": "x", "size": "64x64x64"}, 400, "size", VALUE),
    (IMAGES, {"model": "paint", "prompt": "x", "size": ""}, 400, "size", VALUE),
    (IMAGES, {"model": "paint", "prompt": "x", "size": "\u0666x\u0666"}, 400, "size", VALUE),
    (IMAGES, {"model": "paint", "prompt": "x", "size": 64}, 400, "size", TYPE),
    (IMAGES, {"model": "paint", "prompt": "x", "num_inference_steps": 0}, 400, "num_inference_steps", VALUE),
    (IMAGES, {"model": "paint", "prompt": "x", "num_inference_steps": 10**6}, 400, "num_inference_steps", VALUE),
    (IMAGES, {"model": "paint", "prompt": "x", "guidance_scale": -1}, 400, "guidance_scale", VALUE),
    (IMAGES, {"model": "paint", "prompt": "x", "guidance_scale": 1000}, 400, "guidance_scale", VALUE),
    (IMAGES, {"model": "paint", "prompt": "x", "response_format": "url"}, 400, "response_format", UNSUPPORTED),
    (IMAGES, {"model": "paint", "prompt": "x", "quality": "hd"}, 400, "quality", UNSERVED),
    (IMAGES, {"model": "paint", "prompt": "x", "stream": True}, 400, "stream", UNSERVED),
    (IMAGES, {"model": "paint", "prompt": "x", "shape": 1}, 400, "shape", UNKNOWN),
]  # fmt: skip

# Bodies that are no JSON object of ours at all.
BODIES: list[tuple[str, bytes, int, str]] = [
    ("nothing", b"", 400, "invalid_json"),
    ("space", b"   ", 400, "invalid_json"),
    ("half", b'{"model": "echo", "messages": [', 400, "invalid_json"),
    ("trailing", b'{"model": "echo", "messages": [{"role": "user", "content": "x"}]} x', 400, "invalid_json"),
    ("nan", b'{"model": "echo", "temperature": NaN, "messages": []}', 400, "invalid_json"),
    ("infinity", b'{"model": "echo", "temperature": 1e999}', 400, ""),
    ("latin-1", b'{"model": "\xe9cho", "messages": []}', 400, "invalid_json"),
    ("null", b"null", 400, TYPE),
    ("array", b"[]", 400, TYPE),
    ("text", b'"hello"', 400, TYPE),
    ("number", b"1" * 100_000, 400, ""),
    ("deep arrays", b"[" * 1_000_000, 400, ""),
    ("deep objects", b'{"a":' * 500_000, 400, ""),
    ("deep inside", b'{"model": "echo", "tools": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", 400, ""),
    ("deep message", b'{"model": "echo", "messages": ' + b"[" * 900 + b"]" * 900 + b"}", 400, TYPE),
    ("lone surrogate", b'{"model": "echo", "messages": [{"role": "user", "content": "\\ud800"}]}', 400, ""),
    ("lone surrogate in a name", b'{"model": "\\udfff", "messages": [{"role": "user", "content": "x"}]}', 400, ""),
    ("twice", b'{"model": "none", "model": "nope", "messages": [{"role": "user", "content": "x"}]}', 404, "model_not_found"),
    ("bom", b'\xef\xbb\xbf{"model": "echo"}', 400, ""),
    ("utf-16", '{"model": "echo"}'.encode("utf-16"), 400, ""),
]  # fmt: skip


def is_error(answer: httpx.Response, status: int, param: str | None, code: str) -> None:
    """Check an answer for OpenAI's error shape."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"].startswith("req_")
    error = answer.json()["error"]
    assert {"message", "type", "param", "code"} <= error.keys()
    assert error["message"]
    assert "Traceback" not in answer.text
    assert error["type"] == "invalid_request_error"
    assert error["request_id"] == answer.headers["x-request-id"]
    if code:
        assert (error["param"], error["code"]) == (param, code), error


@pytest.mark.parametrize(
    ("more", "status", "param", "code"), CHATS, ids=[json.dumps(case[0])[:60] for case in CHATS]
)
async def test_a_wrong_chat_is_refused_with_the_field_that_is_wrong(
    http: httpx.AsyncClient, more: dict[str, Any], status: int, param: str | None, code: str
) -> None:
    body = {"model": "echo", "messages": HELLO} | more
    is_error(await http.post(CHAT, json=body), status, param, code)


@pytest.mark.parametrize(
    ("path", "body", "status", "param", "code"),
    OTHERS,
    ids=[json.dumps(case[1])[:60] for case in OTHERS],
)
async def test_a_wrong_body_is_refused_with_the_field_that_is_wrong(
    http: httpx.AsyncClient,
    path: str,
    body: dict[str, Any],
    status: int,
    param: str | None,
    code: str,
) -> None:
    is_error(await http.post(path, json=body), status, param, code)


@pytest.mark.parametrize(
    ("content", "status", "code"), [case[1:] for case in BODIES], ids=[case[0] for case in BODIES]
)
@pytest.mark.parametrize("path", [CHAT, SPEECH, IMAGES])
async def test_a_body_that_is_no_json_of_ours_is_refused(
    http: httpx.AsyncClient, path: str, content: bytes, status: int, code: str
) -> None:
    headers = {"content-type": "application/json"}
    answer = await http.post(path, content=content, headers=headers)
    if path == CHAT:
        is_error(answer, status, answer.json()["error"]["param"], code)
    else:
        assert answer.status_code in {400, 404}, answer.text
        assert answer.json()["error"]["message"]


FORM = "multipart/form-data; boundary=b"
FIELD = b'--b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n'
FILE = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n%b\r\n'
END = b"--b--\r\n"

FORMS: list[tuple[str, str, bytes, int, str | None, str]] = [
    ("json", "application/json", b"{}", 400, "Content-Type", VALUE),
    ("no boundary", "multipart/form-data", b"x", 400, None, VALUE),
    ("no parts", FORM, END, 400, "model", MISSING),
    ("no end", FORM, FIELD % (b"model", b"listen"), 400, None, ""),
    ("garbage", FORM, b"\0\xff" * 5_000, 400, None, ""),
    ("no model", FORM, FILE % b"x" + END, 400, "model", MISSING),
    ("no file", FORM, FIELD % (b"model", b"listen") + END, 400, "file", MISSING),
    ("an empty file", FORM, FIELD % (b"model", b"listen") + FILE % b"" + END, 400, "file", VALUE),
    ("a field as file", FORM, FIELD % (b"model", b"listen") + FIELD % (b"file", b"x") + END, 400, None, ""),
    ("two files", FORM, FIELD % (b"model", b"listen") + FILE % b"x" + FILE % b"y" + END, 400, None, ""),
    ("no such model", FORM, FIELD % (b"model", b"none") + FILE % b"x" + END, 404, "model", "model_not_found"),
    ("no audio model", FORM, FIELD % (b"model", b"echo") + FILE % b"x" + END, 400, "file", MODALITY),
    ("hot", FORM, FIELD % (b"model", b"listen") + FIELD % (b"temperature", b"9") + FILE % b"x" + END, 400, "temperature", VALUE),
    ("nan", FORM, FIELD % (b"model", b"listen") + FIELD % (b"temperature", b"nan") + FILE % b"x" + END, 400, "temperature", VALUE),
    ("srt", FORM, FIELD % (b"model", b"listen") + FIELD % (b"response_format", b"srt") + FILE % b"x" + END, 400, "response_format", UNSUPPORTED),
    ("unknown", FORM, FIELD % (b"model", b"listen") + FIELD % (b"what", b"1") + FILE % b"x" + END, 400, "what", UNKNOWN),
    ("many fields", FORM, b"".join(FIELD % (b"f%d" % i, b"x") for i in range(2_000)) + END, 400, None, ""),
    ("a huge field", FORM, FIELD % (b"model", b"m" * 3_000_000) + FILE % b"x" + END, 400, None, ""),
    ("latin-1 field", FORM, FIELD % (b"model", b"\xe9\xff") + FILE % b"x" + END, 404, None, ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("content_type", "content", "status", "param", "code"),
    [case[1:] for case in FORMS],
    ids=[case[0] for case in FORMS],
)
async def test_a_wrong_form_is_refused_with_the_field_that_is_wrong(
    http: httpx.AsyncClient,
    content_type: str,
    content: bytes,
    status: int,
    param: str | None,
    code: str,
) -> None:
    headers = {"content-type": content_type}
    answer = await http.post(TRANSCRIPTIONS, content=content, headers=headers)
    is_error(answer, status, param, code)


@pytest.mark.parametrize("path", [CHAT, SPEECH, IMAGES, TRANSCRIPTIONS])
async def test_a_body_over_the_limit_is_413(http: httpx.AsyncClient, path: str) -> None:
    size = 33 * 1024 * 1024
    headers = {"content-type": FORM if path == TRANSCRIPTIONS else "application/json"}
    answer = await http.post(path, content=b" " * size, headers=headers)
    is_error(answer, 413, None, "body_too_large")


async def test_a_body_of_unknown_length_over_the_limit_is_413(http: httpx.AsyncClient) -> None:
    async def pieces() -> Any:
        for _ in range(40):
            yield b" " * 1024 * 1024

    headers = {"content-type": "application/json"}
    answer = await http.post(CHAT, content=pieces(), headers=headers)
    is_error(answer, 413, None, "body_too_large")


@pytest.mark.parametrize(
    ("headers", "status", "param", "code"),
    [
        ({"host": "evil.example"}, 403, None, "host_not_allowed"),
        ({"host": "127.0.0.1.evil.example:80"}, 403, None, "host_not_allowed"),
        ({"host": "[::"}, 403, None, "host_not_allowed"),
        ({"origin": "https://evil.example"}, 403, None, "host_not_allowed"),
        ({"origin": "null"}, 403, None, "host_not_allowed"),
        ({"content-encoding": "gzip"}, 400, "Content-Encoding", UNSUPPORTED),
        ({"x-request-timeout": "soon"}, 400, "X-Request-Timeout", VALUE),
        ({"x-request-timeout": "-1"}, 400, "X-Request-Timeout", VALUE),
        ({"x-request-timeout": "nan"}, 400, "X-Request-Timeout", VALUE),
        ({"x-request-timeout": "inf"}, 400, "X-Request-Timeout", VALUE),
        ({"x-request-timeout": "1e99"}, 400, "X-Request-Timeout", VALUE),
    ],
)
async def test_a_wrong_header_is_refused(
    http: httpx.AsyncClient, headers: dict[str, str], status: int, param: str | None, code: str
) -> None:
    answer = await http.post(CHAT, json={"model": "echo", "messages": HELLO}, headers=headers)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (status, param, code)


async def test_an_unknown_path_is_404_and_a_wrong_method_405(http: httpx.AsyncClient) -> None:
    for path in (
        "/",
        "/v1",
        "/v1/chat",
        "/v1/chat/completions/",
        "//",
        "/v1/models/",
        "/%00",
        "/é",
    ):
        is_error(await http.get(path), 404, None, "not_found")
    for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS"):
        answer = await http.request(method, CHAT)
        is_error(answer, 405, None, "method_not_allowed")
        assert answer.headers["allow"] == "POST"
    assert (await http.head("/v1/models")).status_code == 200


async def test_what_looks_like_text_but_is_not_is_echoed_whole(http: httpx.AsyncClient) -> None:
    """NUL and control characters are text; they come back as they went in."""
    text = "a\0b\x01\x1b[31m\x7f\u202e\ufeff\uffff end"
    body = {"model": "echo", "messages": [{"role": "user", "content": text}]}
    answer = await http.post(CHAT, json=body)
    assert answer.json()["choices"][0]["message"]["content"] == text


@pytest.mark.parametrize("stream", [False, True])
async def test_long_texts_go_through_whole(http: httpx.AsyncClient, stream: bool) -> None:
    """Above what may be inline, with few tokens and with many, and one token without any space."""
    for text in ("x" * 300_000, " ".join(["word"] * 60_000), "ü" * 400_000):
        body = {"model": "echo", "stream": stream, "messages": [{"role": "user", "content": text}]}
        answer = await http.post(CHAT, json=body)
        assert answer.status_code == 200, answer.text
        if not stream:
            heard = answer.json()["choices"][0]["message"]["content"]
        else:
            events = [line[6:] for line in answer.text.split("\n\n") if line.startswith("data: {")]
            deltas = [json.loads(event)["choices"][0]["delta"] for event in events]
            heard = "".join(delta.get("content") or "" for delta in deltas)
            assert answer.text.endswith("data: [DONE]\n\n")
        assert heard == text


async def test_text_over_the_limit_of_the_door_is_413(http: httpx.AsyncClient) -> None:
    text = "x" * (5 * 1024 * 1024)
    body = {"model": "echo", "messages": [{"role": "user", "content": text}]}
    is_error(await http.post(CHAT, json=body), 413, "messages", "body_too_large")


async def test_a_hundred_thousand_messages_are_refused_quickly(http: httpx.AsyncClient) -> None:
    body = {"model": "echo", "messages": HELLO * 100_000}
    is_error(await http.post(CHAT, json=body, timeout=10), 400, "messages", VALUE)


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\0" * 10_000,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(100),
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X: y\r\n" * 50_000 + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"y" * 300_000 + b"\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 500\r\n\r\n{",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: 100-continue\r\nContent-Length: 500\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n",
        b"GET http://127.0.0.1/v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 50,
    ],
    ids=range(18),
)  # fmt: skip
async def test_nonsense_on_the_http_port_never_is_a_5xx_and_harms_nobody(
    synthetic: E2eMesh, http: httpx.AsyncClient, nonsense: bytes
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", synthetic.http_port)
    writer.write(nonsense)
    try:
        async with asyncio.timeout(1.0):
            heard = await reader.read(65_536)
        if heard:
            assert heard.startswith((b"HTTP/1.1 2", b"HTTP/1.1 4", b"HTTP/1.1 1")), heard[:200]
    except (TimeoutError, ConnectionError):
        pass  # It waits for more, or was cut off: both are right answers to nonsense.
    finally:
        writer.close()
    answer = await http.post(CHAT, json={"model": "echo", "messages": user(tokens=2)})
    assert answer.json()["choices"][0]["message"]["content"] == words(2)


async def test_after_all_of_it_the_mesh_is_as_it_was(
    synthetic: E2eMesh, http: httpx.AsyncClient
) -> None:
    assert all(one["state"] == "ready" for one in await synthetic.status())
    for name, pid in synthetic.pids().items():
        broken = [line for line in synthetic.log(name) if line["level"] in {"ERROR", "CRITICAL"}]
        assert not broken, (name, pid, broken[:3])
    counted = (await http.get("/metrics")).text
    failures = [
        line
        for line in counted.splitlines()
        if line.startswith("stagemesh_gateway_http_requests_total") and 'status="5' in line
    ]
    allowed = ('route="/ready"', 'status="502"', 'status="504"')
    assert not [line for line in failures if not any(word in line for word in allowed)], failures
    await synthetic.settled()
