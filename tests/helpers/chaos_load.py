"""Clients of every kind for a mesh in trouble, and what became of each of their requests."""

import asyncio
import base64
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
import httpx

from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2, orchestrator_service_pb2_grpc
from stagemesh.api.types.v1 import media_pb2, outcome_pb2
from tests.helpers.e2e_mesh import E2eMesh
from tests.helpers.e2e_scripts import UNIT_SAMPLES, colour, colour_of_png, pcm, script, user, words
from tests.helpers.e2e_sse import Heard, hear

__all__ = ["COMPLETE", "GONE", "LEFT", "Ended", "Load", "load_on"]

COMPLETE: Final = "complete"
"""The whole answer, right to the sample."""
LEFT: Final = "left"
"""The client went away by itself."""
GONE: Final = "gone"
"""The connection broke, or there was none."""
LONGEST_S: Final = 60.0
"""Longer than any deadline: who waits so long waits for ever."""
PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Ended:
    """How one request ended: `COMPLETE`, `LEFT`, `GONE`, or the code of its one typed error."""

    how: str
    model: str
    door: str
    """The gateway or the orchestrator that it was given to."""
    begun_s: float
    ended_s: float
    detail: str = ""


@dataclass(slots=True)
class _Wish:
    """One request, as it is drawn."""

    model: str
    tokens: int
    each_ms: float
    seed: int
    leaves_s: float | None


Ask = Callable[[_Wish], Awaitable[tuple[str, str]]]
"""Asks, checks what comes, and gives how it ended, with what an error said."""


@dataclass(slots=True)
class Load:
    """What clients did so far. `wrong` names every answer that nothing excuses."""

    seed: int
    doors: dict[str, Ask]
    ended: list[Ended] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    begun: int = 0
    over: bool = False

    async def client(self, number: int) -> None:
        """Ask for one thing after the other, at any door, until it is over."""
        rng = random.Random(self.seed * 1_000 + number)
        names = sorted(self.doors)
        while not self.over:
            door = rng.choice(names)
            wish = _draw(rng, native=door.startswith("orchestrator"))
            self.begun += 1
            begun_s = time.monotonic()
            how, detail = await self._one(door, wish)
            self.ended.append(Ended(how, wish.model, door, begun_s, time.monotonic(), detail))
            if how != COMPLETE:
                await asyncio.sleep(PAUSE_S)

    async def _one(self, door: str, wish: _Wish) -> tuple[str, str]:
        patience_s = LONGEST_S if wish.leaves_s is None else wish.leaves_s
        try:
            async with asyncio.timeout(patience_s):
                return await self.doors[door](wish)
        except TimeoutError:
            if wish.leaves_s is None:
                self.wrong.append(f"{door}: nothing ended {wish} within {LONGEST_S} s")
            return LEFT, ""
        except AssertionError as error:
            self.wrong.append(f"{door}: {wish}: {error}")
            return COMPLETE, ""


@asynccontextmanager
async def load_on(mesh: E2eMesh, seed: int) -> AsyncIterator[Load]:
    """Make the doors of a mesh: each gateway by HTTP, each orchestrator by gRPC."""
    async with AsyncExitStack() as stack:
        doors: dict[str, Ask] = {}
        for one in mesh.processes():
            if one["role"] == "gateway":
                http = httpx.AsyncClient(base_url=f"http://{one['address']}", timeout=LONGEST_S)
                doors[one["replica_id"]] = _by_http(await stack.enter_async_context(http))
            elif one["role"] == "orchestrator":
                channel = grpc.aio.insecure_channel(one["address"])
                doors[one["replica_id"]] = _by_grpc(await stack.enter_async_context(channel))
        yield Load(seed, doors)


def _draw(rng: random.Random, *, native: bool) -> _Wish:
    models = ["echo", "echo", "talk", "relay3"] if native else ["echo", "talk", "relay3", "paint"]
    long = rng.random() < 0.2
    return _Wish(
        model=rng.choice(models),
        tokens=rng.randrange(200, 500) if long else rng.randrange(1, 100),
        each_ms=rng.choice([10, 15]) if long else rng.choice([0, 2, 5, 10]),
        seed=rng.randrange(1_000),
        leaves_s=rng.uniform(0, 0.5) if rng.random() < 0.08 else None,
    )


def _by_http(http: httpx.AsyncClient) -> Ask:
    async def ask(wish: _Wish) -> tuple[str, str]:
        if wish.model == "paint":
            return await _painted(http, wish)
        body: dict[str, Any] = {
            "model": wish.model,
            "messages": user(tokens=wish.tokens, each_ms=wish.each_ms),
            "seed": wish.seed,
        }
        if wish.model != "echo":
            body |= {"modalities": ["text", "audio"], "audio": {"voice": "any", "format": "pcm16"}}
        try:
            heard = await hear(http, body)
        except httpx.TransportError as error:
            return GONE, repr(error)
        return _judged(heard, wish)

    return ask


async def _painted(http: httpx.AsyncClient, wish: _Wish) -> tuple[str, str]:
    """Ask for a picture, at times so large that it travels by handle."""
    size = 200_000 if wish.tokens % 2 else 0
    prompt = script(
        encoder={"payload_bytes": size or 1_000}, painter={"payload_bytes": size, "first_ms": 20}
    )
    asked = {"model": "paint", "prompt": prompt, "seed": wish.seed}
    try:
        answer = await http.post("/v1/images/generations", json=asked)
    except httpx.TransportError as error:
        return GONE, repr(error)
    if answer.status_code != 200:
        told = answer.json()["error"]
        return told["code"], str(told)
    (image,) = answer.json()["data"]
    assert colour_of_png(base64.b64decode(image["b64_json"]))[1] == colour(wish.seed)
    return COMPLETE, ""


def _judged(heard: Heard, wish: _Wish) -> tuple[str, str]:
    """Check an answer: whole and right, or right as far as it goes, with one end."""
    text, sound = words(wish.tokens), b""
    if wish.model != "echo":
        sound = pcm(wish.seed, wish.tokens * UNIT_SAMPLES)
    assert text.startswith(heard.text()), f"wrong text: {heard.text()[-100:]!r}"
    assert sound.startswith(heard.sound()), f"wrong sound before {len(heard.sound())}"
    if heard.errors:
        assert (len(heard.errors), heard.dones, heard.finishes) == (1, 0, []), heard.errors
        return heard.error["code"], str(heard.error)
    if not heard.dones:
        assert heard.broken, f"it just stopped, with status {heard.status}"
        return GONE, heard.broken
    heard.complete(text)
    assert heard.sound() == sound, f"only {len(heard.sound())} of {len(sound)} bytes of sound"
    return COMPLETE, ""


def _by_grpc(channel: grpc.aio.Channel) -> Ask:
    stub = orchestrator_service_pb2_grpc.OrchestratorServiceStub(channel)

    async def ask(wish: _Wish) -> tuple[str, str]:
        request = orchestrator_service_pb2.GenerateRequest()
        request.request.model, request.request.seed = wish.model, wish.seed
        text = script(tokens=wish.tokens, each_ms=wish.each_ms)
        request.request.messages.add(role="user").parts.add(text=text)
        call = stub.Generate(request, timeout=LONGEST_S)
        outputs: list[orchestrator_service_pb2.GeneratedOutput] = []
        terminal: orchestrator_service_pb2.RequestTerminal | None = None
        try:
            async for response in call:
                assert terminal is None, "something came after the terminal"
                outputs += response.outputs
                terminal = response.terminal if response.HasField("terminal") else None
        except grpc.aio.AioRpcError as error:
            if terminal is None:
                assert error.code() is grpc.StatusCode.UNAVAILABLE, error
                return GONE, str(error.details())
        finally:
            call.cancel()
        assert terminal is not None, "it ended without a terminal"
        return _judged_outputs(outputs, terminal, wish)

    return ask


def _judged_outputs(
    outputs: Sequence[orchestrator_service_pb2.GeneratedOutput],
    terminal: orchestrator_service_pb2.RequestTerminal,
    wish: _Wish,
) -> tuple[str, str]:
    """Check the outputs of a call: every lane without a gap, and whole if it completed."""
    positions: dict[tuple[str, int], int] = {}
    text, sound = "", b""
    for output in outputs:
        lane = output.stage, output.modality
        assert output.pos == positions.get(lane, 0), f"{lane} came at {output.pos}"
        positions[lane] = output.pos + output.units
        text += output.text
        if output.modality == media_pb2.MODALITY_AUDIO:
            sound += output.body.inline
    whole = pcm(wish.seed, wish.tokens * UNIT_SAMPLES) if wish.model != "echo" else b""
    assert words(wish.tokens).startswith(text)
    assert whole.startswith(sound)
    if terminal.outcome != outcome_pb2.OUTCOME_COMPLETED:
        return terminal.error.reason, str(terminal.error)
    assert text == words(wish.tokens)
    assert sound == whole
    return COMPLETE, ""
