"""Conversations over real processes: input piece by piece, and whatever dies meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from stagemesh.client import Conversation, ConversedOutput, converse
from stagemesh.errors import MeshError
from stagemesh.media import Message, Modality, Request, TextPart
from stagemesh.outcome import ErrorCode, Outcome
from tests.helpers.e2e_mesh import E2eMesh, running_mesh, until
from tests.helpers.e2e_scripts import (
    UNIT_SAMPLES,
    colour,
    colour_of_png,
    pcm,
    script,
    words,
)
from tests.helpers.e2e_small import CONVERSING, one_mesh

PIECES = 60
STEP_S = 0.03
FRAME = b"\0" * (2 * UNIT_SAMPLES)


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[E2eMesh]:
    """Two of each worker, one orchestrator."""
    folder = tmp_path_factory.mktemp("converse")
    environment = {"XDG_CACHE_HOME": str(folder / "cache")}
    file = one_mesh(folder, CONVERSING, replicas=2)
    with running_mesh(file, folder, environment=environment) as mesh:
        yield mesh


class Talk:
    """One conversation, and everything that came of it."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.outputs: list[ConversedOutput] = []
        self.error: MeshError | None = None
        self._told = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            async for output in self.conversation.outputs():
                self.outputs.append(output)
                self._told.set()
        except MeshError as error:
            self.error = error
        self._told.set()

    def text(self, stage: str = "listener") -> str:
        """All text of a stage so far."""
        return "".join(one.text for one in self.outputs if one.stage == stage)

    def sound(self) -> bytes:
        """All audio so far."""
        return b"".join(one.data for one in self.outputs if one.modality is Modality.AUDIO)

    async def heard(self, count: int, stage: str = "listener") -> None:
        """Wait until so many words of a stage came, or it is over."""
        async with asyncio.timeout(30):
            while len(self.text(stage).split()) < count and not self._reader.done():
                self._told.clear()
                await self._told.wait()

    async def end(self) -> Outcome:
        """Wait for the end, and give the outcome."""
        async with asyncio.timeout(60):
            await self._reader
        terminal = self.conversation.terminal
        assert terminal is not None
        return terminal.outcome


@asynccontextmanager
async def talking(
    mesh: E2eMesh, model: str = "listen", text: str = "", **settings: float
) -> AsyncIterator[Talk]:
    """Open a conversation, with a script for those stages that read the request."""
    messages = (Message(role="user", parts=(TextPart(text),)),) if text else ()
    request = Request(model=model, messages=messages, seed=7, seed_explicit=True)
    async with converse(mesh.grpc, request, **settings) as conversation:
        yield Talk(conversation)


async def say(talk: Talk, start: int, stop: int) -> None:
    """Append words, each when the one before was answered."""
    for at in range(start, stop):
        await talk.conversation.append_text(f" w{at}")
        await talk.heard(at + 1)


async def test_each_append_is_answered_before_the_next_is_made(mesh: E2eMesh) -> None:
    async with talking(mesh) as talk:
        await say(talk, 0, 5)
        await talk.conversation.end_segment()
        await say(talk, 5, 10)
        await talk.conversation.close_input()
        assert await talk.end() is Outcome.COMPLETED
    assert talk.text() == words(10)
    assert [output.pos for output in talk.outputs if output.units] == list(range(10))
    await mesh.settled()


async def test_audio_is_heard_as_it_comes(mesh: E2eMesh) -> None:
    async with talking(mesh) as talk:
        for at in range(5):
            await talk.conversation.append_audio(FRAME * 2)
            await talk.heard(2 * at + 2)
        await talk.conversation.close_input()
        assert await talk.end() is Outcome.COMPLETED
    assert talk.text() == words(10)


async def test_what_was_heard_is_spoken_while_the_client_goes_on(mesh: E2eMesh) -> None:
    async with talking(mesh, "repeat") as talk:
        await say(talk, 0, 10)
        await until(lambda: _now(len(talk.sound())), lambda size: size > 0, 10)
        await talk.conversation.close_input()
        assert await talk.end() is Outcome.COMPLETED
    assert talk.text() == words(10)
    assert talk.sound() == pcm(7, 10 * UNIT_SAMPLES)


async def _now(value: int) -> int:
    return value


@pytest.mark.parametrize(
    ("model", "victim"), [("listen", "listener"), ("repeat", "listener"), ("repeat", "talker")]
)
async def test_a_conversation_is_whole_though_a_worker_is_killed_in_the_middle(
    mesh: E2eMesh, model: str, victim: str
) -> None:
    async with talking(mesh, model) as talk:
        await say(talk, 0, PIECES // 2)
        names = [f"{victim}-0", f"{victim}-1"]
        counts = await mesh.inflight(*names)
        assert sorted(counts) == [0, 1]
        name = names[counts.index(1)]
        before = await mesh.one(name)
        mesh.kill(name)
        await say(talk, PIECES // 2, PIECES)
        await talk.conversation.close_input()
        assert await talk.end() is Outcome.COMPLETED, talk.error
    assert talk.text() == words(PIECES)
    if model == "repeat":
        assert talk.sound() == pcm(7, PIECES * UNIT_SAMPLES)
    await mesh.back(name, before)
    await mesh.settled(8)


async def turn(talk: Talk, number: int) -> None:
    """Say five words, which are one segment, and wait until they were answered."""
    for at in range(5 * number, 5 * number + 5):
        await talk.conversation.append_text(f" w{at}")
    await talk.conversation.end_segment()
    await talk.heard(5 * number + 5, "thinker")


async def test_each_segment_is_one_run_of_the_stages_that_read_it_so(mesh: E2eMesh) -> None:
    async with talking(mesh, "turns") as talk:
        for number in range(4):
            await turn(talk, number)
            assert sum(output.segment_end for output in talk.outputs) >= number
        await talk.conversation.close_input()
        assert await talk.end() is Outcome.COMPLETED, talk.error
    thought = [output for output in talk.outputs if output.stage == "thinker"]
    assert talk.text("thinker") == words(20)
    assert sum(output.segment_end for output in thought) == 4
    assert [output.end is not None for output in thought][-1]
    assert talk.sound() == pcm(7, 20 * UNIT_SAMPLES)
    await mesh.settled()


@pytest.mark.parametrize("victim", ["listener", "talker"])
async def test_turns_are_whole_though_workers_are_killed_between_and_within_them(
    mesh: E2eMesh, victim: str
) -> None:
    """Both replicas of a pool die, one after the other; whoever had the conversation is met."""
    async with talking(mesh, "turns") as talk:
        await turn(talk, 0)
        for number, name in enumerate((f"{victim}-0", f"{victim}-1"), start=1):
            before = await mesh.one(name)
            if number == 1:
                mesh.kill(name)
                await turn(talk, number)
            else:
                await talk.conversation.append_text(f" w{5 * number}")
                mesh.kill(name)
                for at in range(5 * number + 1, 5 * number + 5):
                    await talk.conversation.append_text(f" w{at}")
                await talk.conversation.end_segment()
                await talk.heard(5 * number + 5, "thinker")
            await mesh.back(name, before)
        await turn(talk, 3)
        await talk.conversation.close_input()
        assert await talk.end() is Outcome.COMPLETED, talk.error
    assert talk.text("thinker") == words(20)
    assert talk.sound() == pcm(7, 20 * UNIT_SAMPLES)
    await mesh.settled(8)


async def test_a_client_that_says_nothing_more_has_its_deadline(mesh: E2eMesh) -> None:
    async with talking(mesh, timeout_s=2.0) as talk:
        await say(talk, 0, 3)
        assert await talk.end() is Outcome.DEADLINE_EXCEEDED
        assert talk.error is not None
        assert talk.error.info.code is ErrorCode.DEADLINE
    assert talk.text() == words(3)
    await mesh.settled()


async def test_a_client_that_goes_away_takes_its_request_along(mesh: E2eMesh) -> None:
    async with talking(mesh) as talk:
        await say(talk, 0, 3)
        talk.conversation.cancel()
    await mesh.settled(2)


async def test_a_flood_of_input_is_held_back_and_memory_stays_flat(mesh: E2eMesh) -> None:
    """A stage that takes 2 ms for a piece hears 64 MiB; its client waits, and nobody swells."""
    size, count = 64 * 1024, 1024
    samples = size // 2
    text = script(each_ms=2, batch=samples // UNIT_SAMPLES + 1)
    before = mesh.rss_mib()
    given = 0

    async def flood(talk: Talk) -> None:
        nonlocal given
        for _ in range(count):
            await talk.conversation.append_audio(b"\0" * size)
            given += 1
        await talk.conversation.close_input()

    async with talking(mesh, text=text) as talk:
        flooding = asyncio.create_task(flood(talk))
        await talk.heard(10)
        assert given < count, "the client was never held back"
        await flooding
        assert await talk.end() is Outcome.COMPLETED, talk.error
    after = mesh.rss_mib()
    grown = {name: after[name] - before[name] for name in before}
    assert all(mib < 32 for mib in grown.values()), grown
    await mesh.settled()


async def test_nonsense_in_a_conversation_is_answered_with_the_field(mesh: E2eMesh) -> None:
    async with talking(mesh, "nothing") as talk:
        await talk.end()
        assert talk.error is not None
        assert talk.error.info.code is ErrorCode.NOT_FOUND
    async with talking(mesh) as talk:
        await talk.conversation.append_text("")
        await talk.end()
        assert talk.error is not None
        assert (talk.error.info.code, talk.error.info.param) == (
            ErrorCode.INVALID_ARGUMENT,
            "append",
        )
    await mesh.settled()


FRAMES = 60


def prompt_seed(text: str) -> int:
    """How a change of the prompt changes the seed of a synthetic video."""
    return sum(text.encode())


async def frames_come(talk: Talk, count: int) -> None:
    """Wait until so many frames came."""

    async def frames() -> int:
        return sum(output.units for output in talk.outputs)

    await until(frames, lambda found: found >= count, 20)


def check_film(talk: Talk) -> list[int]:
    """Check every frame against the prompts that applied to it; give where they did."""
    changed = [one for one in talk.conversation.prompts.values() if one.error is None]
    pictures: dict[int, bytes] = {}
    for output in talk.outputs:
        if output.data:
            pictures[output.pos] = pictures.get(output.pos, b"") + output.data
    assert sorted(pictures) == list(range(FRAMES))
    for at, data in pictures.items():
        seed = 7 + sum(prompt_seed(one.interaction_id) for one in changed if one.applied_at <= at)
        assert colour_of_png(data)[1] == colour(seed, at), f"frame {at}"
    return [one.applied_at for one in changed]


async def test_another_prompt_changes_the_frames_to_come(mesh: E2eMesh) -> None:
    text = script(projector={"tokens": FRAMES, "each_ms": 20})
    async with talking(mesh, "film", text) as talk:
        await talk.conversation.interact("early", "early")
        await frames_come(talk, 10)
        await talk.conversation.interact("brighter", "brighter")
        await frames_come(talk, 30)
        await talk.conversation.interact("darker", "darker")
        assert await talk.end() is Outcome.COMPLETED, talk.error
    places = check_film(talk)
    assert places == sorted(places)
    assert places[-1] >= 30
    early = talk.conversation.prompts["early"]
    assert early.error is None or early.error.code is ErrorCode.CONFLICT
    await mesh.settled()


async def test_a_film_goes_on_under_its_prompts_when_its_projector_is_killed(
    mesh: E2eMesh,
) -> None:
    text = script(projector={"tokens": FRAMES, "each_ms": 30})
    async with talking(mesh, "film", text) as talk:
        await frames_come(talk, 10)
        await talk.conversation.interact("brighter", "brighter")
        await frames_come(talk, 25)
        names = ["projector-0", "projector-1"]
        counts = await mesh.inflight(*names)
        name = names[counts.index(1)]
        before = await mesh.one(name)
        mesh.kill(name)
        assert await talk.end() is Outcome.COMPLETED, talk.error
    [place] = check_film(talk)
    assert place >= 10
    await mesh.back(name, before)
    await mesh.settled(8)
