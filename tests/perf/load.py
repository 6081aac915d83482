"""A load client that costs little: raw HTTP/1.1 over asyncio streams, one connection a request."""

import asyncio
import json
import random
import time
from typing import Any

import msgspec

__all__ = ["Load", "Result", "Wave", "draw_prompt", "run_one", "run_wave"]

CONNECT_S = 10.0
ANSWER_S = 300.0
_WORDS = ("sea", "moon", "bread", "river", "garden", "winter", "piano", "train", "honey", "hill")


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Where to send, what to ask for, and how much of it."""

    address: str
    model: str
    clients: int
    tokens: int
    extra: dict[str, Any] = {}


class Result(msgspec.Struct, frozen=True):
    """One request: seconds to its first token and to its end, and the tokens that it got."""

    first_s: float
    total_s: float
    tokens: int


class Wave(msgspec.Struct, frozen=True):
    """One wave of clients that start together."""

    results: list[Result]
    wall_s: float

    @property
    def tokens(self) -> int:
        """All tokens of the wave."""
        return sum(result.tokens for result in self.results)

    @property
    def tokens_per_s(self) -> float:
        """Throughput of the wave."""
        return self.tokens / self.wall_s

    def first_s(self, quantile: float) -> float:
        """Time to first token at a quantile."""
        ordered = sorted(result.first_s for result in self.results)
        return ordered[min(len(ordered) - 1, int(quantile * len(ordered)))]


def draw_prompt(rng: random.Random) -> str:
    """Draw a prompt that no cache has seen."""
    return f"Tell me about {' and '.join(rng.sample(_WORDS, 3))}, number {rng.randrange(1 << 30)}."


async def run_wave(load: Load, rng: random.Random) -> Wave:
    """Start all clients at once and wait for the last.

    Raises:
        RuntimeError: If a stream is cut short or answers with an error.
    """
    started_s = time.perf_counter()
    async with asyncio.timeout(ANSWER_S), asyncio.TaskGroup() as group:
        tasks = [group.create_task(run_one(load, draw_prompt(rng))) for _ in range(load.clients)]
    return Wave([task.result() for task in tasks], time.perf_counter() - started_s)


async def run_one(load: Load, prompt: str) -> Result:
    """Ask for one stream and read it to its end.

    Raises:
        OSError: If it is refused, or breaks.
        RuntimeError: If it is cut short or answers with an error.
    """
    host, port = load.address.rsplit(":", 1)
    body = json.dumps(
        {
            "model": load.model,
            "messages": [{"role": "user", "content": prompt}],
            "max_completion_tokens": load.tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
            **load.extra,
        }
    ).encode()
    async with asyncio.timeout(CONNECT_S):
        reader, writer = await asyncio.open_connection(host, int(port))
    started_s = time.perf_counter()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {load.address}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    received = bytearray()
    first_s = 0.0
    while piece := await reader.read(1 << 16):
        received += piece
        if not first_s and _has_content(received):
            first_s = time.perf_counter() - started_s
    total_s = time.perf_counter() - started_s
    writer.close()
    return Result(first_s, total_s, _tokens(bytes(received)))


def _has_content(received: bytearray) -> bool:
    return b'"content":"' in received.replace(b'"content":""', b"").replace(
        b'"content": "', b'"content":"'
    )


def _tokens(received: bytes) -> int:
    if b"data: [DONE]" not in received:
        raise RuntimeError(f"a stream was cut short: {received[-300:]!r}")
    usage = received.rindex(b'"completion_tokens":')
    digits = received[usage + 20 : usage + 40].lstrip()
    return int(digits[: next(i for i, c in enumerate(digits) if not 48 <= c <= 57)])
