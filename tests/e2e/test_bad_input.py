import asyncio
import json
import time
from typing import Any

import httpx
import pytest

from tests.helpers.e2e_mesh import E2eMesh
from tests.helpers.e2e_scripts import user, words
from tests.helpers.e2e_sse import Heard
from tests.helpers.e2e_wrong import (
    BODIES,
    CHAT,
    CHATS,
    FORM,
    FORMS,
    HELLO,
    IMAGES,
    NONSENSE,
    OTHERS,
    SPEECH,
    TRANSCRIPTIONS,
    UNSUPPORTED,
    VALUE,
    Form,
    Raw,
    Wrong,
)

JSON = {"content-type": "application/json"}


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


def shown(wrong: Wrong) -> str:
    return json.dumps(wrong.body)[:60]


@pytest.mark.invariant("ENTRY-INV-100")
@pytest.mark.parametrize("wrong", CHATS, ids=map(shown, CHATS))
async def test_a_wrong_chat_is_refused_with_the_field_that_is_wrong(
    http: httpx.AsyncClient, wrong: Wrong
) -> None:
    body = {"model": "echo", "messages": HELLO} | wrong.body
    is_error(await http.post(CHAT, json=body), wrong.status, wrong.param, wrong.code)


@pytest.mark.parametrize(("path", "wrong"), OTHERS, ids=[shown(wrong) for _, wrong in OTHERS])
async def test_a_wrong_body_is_refused_with_the_field_that_is_wrong(
    http: httpx.AsyncClient, path: str, wrong: Wrong
) -> None:
    answer = await http.post(path, json=wrong.body)
    is_error(answer, wrong.status, wrong.param, wrong.code)


@pytest.mark.parametrize("raw", BODIES, ids=[raw.name for raw in BODIES])
@pytest.mark.parametrize("path", [CHAT, SPEECH, IMAGES])
async def test_a_body_that_is_no_json_of_ours_is_refused(
    http: httpx.AsyncClient, path: str, raw: Raw
) -> None:
    answer = await http.post(path, content=raw.content, headers=JSON)
    if path == CHAT:
        is_error(answer, raw.status, answer.json()["error"]["param"], raw.code)
    else:  # Where the chat's fields are no fields, another mistake may be found first.
        is_error(answer, answer.status_code, None, "")
        assert answer.status_code in {400, 404}


@pytest.mark.parametrize("form", FORMS, ids=[form.name for form in FORMS])
async def test_a_wrong_form_is_refused_with_the_field_that_is_wrong(
    http: httpx.AsyncClient, form: Form
) -> None:
    headers = {"content-type": form.content_type}
    answer = await http.post(TRANSCRIPTIONS, content=form.content, headers=headers)
    is_error(answer, form.status, form.param, form.code)


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

    answer = await http.post(CHAT, content=pieces(), headers=JSON)
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
            streamed = Heard()
            for event in answer.text.removesuffix("\n\n").split("\n\n"):
                streamed.take(event.removeprefix("data: "))
            assert (streamed.dones, streamed.after_done) == (1, 0)
            heard = streamed.text()
        assert heard == text


async def test_text_over_the_limit_of_the_door_is_413(http: httpx.AsyncClient) -> None:
    text = "x" * (5 * 1024 * 1024)
    body = {"model": "echo", "messages": [{"role": "user", "content": text}]}
    is_error(await http.post(CHAT, json=body), 413, "messages", "body_too_large")


@pytest.mark.parametrize(
    "body",
    [
        {"messages": HELLO * 800_000},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": ""}] * 800_000}]},
        {"messages": HELLO, "tools": [[]] * 8_000_000},
    ],
    ids=["messages", "parts", "tools"],
)
async def test_a_body_of_a_million_little_things_does_not_hold_up_the_others(
    http: httpx.AsyncClient, body: dict[str, Any]
) -> None:
    """All of it is read on the one loop that everybody's streams are written from."""
    content = json.dumps({"model": "echo", **body}, separators=(",", ":")).encode()
    assert len(content) > 20_000_000
    begun_s = time.monotonic()
    refused = asyncio.create_task(http.post(CHAT, content=content, headers=JSON))
    waits_s = [0.0]
    while not refused.done():
        asked_s = time.monotonic()
        assert (await http.get("/health")).status_code == 200
        waits_s.append(time.monotonic() - asked_s)
    answer = await refused
    is_error(answer, 400, answer.json()["error"]["param"], answer.json()["error"]["code"])
    # It was 6.7 s for the messages, which is longer than a link may be silent.
    assert time.monotonic() - begun_s < 3
    assert max(waits_s) < 1.5


@pytest.mark.parametrize("nonsense", NONSENSE, ids=range(len(NONSENSE)))
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
