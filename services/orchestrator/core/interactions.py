"""Other prompts for what is being made: each is answered once, and an error stays with it.

Where a prompt applies is journaled with the stage that took it, so that another attempt takes it at
the same position. One whose position nobody told yet may have changed outputs that nobody saw: a
stage with such a prompt can only begin again.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from services.orchestrator.core.effects import (
    AnswerInteraction,
    AnswerUnknown,
    AppliedPrompt,
    SendPrompt,
)
from services.orchestrator.core.moves import RequestState
from stagemesh.errors import MeshError, invalid
from stagemesh.outcome import ErrorInfo, error_for

if TYPE_CHECKING:
    from services.orchestrator.core.events import InteractAsked, Interacted
    from services.orchestrator.core.replicas import Replica
    from services.orchestrator.core.request import Attempt, Client, Group, OpenRequest
    from services.orchestrator.core.state import State

__all__ = ["Prompt", "applied", "ask", "close", "give_again", "pending", "take_answer"]

PROMPTS_MAX: Final = 256
"""Of one request."""

ID_CHARS_MAX: Final = 256
TEXT_CHARS_MAX: Final = 16 * 1024


@dataclass(slots=True, eq=False)
class Prompt:
    """One change of the prompt at one group; `applied_at` is None until a worker told it."""

    interaction_id: str
    text: str
    applied_at: int | None = None


def ask(state: "State", client: "Client", event: "InteractAsked") -> None:
    """Give a prompt to the one stage that runs and takes it."""
    request = client.requests.get(event.slot)
    if request is None:
        if client.strangers.is_new(event.slot):
            state.orders.to_client(AnswerUnknown(link=client.link, slot=event.slot))
        return
    try:
        group = _taker(request, event)
    except MeshError as error:
        _answer(state, request, event.interaction_id, error=error.info)
        return
    prompt = Prompt(event.interaction_id, event.text)
    request.prompts_seen.add(event.interaction_id)
    group.prompts.append(prompt)
    for attempt in group.attempts:
        _send(state, attempt, prompt)


def take_answer(state: "State", replica: "Replica", event: "Interacted") -> None:
    """Note where a prompt applies, and tell the client; a refused one is as if never asked."""
    attempt = replica.attempts.get(event.slot)
    if attempt is None or not attempt.running:
        return
    group = attempt.group
    for prompt in group.prompts:
        if prompt.interaction_id == event.interaction_id and prompt.applied_at is None:
            _settle(state, group, prompt, event.applied_at, event.error)
            return


def pending(group: "Group") -> bool:
    """Whether a group was given a prompt of which nobody told yet where it applies."""
    return any(prompt.applied_at is None for prompt in group.prompts)


def applied(group: "Group") -> tuple[AppliedPrompt, ...]:
    """Give the prompts that another attempt has to take, in the order of their positions."""
    return tuple(
        AppliedPrompt(
            interaction_id=prompt.interaction_id, text=prompt.text, applied_at=prompt.applied_at
        )
        for prompt in group.prompts
        if prompt.applied_at is not None
    )


def give_again(state: "State", group: "Group") -> None:
    """Give those prompts again that the last attempt did not answer."""
    for prompt in group.prompts:
        if prompt.applied_at is None:
            for attempt in group.attempts:
                _send(state, attempt, prompt)


def close(state: "State", group: "Group") -> None:
    """Answer what a group that is over has not answered: it was too late."""
    prompts, group.prompts = group.prompts, []
    for prompt in prompts:
        if prompt.applied_at is None:
            error = error_for("conflict", "The stage was done before.", stage=group.stage.name)
            _answer(state, group.request, prompt.interaction_id, error=error)


def _taker(request: "OpenRequest", event: "InteractAsked") -> "Group":
    """Find the stage that takes a prompt.

    Raises:
        MeshError: If the prompt is no good, or nothing that runs takes one.
    """
    _check(request, event)
    takers = [
        group
        for group in request.groups
        if group.card is not None and group.card.interactions and group.running
    ]
    if request.state is not RequestState.RUNNING or not takers:
        raise MeshError(error_for("conflict", "Nothing that runs now takes another prompt."))
    if len(takers) > 1 or len(takers[0].attempts) > 1:
        raise invalid("Several runs take another prompt; only one may.", param="n")
    return takers[0]


def _check(request: "OpenRequest", event: "InteractAsked") -> None:
    if not 0 < len(event.interaction_id) <= ID_CHARS_MAX:
        what = f"Must have at least 1 and at most {ID_CHARS_MAX} characters."
        raise invalid(what, param="interact.interaction_id")
    if not 0 < len(event.text) <= TEXT_CHARS_MAX:
        what = f"Must have at least 1 and at most {TEXT_CHARS_MAX} characters."
        raise invalid(what, param="interact.text")
    if event.interaction_id in request.prompts_seen:
        raise MeshError(
            error_for("conflict", "This id was used before.", param="interact.interaction_id")
        )
    if len(request.prompts_seen) >= PROMPTS_MAX:
        raise MeshError(
            error_for("queue_full", f"A request has at most {PROMPTS_MAX} changes of its prompt.")
        )


def _send(state: "State", attempt: "Attempt", prompt: Prompt) -> None:
    if attempt.running:
        state.orders.to_worker(
            SendPrompt(
                link=attempt.replica.link,
                slot=attempt.slot,
                interaction_id=prompt.interaction_id,
                text=prompt.text,
            )
        )


def _settle(
    state: "State", group: "Group", prompt: Prompt, applied_at: int, error: ErrorInfo | None
) -> None:
    if error is None:
        prompt.applied_at = applied_at
    else:
        group.prompts.remove(prompt)
    _answer(
        state,
        group.request,
        prompt.interaction_id,
        stage=group.stage.index,
        applied_at=applied_at,
        error=error,
    )


def _answer(
    state: "State",
    request: "OpenRequest",
    interaction_id: str,
    *,
    stage: int = 0,
    applied_at: int = 0,
    error: ErrorInfo | None = None,
) -> None:
    if request.client.requests.get(request.slot) is not request:
        return  # It has left its client, which hears nothing more of it.
    state.orders.to_client(
        AnswerInteraction(
            link=request.client.link,
            slot=request.slot,
            interaction_id=interaction_id,
            stage=stage,
            applied_at=applied_at,
            error=error,
        )
    )
