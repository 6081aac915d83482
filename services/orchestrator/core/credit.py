"""Credit: who may send more, and who is sent what waited for it."""

from services.orchestrator.core.flow import Feed, Lane
from services.orchestrator.core.request import Attempt, OpenRequest
from services.orchestrator.core.state import State
from services.orchestrator.core.timers import Due
from stagemesh.link.core import NO_SOURCE, Grant, row_cost

__all__ = ["accept_inputs", "close_feeds", "grant_client", "hold_back", "pump_feed", "settle"]


def settle(state: State, lane: Lane) -> None:
    """Give the worker credit for what was settled of a lane that others than the client read."""
    units, size = lane.settle()
    if units or size:
        _took(state, lane, units, size)


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


def hold_back(state: State, request: OpenRequest) -> None:
    """Note that rows wait for the client; it has `slow_s` to take some."""
    if request.stuck_since_s is None:
        request.stuck_since_s = state.now_s
        if request.slow_timer is None:
            request.slow_timer = state.arm(state.settings.slow_s, Due.SLOW_CLIENT, request)


def grant_client(state: State, request: OpenRequest, grant: Grant) -> None:
    """Send the client what its new credit allows, and let the workers go on."""
    rows = request.sender.grant(grant.units, grant.bytes)
    if not rows:
        return
    state.orders.client_rows(request.client.link).extend(rows)
    for row in rows:
        lane = request.lanes[row.lane]
        lane.delivered += row.units
        units, size = row_cost(row)
        if lane.direct:
            _took(state, lane, units, size)
        else:
            lane.passed_units += units
            lane.passed_bytes += size
            settle(state, lane)
    request.stuck_since_s = state.now_s if request.held else None
    if not request.lanes_left:
        state.touch(request)


def _took(state: State, lane: Lane, units: int, size: int) -> None:
    attempt = lane.attempt
    if attempt is None or not attempt.running:
        return  # A key's credit ends with the key.
    totals = attempt.meter.took(units, size)
    if totals is not None:
        state.orders.grant(attempt.replica.link, Grant(attempt.slot, NO_SOURCE, *totals))
