"""Credit: who may send more, and who is sent what waited for it."""

from typing import Final

from services.orchestrator.core.feeds import Feed
from services.orchestrator.core.flow import Lane
from services.orchestrator.core.intake import Intake
from services.orchestrator.core.moves import RequestState
from services.orchestrator.core.request import Attempt, OpenRequest
from services.orchestrator.core.state import State
from stagemesh.link.core import NO_SOURCE, Grant

__all__ = ["accept_inputs", "close_feeds", "pump_feed", "settle", "took"]

_RUNNING: Final = RequestState.RUNNING
_ORPHANED: Final = RequestState.ORPHANED


def settle(state: State, lane: Lane) -> None:
    """Give the worker credit for what was settled of a lane that others than the client read."""
    if lane.intake is not None:
        _settle_input(state, lane, lane.intake)
        return
    attempt = lane.attempt
    if lane.unfed and attempt is not None and attempt.group.request.state is _ORPHANED:
        return  # Who is to read it cannot begin, so no more is kept for that than its window.
    units, size = lane.settle()
    if units or size:
        took(state, lane, units, size)


def pump_feed(state: State, feed: Feed, request: OpenRequest) -> None:
    """Send an attempt what its credit allows of one input."""
    feed.pump(state.orders.worker_rows(feed.link))
    request.journal_bytes += feed.lane.trim()
    settle(state, feed.lane)


def accept_inputs(attempt: Attempt) -> None:
    """Note that a worker has taken an attempt: what it was sent need not be kept for another."""
    for feed in attempt.feeds.values():
        if not feed.accepted:
            feed.accepted = True
            attempt.group.request.journal_bytes += feed.lane.trim()


def close_feeds(state: State, attempt: Attempt) -> None:
    """Send an attempt no more input; nobody waits for it any longer."""
    request = attempt.group.request
    for feed in attempt.feeds.values():
        if feed in feed.lane.feeds:
            feed.lane.feeds.remove(feed)
            request.journal_bytes += feed.lane.trim()
            settle(state, feed.lane)
    attempt.feeds.clear()


def _settle_input(state: State, lane: Lane, intake: Intake) -> None:
    """Give a client credit for what everybody was sent that reads its input as a stream.

    Who reads it by segments does not hold it back: what waits for the end of a segment is kept, and
    bounded like all of the log.
    """
    if intake.held_back:
        return
    units, size = lane.settle()
    grant = intake.took(units, size) if units or size else None
    if grant is not None and intake.request.state is _RUNNING and not lane.closed:
        state.orders.client_grant(intake.request.client.link, grant)


def took(state: State, lane: Lane, units: int, size: int) -> None:
    """Give the worker of a lane credit for what was settled of it, if it goes on at all."""
    attempt = lane.attempt
    if attempt is None or not attempt.running or not attempt.group.request.worked_for:
        return  # A key's credit ends with the key.
    totals = attempt.meter.took(*lane.earned(units, size))
    if totals is not None:
        state.orders.grant(attempt.replica.link, Grant(attempt.slot, NO_SOURCE, *totals))
