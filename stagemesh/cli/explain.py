"""The story of one request: what happened to it, and where its time went."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from grpc import aio
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from stagemesh.cli.operate import admins_of
from stagemesh.client import Happening, RequestStory, explain_request

__all__ = ["gather_stories", "story_text", "told"]

_TIMEOUT_S: Final = 2.0

_WORDS: Final[Mapping[str, str]] = {
    "opened": "opened",
    "admitted": "may run, after {seconds}",
    "pending": "wants engine slots",
    "submitted": "attempt {attempt}{role} given to {replica_id}, after {seconds}",
    "streaming": "attempt {attempt}{role} gives its first output, after {seconds}",
    "first_output": "first output for the client, after {seconds}",
    "attempt_ended": "attempt {attempt}{role} at {replica_id} {state}, after {seconds}",
    "redriven": "is driven again, in {seconds}",
    "reset": "begins again, with all that reads it",
    "stopping": "is stopped: {state}",
    "orphaned": "has lost its gateway",
    "done": "over: {state}",
}


async def gather_stories(
    processes: Sequence[Mapping[str, Any]], request_id: str
) -> tuple[list[RequestStory], list[str]]:
    """Ask every orchestrator at once; give what they know, the last owner first, and who is mute.

    `processes` is the launcher's list.
    """
    asked = admins_of(processes)
    answers = await asyncio.gather(*(_asked(address, request_id) for address in asked.values()))
    mute = [name for name, (_, heard) in zip(asked, answers, strict=True) if not heard]
    stories = [story for story, _ in answers if story is not None]
    return sorted(stories, key=lambda story: -story.epoch), mute


def story_text(stories: Iterable[RequestStory]) -> RenderableType:
    """Draw the stories of a request, one for each orchestrator that had it."""
    parts: list[RenderableType] = []
    for story in stories:
        if parts:
            parts.append("")
        parts += [_head(story), "", _times(story), "", _timeline(story)]
    return Group(*parts)


def told(happening: Happening) -> str:
    """Say in words what happened."""
    words = _WORDS.get(happening.kind, happening.kind)
    role = f" of role {happening.role}" if happening.role else ""
    text = words.format(
        attempt=happening.attempt,
        role=role,
        replica_id=happening.replica_id,
        state=happening.state,
        seconds=_seconds(happening.seconds),
    )
    return f"{text} ({happening.cause})" if happening.cause else text


def _head(story: RequestStory) -> str:
    end = f": {story.outcome}" if story.outcome else ""
    label = f" {story.label!r}" if story.label else ""
    why = f", {story.reason}: {story.message}" if story.reason else ""
    return escape(
        f"{story.request_id}{label} ({story.model}), epoch {story.epoch} "
        f"at {story.orchestrator_id}: {story.state.lower()}{end} after {_seconds(story.age_s)}{why}"
    )


def _times(story: RequestStory) -> Table:
    columns = ("stage", "attempts", "wait", "queue", "transfer", "compute", "total")
    table = Table(*columns, box=None, pad_edge=False)
    for one in story.stages:
        spent = (one.wait_s, one.queue_s, one.transfer_s, one.compute_s, one.total_s)
        table.add_row(escape(one.stage), str(one.attempts), *map(_seconds, spent))
    return table


def _timeline(story: RequestStory) -> Table:
    table = Table("after", "stage", "what", box=None, pad_edge=False)
    for happening in story.happenings:
        table.add_row(_seconds(happening.at_s), escape(happening.stage), escape(told(happening)))
    if story.dropped:
        table.add_row("", "", f"{story.dropped} more in the middle were not kept")
    return table


def _seconds(value: float) -> str:
    return f"{value:.3f} s"


async def _asked(address: str, request_id: str) -> tuple[RequestStory | None, bool]:
    """Give a story, if the request is known there, and whether anybody answered."""
    try:
        return await explain_request(address, request_id, timeout_s=_TIMEOUT_S), True
    except aio.AioRpcError:
        return None, False
