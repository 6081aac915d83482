"""Requests that are wrong, each in one way, and how they are to be refused."""

import base64
from typing import Any, Final, NamedTuple

from tests.helpers.e2e_scripts import user

__all__ = [
    "BODIES", "CHAT", "CHATS", "FORM", "FORMS", "HELLO", "IMAGES", "NONSENSE", "OTHERS", "SPEECH",
    "TRANSCRIPTIONS", "UNSUPPORTED", "VALUE", "Form", "Raw", "Wrong",
]  # fmt: skip

FORM = "multipart/form-data; boundary=b"
CHAT = "/v1/chat/completions"
SPEECH = "/v1/audio/speech"
IMAGES = "/v1/images/generations"
TRANSCRIPTIONS = "/v1/audio/transcriptions"

HELLO = [{"role": "user", "content": "hello"}]
WAV = base64.b64encode(b"RIFF\x24\x00\x00\x00WAVE" + bytes(32)).decode()


def _said(part: Any) -> Any:
    return [{"role": "user", "content": [part]}]


def _sound(**data: Any) -> Any:
    return _said({"type": "input_audio", "input_audio": data})


VALUE, TYPE, UNKNOWN = "invalid_value", "invalid_type", "unknown_parameter"
MODALITY, UNSERVED, MISSING = (
    "unsupported_modality", "unsupported_parameter", "missing_required_parameter",
)  # fmt: skip
UNSUPPORTED = "unsupported_value"


class Wrong(NamedTuple):
    """What is wrong in a body, and the answer: `param`, `code` and status."""

    body: dict[str, Any]
    param: str | None
    code: str = VALUE
    status: int = 400


class Raw(NamedTuple):
    """A body that is no JSON of ours; without a code any will do."""

    name: str
    content: bytes
    code: str = ""
    status: int = 400


class Form(NamedTuple):
    """A form that is wrong; without a code any will do."""

    name: str
    content: bytes
    param: str | None
    code: str = VALUE
    status: int = 400
    content_type: str = FORM


# What a chat's body says beside `model: echo` and one message.
CHATS: Final = [
    Wrong({"model": "gpt-4o"}, "model", "model_not_found", status=404),
    Wrong({"model": ""}, "model"),
    Wrong({"model": "echo\0"}, "model", "model_not_found", status=404),
    Wrong({"model": "x" * 100_000}, "model", "model_not_found", status=404),
    Wrong({"model": 7}, "model", TYPE),
    Wrong({"model": None}, "model", TYPE),
    Wrong({"modalities": ["audio"]}, "modalities", MODALITY),
    Wrong({"modalities": ["text", "audio"]}, "modalities", MODALITY),
    Wrong({"modalities": ["smell"]}, "modalities[0]"),
    Wrong({"modalities": []}, "modalities"),
    Wrong({"modalities": "text"}, "modalities", TYPE),
    Wrong({"messages": []}, "messages"),
    Wrong({"messages": None}, "messages", TYPE),
    Wrong({"messages": "hello"}, "messages", TYPE),
    Wrong({"messages": [{}]}, "messages[0].role", MISSING),
    Wrong({"messages": [{"role": "user"}]}, "messages[0].content", MISSING),
    Wrong({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
    Wrong({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
    Wrong({"messages": [{"role": "user", "content": 3}]}, "messages[0].content", TYPE),
    Wrong(
        {"messages": [*HELLO, {"role": "user", "content": "x", "mood": 1}]},
        "messages[1].mood",
        UNKNOWN,
    ),
    Wrong({"messages": _said({"type": "smell"})}, "messages[0].content[0].type"),
    Wrong({"messages": _said({"text": "no type"})}, "messages[0].content[0].type", MISSING),
    Wrong(
        {"messages": _sound(data=WAV, format="wav")},
        "messages[0].content[0].input_audio.data",
        MODALITY,
    ),
    Wrong(
        {"messages": _sound(data="%%%", format="wav")}, "messages[0].content[0].input_audio.data"
    ),
    Wrong({"messages": _sound(data="", format="wav")}, "messages[0].content[0].input_audio.data"),
    Wrong(
        {"messages": _sound(data=WAV, format="exe")}, "messages[0].content[0].input_audio.format"
    ),
    Wrong({"messages": _sound(format="wav")}, "messages[0].content[0].input_audio.data", MISSING),
    Wrong(
        {"messages": _said({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}})},
        "messages[0].content[0].image_url.url",
        UNSUPPORTED,
    ),
    Wrong(
        {"messages": _said({"type": "image_url", "image_url": {"url": "http://169.254.169.254/"}})},
        "messages[0].content[0].image_url.url",
        UNSUPPORTED,
    ),
    Wrong(
        {
            "messages": _said(
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,###"}}
            )
        },
        "messages[0].content[0].image_url.url",
    ),
    Wrong({"messages": HELLO * 5_000}, "messages"),
    Wrong({"temperature": 9}, "temperature"),
    Wrong({"temperature": -0.1}, "temperature"),
    Wrong({"temperature": "hot"}, "temperature", TYPE),
    Wrong({"top_p": 0}, "top_p"),
    Wrong({"top_p": 1.1}, "top_p"),
    Wrong({"top_k": -2}, "top_k"),
    Wrong({"min_p": 2}, "min_p"),
    Wrong({"frequency_penalty": 2.5}, "frequency_penalty"),
    Wrong({"presence_penalty": -2.5}, "presence_penalty"),
    Wrong({"repetition_penalty": 0}, "repetition_penalty"),
    Wrong({"n": 0}, "n"),
    Wrong({"n": 99}, "n"),
    Wrong({"n": -1}, "n"),
    Wrong({"n": 1.5}, "n", TYPE),
    Wrong({"n": 2**70}, "n"),
    Wrong({"n": True}, "n", TYPE),
    Wrong({"max_completion_tokens": 0}, "max_completion_tokens"),
    Wrong({"max_completion_tokens": -5}, "max_completion_tokens"),
    Wrong({"max_completion_tokens": 2**33}, "max_completion_tokens"),
    Wrong({"max_tokens": 0}, "max_tokens"),
    Wrong({"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens"),
    Wrong({"max_completion_tokens": 3, "min_tokens": 4}, "min_tokens"),
    Wrong({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
    Wrong({"stop": [""]}, "stop"),
    Wrong({"stop": "x" * 5_000}, "stop"),
    Wrong({"stop": {"a": 1}}, "stop", TYPE),
    Wrong({"seed": "x"}, "seed", TYPE),
    Wrong({"seed": 1.5}, "seed", TYPE),
    Wrong({"stream": "yes"}, "stream", TYPE),
    Wrong({"stream_options": {"include_usage": True}}, "stream_options"),
    Wrong({"stream": True, "stream_options": {"x": 1}}, "stream_options.x", UNKNOWN),
    Wrong({"unheard_of": 1}, "unheard_of", UNKNOWN),
    Wrong({"": 1}, None, UNKNOWN),
    Wrong({"tools": [{"type": "function"}]}, "tools", UNSERVED),
    Wrong({"response_format": {"type": "json_object"}}, "response_format", UNSERVED),
    Wrong({"logprobs": True}, "logprobs", UNSERVED),
    Wrong({"logit_bias": {"1": 2}}, "logit_bias", UNSERVED),
    Wrong({"messages": user(tokens="many")}, "messages"),
    Wrong({"messages": user(each_ms=-1)}, "messages"),
    Wrong({"messages": user(nonsense=1)}, "messages"),
    Wrong({"messages": [{"role": "user", "content": "#synthetic {"}]}, "messages"),
    Wrong({"messages": [{"role": "user", "content": "#synthetic []"}]}, "messages"),
    Wrong({"messages": [{"role": "user", "content": "#synthetic " + "[" * 50_000}]}, "messages"),
]

# The same for the other routes that take JSON.
OTHERS: Final = [
    (CHAT, Wrong({"model": "film", "messages": HELLO}, "modalities", MODALITY)),
    (CHAT, Wrong({"model": "paint", "messages": HELLO}, "modalities", MODALITY)),
    (
        CHAT,
        Wrong(
            {
                "model": "talk",
                "messages": HELLO,
                "modalities": ["audio"],
                "audio": {"format": "mp3"},
            },
            "audio.format",
            UNSUPPORTED,
        ),
    ),
    (
        CHAT,
        Wrong(
            {
                "model": "talk",
                "messages": HELLO,
                "modalities": ["audio"],
                "audio": {"voice": "v" * 300},
            },
            "audio.voice",
        ),
    ),
    (CHAT, Wrong({"messages": HELLO}, "model", MISSING)),
    (CHAT, Wrong({}, "model", MISSING)),
    (SPEECH, Wrong({"model": "talk"}, "input", MISSING)),
    (SPEECH, Wrong({"model": "talk", "input": ""}, "input")),
    (SPEECH, Wrong({"model": "none", "input": "x"}, "model", "model_not_found", status=404)),
    (SPEECH, Wrong({"model": "echo", "input": "x"}, "modalities", MODALITY)),
    (SPEECH, Wrong({"model": "talk", "input": "x", "speed": 0.1}, "speed")),
    (SPEECH, Wrong({"model": "talk", "input": "x", "speed": 99}, "speed")),
    (
        SPEECH,
        Wrong(
            {"model": "talk", "input": "x", "response_format": "mp3"},
            "response_format",
            UNSUPPORTED,
        ),
    ),
    (SPEECH, Wrong({"model": "talk", "input": "x", "voice": ""}, "voice")),
    (SPEECH, Wrong({"model": "talk", "input": 5}, "input", TYPE)),
    (IMAGES, Wrong({"model": "paint"}, "prompt", MISSING)),
    (IMAGES, Wrong({"model": "paint", "prompt": ""}, "prompt")),
    (IMAGES, Wrong({"model": "none", "prompt": "x"}, "model", "model_not_found", status=404)),
    (IMAGES, Wrong({"model": "echo", "prompt": "x"}, "modalities", MODALITY)),
    (IMAGES, Wrong({"model": "paint", "prompt": "x", "n": 0}, "n")),
    (IMAGES, Wrong({"model": "paint", "prompt": "x", "n": 99}, "n")),
    (IMAGES, Wrong({"model": "paint", "prompt": "x", "size": "0x0"}, "size")),
    (IMAGES, Wrong({"model": "paint", "prompt": "x", "size": "0x64"}, "size")),
    (IMAGES, Wrong({"model": "paint", "prompt": "x", "size": "1000000x1000000"}, "size")),
    (IMAGES, Wrong({"model": "paint", "prompt": "x", "size": "4096x4096"}, "size")),
    (IMAGES, Wrong({"model": "paint", "prompt": "x", "size": "9999999999x1"}, "size")),
    (IMAGES, Wrong({"model": "paint", "prompt": "x", "size": "-64x64"}, "size")),
    (IMAGES, Wrong({"model": "paint", "prompt": "x", "size": "big"}, "size")),
    (IMAGES, Wrong({"model": "paint", "prompt": "x", "size": "64X64"}, "size")),
    (IMAGES, Wrong({"model": "paint", "prompt": "x", "size": "64x64x64"}, "size")),
    (IMAGES, Wrong({"model": "paint", "prompt": "x", "size": ""}, "size")),
    (IMAGES, Wrong({"model": "paint", "prompt": "x", "size": "\u0666x\u0666"}, "size")),
    (IMAGES, Wrong({"model": "paint", "prompt": "x", "size": 64}, "size", TYPE)),
    (
        IMAGES,
        Wrong({"model": "paint", "prompt": "x", "num_inference_steps": 0}, "num_inference_steps"),
    ),
    (
        IMAGES,
        Wrong(
            {"model": "paint", "prompt": "x", "num_inference_steps": 10**6}, "num_inference_steps"
        ),
    ),
    (IMAGES, Wrong({"model": "paint", "prompt": "x", "guidance_scale": -1}, "guidance_scale")),
    (IMAGES, Wrong({"model": "paint", "prompt": "x", "guidance_scale": 1000}, "guidance_scale")),
    (
        IMAGES,
        Wrong(
            {"model": "paint", "prompt": "x", "response_format": "url"},
            "response_format",
            UNSUPPORTED,
        ),
    ),
    (IMAGES, Wrong({"model": "paint", "prompt": "x", "quality": "hd"}, "quality", UNSERVED)),
    (IMAGES, Wrong({"model": "paint", "prompt": "x", "stream": True}, "stream", UNSERVED)),
    (IMAGES, Wrong({"model": "paint", "prompt": "x", "shape": 1}, "shape", UNKNOWN)),
]

# Bodies that are no JSON object of ours at all.
BODIES: Final = [
    Raw("nothing", b"", "invalid_json"),
    Raw("space", b"   ", "invalid_json"),
    Raw("half", b'{"model": "echo", "messages": [', "invalid_json"),
    Raw(
        "trailing",
        b'{"model": "echo", "messages": [{"role": "user", "content": "x"}]} x',
        "invalid_json",
    ),
    Raw("nan", b'{"model": "echo", "temperature": NaN, "messages": []}', "invalid_json"),
    Raw("infinity", b'{"model": "echo", "temperature": 1e999}', ""),
    Raw("latin-1", b'{"model": "\xe9cho", "messages": []}', "invalid_json"),
    Raw("null", b"null", TYPE),
    Raw("array", b"[]", TYPE),
    Raw("text", b'"hello"', TYPE),
    Raw("number", b"1" * 100_000, ""),
    Raw("deep arrays", b"[" * 1_000_000, ""),
    Raw("deep objects", b'{"a":' * 500_000, ""),
    Raw("deep inside", b'{"model": "echo", "tools": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", ""),
    Raw("deep message", b'{"model": "echo", "messages": ' + b"[" * 900 + b"]" * 900 + b"}", TYPE),
    Raw(
        "lone surrogate",
        b'{"model": "echo", "messages": [{"role": "user", "content": "\\ud800"}]}',
        "",
    ),
    Raw(
        "lone surrogate in a name",
        b'{"model": "\\udfff", "messages": [{"role": "user", "content": "x"}]}',
        "",
    ),
    Raw(
        "twice",
        b'{"model": "none", "model": "nope", "messages": [{"role": "user", "content": "x"}]}',
        "model_not_found",
        status=404,
    ),
    Raw("bom", b'\xef\xbb\xbf{"model": "echo"}', ""),
    Raw("utf-16", '{"model": "echo"}'.encode("utf-16"), ""),
]

FIELD = b'--b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n'
FILE = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n%b\r\n'
END = b"--b--\r\n"

FORMS: Final = [
    Form("json", b"{}", "Content-Type", VALUE, content_type="application/json"),
    Form("no boundary", b"x", None, VALUE, content_type="multipart/form-data"),
    Form("no parts", END, "model", MISSING),
    Form("no end", FIELD % (b"model", b"listen"), None, ""),
    Form("garbage", b"\0\xff" * 5_000, None, ""),
    Form("no model", FILE % b"x" + END, "model", MISSING),
    Form("no file", FIELD % (b"model", b"listen") + END, "file", MISSING),
    Form("an empty file", FIELD % (b"model", b"listen") + FILE % b"" + END, "file"),
    Form(
        "a field as file", FIELD % (b"model", b"listen") + FIELD % (b"file", b"x") + END, None, ""
    ),
    Form("two files", FIELD % (b"model", b"listen") + FILE % b"x" + FILE % b"y" + END, None, ""),
    Form(
        "no such model",
        FIELD % (b"model", b"none") + FILE % b"x" + END,
        "model",
        "model_not_found",
        status=404,
    ),
    Form("no audio model", FIELD % (b"model", b"echo") + FILE % b"x" + END, "file", MODALITY),
    Form(
        "hot",
        FIELD % (b"model", b"listen") + FIELD % (b"temperature", b"9") + FILE % b"x" + END,
        "temperature",
    ),
    Form(
        "nan",
        FIELD % (b"model", b"listen") + FIELD % (b"temperature", b"nan") + FILE % b"x" + END,
        "temperature",
    ),
    Form(
        "srt",
        FIELD % (b"model", b"listen") + FIELD % (b"response_format", b"srt") + FILE % b"x" + END,
        "response_format",
        UNSUPPORTED,
    ),
    Form(
        "unknown",
        FIELD % (b"model", b"listen") + FIELD % (b"what", b"1") + FILE % b"x" + END,
        "what",
        UNKNOWN,
    ),
    Form("many fields", b"".join(FIELD % (b"f%d" % i, b"x") for i in range(2_000)) + END, None, ""),
    Form("a huge field", FIELD % (b"model", b"m" * 3_000_000) + FILE % b"x" + END, None, ""),
    Form(
        "latin-1 field", FIELD % (b"model", b"\xe9\xff") + FILE % b"x" + END, None, "", status=404
    ),
]

_POST: Final = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
_GET: Final = b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n"

NONSENSE: Final = [
    b"\0" * 10_000,
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(100),
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X: y\r\n" * 50_000 + b"\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"y" * 300_000 + b"\r\n\r\n",
    _POST + b"Content-Length: -5\r\n\r\n",
    _POST + b"Content-Length: 99999999999999999999\r\n\r\n",
    _POST + b"Transfer-Encoding: chunked\r\n\r\nzzz\r\n",
    _POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    _POST + b"Content-Length: 500\r\n\r\n{",
    _POST + b"Expect: 100-continue\r\nContent-Length: 500\r\n\r\n",
    _GET + b"Host: evil.example\r\n\r\n",
    _GET + b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\r\n",
    b"GET http://127.0.0.1/v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 50,
]
"""Bytes that no HTTP client should send."""
