from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from stagemesh.cli import explain
from stagemesh.cli.explain import gather_stories, story_text, told
from stagemesh.client import Happening, RequestStory, StageTimes


def happening(kind: str, **more: Any) -> Happening:
    fields: dict[str, Any] = {
        "at_s": 1.0,
        "kind": kind,
        "stage": "thinker",
        "role": 0,
        "attempt": 2,
        "replica_id": "thinker-1",
        "incarnation": "ab",
        "state": "lost",
        "cause": "",
        "seconds": 0.25,
        "queue_s": 0.0,
        "transfer_s": 0.0,
        "compute_s": 0.0,
    }
    return Happening(**(fields | more))


def story(epoch: int = 1, owner: str = "orchestrator-0", **more: Any) -> RequestStory:
    fields: dict[str, Any] = {
        "request_id": "req_a",
        "model": "talk",
        "state": "DONE",
        "epoch": epoch,
        "orchestrator_id": owner,
        "age_s": 3.5,
        "outcome": "failed",
        "reason": "replica_lost",
        "message": "It was lost.",
        "stages": (
            StageTimes(
                stage="thinker", attempts=2, wait_s=0.5, queue_s=0.125, transfer_s=0.0625,
                compute_s=1.5, total_s=2.0,
            ),
        ),
        "happenings": (happening("submitted"),),
        "dropped": 0,
    }  # fmt: skip
    return RequestStory(**(fields | more))


def drawn(*stories: RequestStory) -> str:
    out = StringIO()
    Console(file=out, width=200).print(story_text(stories))
    return out.getvalue()


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (happening("submitted"), "attempt 2 given to thinker-1, after 0.250 s"),
        (
            happening("attempt_ended", role=3, cause="It was lost."),
            "attempt 2 of role 3 at thinker-1 lost, after 0.250 s (It was lost.)",
        ),
        (happening("redriven", cause="{x}"), "is driven again, in 0.250 s ({x})"),
        (happening("done", state="completed"), "over: completed"),
        (happening("99"), "99"),
    ],
)
def test_what_happened_is_told_in_words(one: Happening, text: str) -> None:
    assert told(one) == text


def test_a_story_says_how_it_ended_where_the_time_went_and_what_happened() -> None:
    text = drawn(story())
    head, *rest = [line.rstrip() for line in text.splitlines() if line.strip()]
    assert head == (
        "req_a (talk), epoch 1 at orchestrator-0: done: failed after 3.500 s, "
        "replica_lost: It was lost."
    )
    assert rest[0].split() == [
        "stage", "attempts", "wait", "queue", "transfer", "compute", "total",
    ]  # fmt: skip
    assert rest[1].split() == [
        "thinker", "2", "0.500", "s", "0.125", "s", "0.062", "s", "1.500", "s", "2.000", "s",
    ]  # fmt: skip
    assert rest[2].split() == ["after", "stage", "what"]
    assert rest[3].split()[:3] == ["1.000", "s", "thinker"]


def test_a_story_that_goes_on_has_no_end() -> None:
    text = drawn(story(state="RUNNING", outcome="", reason="", message=""))
    assert text.splitlines()[0].rstrip().endswith("orchestrator-0: running after 3.500 s")


def test_a_story_has_the_clients_name_for_it_where_there_is_one() -> None:
    assert drawn(story(label="my\n[b]")).startswith("req_a 'my\\n[b]' (talk), epoch 1")


def test_words_in_brackets_are_no_markup_and_what_is_not_kept_is_counted() -> None:
    text = drawn(story(happenings=(happening("pending", cause="[bold]x"),), dropped=7))
    assert "wants engine slots ([bold]x)" in text
    assert "7 more in the middle were not kept" in text


async def test_every_orchestrator_is_asked_and_the_last_owner_comes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[str, str]] = []

    async def answer(address: str, request_id: str) -> tuple[RequestStory | None, bool]:
        asked.append((address, request_id))
        return {
            "a": (story(1, "orchestrator-0"), True),
            "b": (None, True),
            "c": (story(2, "orchestrator-2"), True),
            "d": (None, False),
        }[address]

    monkeypatch.setattr(explain, "_asked", answer)
    processes = [
        {"replica_id": f"orchestrator-{at}", "admin_address": address}
        for at, address in enumerate("abcd")
    ]
    processes.append({"replica_id": "gateway-0"})
    stories, mute = await gather_stories(processes, "req_a")
    assert [one.orchestrator_id for one in stories] == ["orchestrator-2", "orchestrator-0"]
    assert mute == ["orchestrator-3"]
    assert sorted(asked) == [(address, "req_a") for address in "abcd"]
