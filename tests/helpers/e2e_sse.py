"""A client that reads server-sent events byte by byte and believes nothing."""

import base64
import json
import time
from dataclasses import dataclass, field
from typing import Any

import httpx

__all__ = ["Heard", "hear"]


@dataclass
class Heard:
    """Everything that one stream said."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    texts: dict[int, list[str]] = field(default_factory=dict)
    sounds: dict[int, list[bytes]] = field(default_factory=dict)
    finishes: list[tuple[int, str]] = field(default_factory=list)
    usages: list[dict[str, Any]] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)
    dones: int = 0
    after_done: int = 0
    first_s: float = 0.0
    broken: str = ""
    """How the connection broke, where it did."""

    def text(self, choice: int = 0) -> str:
        """Give the whole text of a choice."""
        return "".join(self.texts.get(choice, ()))

    def sound(self, choice: int = 0) -> bytes:
        """Give all samples of a choice."""
        return b"".join(self.sounds.get(choice, ()))

    @property
    def error(self) -> dict[str, Any]:
        """The one error that must have come."""
        assert len(self.errors) == 1, self
        return self.errors[0]

    def take(self, data: str) -> None:
        """Take the data of one event."""
        self.after_done += bool(self.dones)
        if data == "[DONE]":
            self.dones += 1
            return
        event = json.loads(data)
        if "error" in event:
            self.errors.append(event["error"])
            return
        if event.get("usage"):
            self.usages.append(event["usage"])
        for choice in event["choices"]:
            content = choice["delta"].get("content")
            if content:
                self.texts.setdefault(choice["index"], []).append(content)
            sound = (choice["delta"].get("audio") or {}).get("data")
            if sound:
                self.sounds.setdefault(choice["index"], []).append(base64.b64decode(sound))
            if choice["finish_reason"]:
                self.finishes.append((choice["index"], choice["finish_reason"]))

    def complete(self, text: str, finish: str = "stop") -> None:
        """Check that it is one whole answer: this text, one finish, one `[DONE]`, last."""
        assert (self.status, self.errors, self.broken) == (200, [], "")
        assert self.text() == text
        assert self.finishes == [(0, finish)]
        assert (self.dones, self.after_done) == (1, 0)


async def hear(
    client: httpx.AsyncClient, body: dict[str, Any], *, heard: Heard | None = None, **more: Any
) -> Heard:
    """Stream one chat; `heard` may be looked at while it fills. A broken connection is noted."""
    heard = heard or Heard()
    begun_s = time.monotonic()
    try:
        async with client.stream(
            "POST", "/v1/chat/completions", json={"stream": True, **body}, **more
        ) as answer:
            heard.status = answer.status_code
            heard.headers = dict(answer.headers)
            if answer.status_code != 200:
                heard.errors.append(json.loads(await answer.aread())["error"])
                return heard
            async for line in answer.aiter_lines():
                if line:
                    assert line.startswith("data: "), line
                    heard.first_s = heard.first_s or time.monotonic() - begun_s
                    heard.take(line.removeprefix("data: "))
    except (httpx.RemoteProtocolError, httpx.ReadError, httpx.ConnectError) as error:
        heard.broken = repr(error)
    return heard
