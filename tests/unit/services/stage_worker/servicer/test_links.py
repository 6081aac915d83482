from services.stage_worker.core import effects as do
from services.stage_worker.core import events as seen
from services.stage_worker.servicer import Links
from stagemesh.api.types.v1 import link_pb2
from stagemesh.link.core import Grant, Row
from stagemesh.link.pump import Received
from stagemesh.outcome import Outcome, Terminal
from tests.helpers.link_ends import hello
from tests.helpers.recorded_link import RecordedLink

ROW = Row(3, 16, 0, 1, "x")
GRANT = Grant(3, 0, 9, 9)
ABORT = link_pb2.Frame(abort=link_pb2.Abort(slot=3))


class Setting:
    """Links with a driver that keeps what it is told."""

    def __init__(self) -> None:
        self.posted: list[seen.Event] = []
        self.reports = 0
        self.links = Links(self, self.count)
        self.link = RecordedLink(5, hello("o-0", link_pb2.SERVICE_KIND_ORCHESTRATOR))

    def post(self, event: seen.Event) -> None:
        """Keep an event."""
        self.posted.append(event)

    def count(self) -> None:
        """Count a report to health."""
        self.reports += 1


def test_rows_come_before_frames_and_frames_before_grants() -> None:
    it = Setting()
    it.links.attached(it.link)
    it.links.received(it.link, Received(rows=[ROW], frames=[ABORT], grants=[GRANT]))
    assert it.posted == [
        seen.LinkAttached(link=5, window_units=64, window_bytes=1 << 20),
        seen.InputsArrived(link=5, rows=[ROW]),
        seen.AbortAsked(link=5, slot=3, cause=""),
        seen.CreditGranted(link=5, grants=[GRANT]),
    ]


def test_who_is_no_orchestrator_is_turned_away_and_never_heard_of() -> None:
    it = Setting()
    gateway = RecordedLink(6, hello("g-0", link_pb2.SERVICE_KIND_GATEWAY))
    it.links.attached(gateway)
    assert len(gateway.closed) == 1
    it.links.lost(gateway, "closed")
    assert it.posted == []


def test_a_frame_that_breaks_the_protocol_ends_the_link() -> None:
    it = Setting()
    it.links.attached(it.link)
    bad = link_pb2.Frame(terminal=link_pb2.Terminal())
    it.links.received(it.link, Received(rows=[], frames=[bad, ABORT], grants=[GRANT]))
    assert len(it.link.closed) == 1
    assert len(it.posted) == 1


def test_effects_are_sent_on_their_link_and_lost_with_it() -> None:
    it = Setting()
    it.links.attached(it.link)
    it.links.perform(do.SendRows(link=5, rows=[ROW]))
    it.links.perform(do.SendGrants(link=5, grants=[GRANT]))
    it.links.perform(do.SendTerminal(link=5, slot=3, terminal=Terminal(outcome=Outcome.CANCELLED)))
    rows, grants, frame = it.link.sent
    assert (rows, grants) == ([ROW], [GRANT])
    assert isinstance(frame, link_pb2.Frame)
    assert frame.terminal.slot == 3
    it.links.lost(it.link, "broken")
    it.links.perform(do.SendRows(link=5, rows=[ROW]))
    assert len(it.link.sent) == 3
    assert it.posted[-1] == seen.LinkLost(link=5)


def test_a_new_state_is_told_to_health_and_to_every_link() -> None:
    it = Setting()
    it.links.attached(it.link)
    it.links.report()
    assert it.reports == 1
    assert it.link.sent == ["ping"]


def test_closing_closes_every_link() -> None:
    it = Setting()
    it.links.attached(it.link)
    it.links.close("draining")
    assert it.link.closed == ["draining"]
