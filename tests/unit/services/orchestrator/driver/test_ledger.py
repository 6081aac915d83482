"""What operators hear: one log line for each end, and counts that add up."""

import logging

import pytest

from services.orchestrator.core.effects import DropRequest, Effect, EndRequest, HandBackRequest
from services.orchestrator.core.events import ClientLost, Opened, RowsArrived, Tick
from services.orchestrator.driver import Ledger
from stagemesh.link.core import Row
from stagemesh.media import Message, Modality, Request, TextPart, lane_of
from stagemesh.outcome import COMPLETED, Outcome, Terminal, Timings, error_for
from stagemesh.telemetry import Metrics

FENCED = Terminal(outcome=Outcome.CANCELLED, error=error_for("link_lost", "It was fenced."))


def opened(slot: int, *, link: int = 1, model: str = "echo") -> Opened:
    return Opened(
        link=link,
        slot=slot,
        request_id=f"req_{link}_{slot}",
        epoch=1,
        deadline_left_s=0.0,
        request=Request(
            model=model, messages=(Message(role="user", parts=(TextPart("a secret"),)),)
        ),
        body=None,
    )


def ended(slot: int, terminal: Terminal, *, link: int = 1) -> EndRequest:
    return EndRequest(link=link, slot=slot, request_id=f"req_{link}_{slot}", terminal=terminal)


def test_each_end_is_told_to_who_wants_to_hear_of_it() -> None:
    heard: list[str] = []
    ledger = Ledger(Metrics(process=False), ["echo"], heard.append)
    ledger.stepped(opened(1), [], 0.0, 0.001)
    ledger.stepped(Tick(), [ended(1, COMPLETED), ended(7, COMPLETED)], 1.0, 0.001)
    assert heard == ["req_1_1", "req_1_7"]


class Book:
    """A ledger with metrics of its own."""

    def __init__(self) -> None:
        self.metrics = Metrics(process=False)
        self.ledger = Ledger(self.metrics, ["echo"])

    def lines(self, *starts: str) -> list[str]:
        """Give the lines of the exposition that start like this."""
        text = self.metrics.render()[0].decode()
        return [line for line in text.splitlines() if line.startswith(starts)]


@pytest.fixture
def book(caplog: pytest.LogCaptureFixture) -> Book:
    caplog.set_level(logging.INFO)
    return Book()


def test_an_end_is_one_line_with_names_and_times_and_no_content(
    book: Book, caplog: pytest.LogCaptureFixture
) -> None:
    terminal = Terminal(outcome=Outcome.COMPLETED, timings=Timings(queue_s=0.1, first_output_s=0.5))
    book.ledger.stepped(opened(1), [], 10.0, 0.001)
    book.ledger.stepped(RowsArrived(link=2, rows=[]), [ended(1, terminal)], 12.0, 0.001)

    [record] = caplog.records
    fields = record.__dict__
    assert record.message == "request_ended"
    assert (fields["request_id"], fields["model"]) == ("req_1_1", "echo")
    assert (fields["outcome"], fields["code"]) == ("COMPLETED", "")
    assert (fields["queue_s"], fields["first_output_s"], fields["total_s"]) == (0.1, 0.5, 2.0)
    assert "secret" not in str(fields)


def test_ends_are_counted_by_outcome_and_code(book: Book) -> None:
    lost = Terminal(outcome=Outcome.FAILED, error=error_for("replica_lost"))
    for slot in (1, 2, 3):
        book.ledger.stepped(opened(slot), [], 0.0, 0.001)
    book.ledger.stepped(
        RowsArrived(link=2, rows=[]), [ended(1, COMPLETED), ended(2, lost)], 1.0, 0.001
    )

    finished = book.lines("stagemesh_orchestrator_requests_finished_total")
    assert len(finished) == 2
    assert any('outcome="FAILED"' in line and 'code="REPLICA_LOST"' in line for line in finished)
    assert book.lines("stagemesh_orchestrator_requests_open") == [
        'stagemesh_orchestrator_requests_open{model="echo"} 1.0'
    ]


def test_a_request_refused_at_once_leaves_nothing_open(book: Book) -> None:
    refused = Terminal(outcome=Outcome.REJECTED, error=error_for("queue_full"))
    book.ledger.stepped(opened(1), [ended(1, refused)], 0.0, 0.001)

    assert book.lines("stagemesh_orchestrator_requests_open{") == [
        'stagemesh_orchestrator_requests_open{model="echo"} 0.0'
    ]


def test_a_request_whose_client_is_lost_ends_when_the_core_ends_it(
    book: Book, caplog: pytest.LogCaptureFixture
) -> None:
    over = Terminal(outcome=Outcome.CANCELLED, error=error_for("link_lost"))
    drop = DropRequest(link=1, slot=1, request_id="req_1_1", terminal=over)
    book.ledger.stepped(opened(1, link=1), [], 0.0, 0.001)
    book.ledger.stepped(opened(1, link=2), [], 0.0, 0.001)
    book.ledger.stepped(ClientLost(link=1), [], 3.0, 0.001)
    assert caplog.records == [], "its gateway may come back for it"
    book.ledger.stepped(Tick(), [drop], 5.0, 0.001)

    [record] = caplog.records
    assert (record.__dict__["request_id"], record.__dict__["outcome"]) == ("req_1_1", "CANCELLED")
    assert record.__dict__["total_s"] == 5.0
    assert book.lines("stagemesh_orchestrator_requests_open{") == [
        'stagemesh_orchestrator_requests_open{model="echo"} 1.0'
    ]


def test_a_request_that_goes_on_elsewhere_is_open_here_no_more(
    book: Book, caplog: pytest.LogCaptureFixture
) -> None:
    effects: list[Effect] = [
        HandBackRequest(link=1, slot=1, request_id="req_1_1"),
        DropRequest(link=1, slot=2, request_id="req_1_2", terminal=FENCED),
    ]
    for slot in (1, 2):
        book.ledger.stepped(opened(slot), [], 0.0, 0.001)
    book.ledger.stepped(RowsArrived(link=2, rows=[]), effects, 3.0, 0.001)

    told = [(one.__dict__["request_id"], one.__dict__["code"]) for one in caplog.records]
    assert told == [("req_1_1", "LINK_LOST"), ("req_1_2", "LINK_LOST")]
    assert book.lines("stagemesh_orchestrator_requests_open{") == [
        'stagemesh_orchestrator_requests_open{model="echo"} 0.0'
    ]


def test_a_slot_that_is_opened_twice_counts_once(book: Book) -> None:
    for _ in range(2):
        book.ledger.stepped(opened(1), [], 0.0, 0.001)
    book.ledger.stepped(Tick(), [ended(1, COMPLETED)], 1.0, 0.001)

    assert book.lines("stagemesh_orchestrator_requests_open{") == [
        'stagemesh_orchestrator_requests_open{model="echo"} 0.0'
    ]


def test_names_that_clients_make_up_share_one_label(book: Book) -> None:
    for slot in range(5):
        book.ledger.stepped(opened(slot, model=f"made-up-{slot}"), [], 0.0, 0.001)

    assert book.lines("stagemesh_orchestrator_requests_open{") == [
        'stagemesh_orchestrator_requests_open{model="unknown"} 5.0'
    ]


def test_outputs_and_the_rows_of_a_message_are_counted(book: Book) -> None:
    rows = [Row(1, lane_of(0, 0, Modality.TEXT), pos, 1, "x") for pos in range(3)]
    book.ledger.stepped(RowsArrived(link=2, rows=rows), [], 0.0, 0.0001)

    assert book.lines("stagemesh_orchestrator_outputs_total") == [
        "stagemesh_orchestrator_outputs_total 3.0"
    ]
    assert "stagemesh_orchestrator_message_rows_sum 3.0" in book.lines("stagemesh_orchestrator_me")
    assert "stagemesh_orchestrator_step_seconds_count 1.0" in book.lines(
        "stagemesh_orchestrator_st"
    )


def test_attempts_in_flight_are_asked_for_when_somebody_reads(book: Book) -> None:
    inflight = {"thinker": 2.0}
    book.ledger.watch_attempts({"thinker": lambda: inflight["thinker"]})
    inflight["thinker"] = 7.0

    assert book.lines("stagemesh_orchestrator_attempts_inflight") == [
        'stagemesh_orchestrator_attempts_inflight{pool="thinker"} 7.0'
    ]


def test_what_the_core_keeps_is_shown_as_it_stands_when_somebody_reads(book: Book) -> None:
    kept = {"requests": 2, "timers": 1}
    book.ledger.watch_kept(lambda: kept)
    kept["requests"] = 3
    assert book.lines("stagemesh_orchestrator_kept{") == [
        'stagemesh_orchestrator_kept{kind="requests"} 3.0',
        'stagemesh_orchestrator_kept{kind="timers"} 1.0',
    ]
