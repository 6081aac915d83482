"""Kills the worker of a real model under 16 greedy streams: `python -m tests.perf.kill_real`.

Every stream must complete, with no gap and no repeat in its token ids and what was delivered left
as it was. It tells how many equal an undisturbed run. Where one does not, it tells at which token
they part and how near the two choices were: near ties flip with the shape of a batch.
"""

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import grpc
import msgspec
import yaml

from services.stage_worker.engines.support.weights import locate
from stagemesh.api.orchestrator.v1 import gateway_link_service_pb2_grpc
from stagemesh.api.types.v1 import outcome_pb2, request_pb2
from tests.helpers.e2e_mesh import ROOT, E2eMesh, running_mesh
from tests.helpers.fake_gateway import FakeGateway
from tests.perf.load import draw_prompt
from tests.perf.results import Row, print_rows

MODEL: Final = "smollm2-135m-instruct"
MESHES: Final = {"ctranslate2": "demo-light.yaml", "vllm": "demo.yaml"}
PROMPTS: Final = 16
WINDOW_UNITS: Final = 1 << 20
"""More than all tokens: this client is never slow."""
READY_S: Final = 600.0
"""Two engines load at once, on as many cores as there are."""
ANSWERS_S: Final = 900.0
"""For one run of all prompts, on a machine that may be busy."""
LOOK_S: Final = 0.002


class Parting(msgspec.Struct, frozen=True):
    """Where a stream left the undisturbed one, and what each chose there."""

    prompt: int
    at: int
    gap: float
    """By how much more likely the undisturbed choice was: the difference of log-probabilities."""


class Killed(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one run with a kill."""

    answers: list[list[int]]
    delivered: list[list[int]]
    """What each client had at the kill."""
    bereft: int
    """How many streams the worker took along."""
    gap_s: float
    """From the kill until every stream had gone on; an engine that is full takes its time."""


class Answers:
    """Streams of one wave, straight from an orchestrator's link, with their token ids."""

    def __init__(self, gateway: FakeGateway, prompts: Sequence[str], tokens: int) -> None:
        self._gateway = gateway
        self.slots = [
            gateway.open(_request(prompt, tokens), deadline_left_s=ANSWERS_S) for prompt in prompts
        ]

    def ids(self) -> list[list[int]]:
        """Give the ids of each stream so far.

        Raises:
            AssertionError: If a lane has a gap or a repeat.
        """
        found: dict[int, list[int]] = {slot: [] for slot in self.slots}
        for row in self._gateway.rows:
            if row.slot in found and row.units:
                known = found[row.slot]
                assert row.pos == len(known), f"position {row.pos} came where {len(known)} was due"
                assert row.ids is not None
                assert len(row.ids) == row.units, "an id for each token"
                known += row.ids
        return [found[slot] for slot in self.slots]

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait for what came to be enough."""
        async with asyncio.timeout(ANSWERS_S):
            # Between looks the loop is the link's.
            while not reached():  # noqa: ASYNC110
                await asyncio.sleep(LOOK_S)

    async def all_ended(self) -> None:
        """Wait for the end of each stream.

        Raises:
            AssertionError: If one did not complete.
        """
        await self.until(lambda: all(map(self._gateway.terminal, self.slots)))
        for slot in self.slots:
            terminal = self._gateway.terminal(slot)
            assert terminal is not None
            assert terminal.outcome == outcome_pb2.OUTCOME_COMPLETED, terminal


def _request(prompt: str, tokens: int) -> request_pb2.Request:
    sampling = request_pb2.Sampling(tokens_max=tokens, tokens_min=tokens, temperature=0.0)
    request = request_pb2.Request(model="smollm2", params=request_pb2.Params(sampling=sampling))
    request.messages.add(role="user").parts.add(text=prompt)
    return request


@contextmanager
def two_workers(engine: str, folder: Path) -> Iterator[E2eMesh]:
    """Run the demo's chat model alone, with two replicas."""
    demo = yaml.safe_load((ROOT / "pipelines" / MESHES[engine]).read_text(encoding="utf-8"))
    pool = demo["pools"]["thinker"] | {"replicas": 2}
    whole = {"pools": {"thinker": pool}, "pipelines": {"smollm2": demo["pipelines"]["smollm2"]}}
    file = folder / "mesh.yaml"
    file.write_text(yaml.safe_dump(whole, sort_keys=False))
    with running_mesh(file, folder, ready_s=READY_S) as mesh:
        yield mesh


def _link_address(mesh: E2eMesh) -> str:
    found = json.loads((mesh.folder / "discovery.json").read_text())
    address: str = found["groups"]["orchestrators"][0]["address"]
    return address


async def run(
    mesh: E2eMesh, prompts: Sequence[str], tokens: int, rng: random.Random
) -> tuple[list[list[int]], Killed]:
    """Run the prompts undisturbed, and then with a kill at a random token."""
    async with grpc.aio.insecure_channel(_link_address(mesh)) as channel:
        stub = gateway_link_service_pb2_grpc.GatewayLinkServiceStub(channel)
        async with FakeGateway(stub.Attach, window_units=WINDOW_UNITS) as gateway:
            answers = Answers(gateway, prompts, tokens)
            await answers.all_ended()
            undisturbed = answers.ids()
            return undisturbed, await _with_a_kill(mesh, gateway, prompts, tokens, rng)


async def _with_a_kill(
    mesh: E2eMesh, gateway: FakeGateway, prompts: Sequence[str], tokens: int, rng: random.Random
) -> Killed:
    answers = Answers(gateway, prompts, tokens)
    stream, token = rng.randrange(len(prompts)), rng.randrange(1, tokens - 8)
    await answers.until(lambda: len(answers.ids()[stream]) >= token)
    victim = rng.choice(["thinker-0", "thinker-1"])
    (bereft,) = await mesh.inflight(victim)
    assert bereft, "the worker that is to be killed has nothing"
    mesh.kill(victim)
    killed_s = time.monotonic()
    delivered = answers.ids()
    gap_s = await _longest_gap_s(answers, delivered, killed_s)
    await answers.all_ended()
    return Killed(answers=answers.ids(), delivered=delivered, bereft=bereft, gap_s=gap_s)


async def _longest_gap_s(
    answers: Answers, delivered: Sequence[Sequence[int]], killed_s: float
) -> float:
    """Wait until every stream has gone on that had not ended; give how long the last took."""
    full = max(map(len, delivered))
    await answers.until(
        lambda: all(
            len(now) > len(then) or len(now) >= full
            for now, then in zip(answers.ids(), delivered, strict=True)
        )
    )
    return time.monotonic() - killed_s


def partings(
    prompts: Sequence[str], undisturbed: Sequence[list[int]], disturbed: Sequence[list[int]]
) -> list[Parting]:
    """Find where streams part, and score both choices on the same prefix with `transformers`."""
    import torch  # noqa: PLC0415 - only where something differs; it takes seconds to load
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415

    folder = locate(MODEL, "hf").path
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    found = []
    for number, (one, other) in enumerate(zip(undisturbed, disturbed, strict=True)):
        pairs = enumerate(zip(one, other, strict=False))
        at = next((i for i, (mine, theirs) in pairs if mine != theirs), None)
        if at is None:
            continue
        chat = [{"role": "user", "content": prompts[number]}]
        asked = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        prefix = tokenizer(asked, add_special_tokens=False).input_ids + one[:at]
        with torch.inference_mode():
            scores = model(torch.tensor([prefix])).logits[0, -1].log_softmax(-1)
        found.append(Parting(number, at, float(scores[one[at]] - scores[other[at]])))
    return found


def main() -> None:
    """Run it for one engine, check what must hold, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=sorted(MESHES), default="ctranslate2")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--seed", type=int, default=None, help="of the prompts and the kill")
    options = parser.parse_args()
    seed = random.randrange(1 << 30) if options.seed is None else options.seed
    rng = random.Random(seed)
    prompts = [draw_prompt(rng) for _ in range(PROMPTS)]
    print(f"seed {seed}", flush=True)  # noqa: T201 - so that it can be run again
    with (
        tempfile.TemporaryDirectory() as folder,
        two_workers(options.engine, Path(folder)) as mesh,
    ):
        undisturbed, killed = asyncio.run(run(mesh, prompts, options.tokens, rng))
    for answer, then in zip(killed.answers, killed.delivered, strict=True):
        assert answer[: len(then)] == then, "what was delivered is as it was"
    differ = sum(one != other for one, other in zip(undisturbed, killed.answers, strict=True))
    parted = partings(prompts, undisturbed, killed.answers) if differ else []
    name = f"{options.engine}, kill -9 under {PROMPTS} greedy streams"
    print_rows(
        [
            Row(name=f"{name}: completed", value=PROMPTS, unit="streams", budget="16", met=True),
            Row(name=f"{name}: lost their worker", value=killed.bereft, unit="streams"),
            Row(name=f"{name}: equal the undisturbed run", value=PROMPTS - differ, unit="streams"),
            Row(name=f"{name}: until all had gone on", value=killed.gap_s, unit="s"),
            *(
                Row(name=f"{name}: prompt {one.prompt} parts at token {one.at}", value=one.gap,
                    unit="nats")
                for one in parted
            ),
        ]
    )  # fmt: skip


if __name__ == "__main__":
    main()
