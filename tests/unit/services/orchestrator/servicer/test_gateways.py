"""Gateways as client links of the core."""

from services.orchestrator.core.effects import (
    AnswerUnknown,
    DropRequest,
    Effect,
    EndRequest,
    HandBackRequest,
    PlaceNotice,
    RenewHandles,
    ResetLanes,
    SayGoAway,
    SendRows,
)
from services.orchestrator.core.events import (
    AbortAsked,
    ClientAttached,
    ClientLost,
    CreditGranted,
    Event,
    Opened,
    Tick,
)
from services.orchestrator.servicer.gateways import GatewayLinks
from stagemesh.api.types.v1 import link_pb2, outcome_pb2, request_pb2
from stagemesh.link.core import Grant, Placed, Row
from stagemesh.link.pump import Received
from stagemesh.media import Modality, lane_of
from stagemesh.outcome import COMPLETED
from tests.helpers.recorded_link import RecordedLink
from tests.helpers.scripted_core import DriverLog, ScriptedCore, drive

GATEWAY = link_pb2.Hello(
    service=link_pb2.SERVICE_KIND_GATEWAY,
    id="g-0",
    incarnation=1,
    limits=link_pb2.LinkLimits(window_units=64, window_bytes=1024),
)


class Door:
    """The link port with one gateway on it."""

    def __init__(self) -> None:
        self.core, self.log = ScriptedCore(), DriverLog()
        self.driver = drive(self.core, self.log)
        self.links = GatewayLinks(self.driver)
        self.link = RecordedLink(5, GATEWAY)
        self.links.attached(self.link)

    def receive(self, *frames: link_pb2.Frame, grants: tuple[Grant, ...] = ()) -> list[Event]:
        """Let the gateway send a message; give the events that it brought."""
        before = len(self.core.events)
        self.links.received(self.link, Received([], list(frames), list(grants)))
        return self.core.events[before:]

    def perform(self, *effects: Effect) -> None:
        """Let the core order something."""
        self.core.answer = lambda event: list(effects)
        self.driver.post(Tick())


def open_frame(part: request_pb2.Part) -> link_pb2.Frame:
    return link_pb2.Frame(
        open=link_pb2.Open(
            slot=3,
            request_id="req_1",
            epoch=1,
            request=request_pb2.Request(
                model="echo", messages=[request_pb2.Message(role="user", parts=[part])]
            ),
        )
    )


async def test_a_gateway_becomes_a_client_link() -> None:
    assert Door().core.events == [
        ClientAttached(link=5, window_units=64, window_bytes=1024, mirrors=True)
    ]


async def test_what_is_no_gateway_is_turned_away() -> None:
    door = Door()
    worker = RecordedLink(6, link_pb2.Hello(service=link_pb2.SERVICE_KIND_STAGE_WORKER, id="w"))
    door.links.attached(worker)
    door.links.lost(worker, "closed")

    assert len(worker.closed) == 1
    assert [type(event) for event in door.core.events] == [ClientAttached]


async def test_frames_come_before_grants_as_the_wire_says() -> None:
    door = Door()
    abort = link_pb2.Frame(abort=link_pb2.Abort(slot=2, cause="client_closed"))
    grant = Grant(3, 0, 96, 2048)
    events = door.receive(open_frame(request_pb2.Part(text="hi")), abort, grants=(grant,))

    assert [type(event) for event in events] == [Opened, AbortAsked, CreditGranted]
    assert isinstance(events[2], CreditGranted)
    assert events[2].grants == [grant]


async def test_a_request_that_cannot_be_read_ends_alone() -> None:
    door = Door()
    events = door.receive(open_frame(request_pb2.Part()))

    [frame] = door.link.sent
    assert isinstance(frame, link_pb2.Frame)
    assert events == []
    assert frame.terminal.slot == 3
    assert frame.terminal.outcome == outcome_pb2.OUTCOME_REJECTED
    assert frame.terminal.error.code == outcome_pb2.ERROR_CODE_INVALID_ARGUMENT
    assert door.link.closed == []


def part_of(*lanes: link_pb2.LaneJournal, slot: int = 3) -> link_pb2.Frame:
    journal = link_pb2.Journal(lanes=lanes)
    return link_pb2.Frame(journal_part=link_pb2.JournalPart(slot=slot, journal=journal))


def first_of_more() -> link_pb2.Frame:
    frame = open_frame(request_pb2.Part(text="hi"))
    frame.open.more = True
    frame.open.epoch = 2
    frame.open.journal.lanes.add(lane=1, token_ids=[7])
    return frame


async def test_a_request_whose_journal_comes_in_parts_is_opened_once_all_is_there() -> None:
    door = Door()
    text = link_pb2.LaneJournal(lane=1, pos=2, token_ids=[8])
    sound = link_pb2.LaneJournal(lane=2, pos=160)
    assert door.receive(first_of_more(), part_of(text), part_of(sound)) == []
    [event] = door.receive(link_pb2.Frame(go=link_pb2.Go(slot=3)))

    assert isinstance(event, Opened)
    told = [(lane.lane, lane.next, lane.ids) for lane in event.journal.lanes]
    assert told == [(1, 2, [7, 8]), (2, 160, [])]
    assert door.receive(link_pb2.Frame(go=link_pb2.Go(slot=3))) == [], "it was opened"


async def test_a_request_that_is_aborted_before_all_is_there_is_not_opened() -> None:
    door = Door()
    door.receive(first_of_more())
    abort = link_pb2.Frame(abort=link_pb2.Abort(slot=3, cause="client_closed"))
    events = door.receive(abort, link_pb2.Frame(go=link_pb2.Go(slot=3)))

    assert [type(event) for event in events] == [AbortAsked]


async def test_a_journal_that_cannot_be_read_ends_its_request_alone() -> None:
    door = Door()
    frame = open_frame(request_pb2.Part(text="hi"))
    lane = frame.open.journal.lanes.add(lane=1, pos=1)
    lane.rows.slot.append(1)
    assert door.receive(frame) == []

    [sent] = door.link.sent
    assert isinstance(sent, link_pb2.Frame)
    assert sent.terminal.error.code == outcome_pb2.ERROR_CODE_PROTOCOL
    assert door.link.closed == []


async def test_a_gateway_is_not_told_of_what_it_gave_to_another() -> None:
    door = Door()
    placed = Placed(stage=0, role=0, attempt=1, replica_id="w", incarnation=5)
    door.perform(
        DropRequest(link=5, slot=3, request_id="req_1", terminal=COMPLETED),
        PlaceNotice(link=5, slot=4, placed=placed),
        ResetLanes(link=5, slot=4, stages=(0,)),
        HandBackRequest(link=5, slot=4, request_id="req_1"),
    )

    kinds = [f.WhichOneof("kind") for f in door.link.sent if isinstance(f, link_pb2.Frame)]
    assert kinds == ["placed", "reset", "hand_back"]


async def test_a_gateway_that_breaks_the_protocol_loses_its_link() -> None:
    door = Door()
    door.receive(link_pb2.Frame(submit=link_pb2.Submit()))

    assert len(door.link.closed) == 1


async def test_a_lost_gateway_is_told_once_and_hears_nothing_more() -> None:
    door = Door()
    door.links.lost(door.link, "broken")
    door.links.lost(door.link, "broken")
    door.perform(AnswerUnknown(link=5, slot=1))

    assert door.core.events.count(ClientLost(link=5)) == 1
    assert door.link.sent == []


async def test_effects_are_sent_as_rows_and_frames_in_order() -> None:
    door = Door()
    row = Row(3, lane_of(0, 0, Modality.TEXT), 0, 1, " w0")
    door.perform(
        SendRows(link=5, rows=[row]),
        EndRequest(link=5, slot=3, request_id="req_1", terminal=COMPLETED),
        AnswerUnknown(link=5, slot=4),
        SayGoAway(link=5, reason="sigterm", drain_s=10.0),
    )

    kinds = [
        sent.WhichOneof("kind") if isinstance(sent, link_pb2.Frame) else sent
        for sent in door.link.sent
    ]
    assert kinds == [[row], "terminal", "unknown", "go_away"]


async def test_an_effect_that_is_not_for_gateways_is_our_bug() -> None:
    door = Door()
    door.perform(RenewHandles(link=5, request_id="req_1", epoch=1))

    assert [type(error) for error in door.log.failed] == [TypeError]


async def test_news_and_closing_reach_every_gateway() -> None:
    door = Door()
    second = RecordedLink(6, GATEWAY)
    door.links.attached(second)
    door.links.tell_news()
    door.links.close("drained")

    assert [link.sent for link in (door.link, second)] == [["ping"], ["ping"]]
    assert [link.closed for link in (door.link, second)] == [["drained"], ["drained"]]
