"""Detachable requests around an orchestrator's core: gateways that share a store.

What a gateway has committed is in the store, and is what its client has. Whoever takes a request
over has that, and no journal.
"""

from services.orchestrator.core import events as ev
from stagemesh.link.core import Cursor, Grant, Journal, LaneJournal, Row, Window, row_cost
from tests.helpers.core_gateway import GatewayJournal, GatewayLane
from tests.helpers.core_parties import WorldRequest
from tests.helpers.core_world import World

__all__ = ["DETACH_S", "DetachedWorld"]

DETACH_S = 4.0


class DetachedWorld(World):
    """A world in which a request may outlive its gateway."""

    def commit(self, request: WorldRequest, count: int, *, tell: bool = True) -> None:
        """Let a gateway commit the first rows that it was sent, and confirm that."""
        done, request.sent = request.sent[:count], request.sent[count:]
        for row in done:
            request.committed[row.lane] = (row.pos + row.units, row.end)
            request.confirmed_units += _units(row)
            request.confirmed_bytes += row_cost(row)[1]
        if not tell:
            return
        first = self.clients[request.link]
        totals = first.units + request.confirmed_units, first.bytes + request.confirmed_bytes
        request.window.grant(*totals)
        self.step(ev.CreditGranted(link=request.link, grants=[Grant(request.slot, 0, *totals)]))

    def lose_client(self, link: int) -> None:
        """Break a client link; what may wait for another one waits."""
        for request in list(self.requests.values()):
            view = self.core.request_view(request.request_id)
            stops = view is None or view.state == "STOPPING"
            if request.link == link and request.terminal is None and request.detach_s:
                request.waiting = not (request.lost or stops)
                request.stopped |= stops
                request.gone = True
        super().lose_client(link)

    def _lose_owner(self, request: WorldRequest) -> None:
        if not request.waiting:
            super()._lose_owner(request)

    def replace_owner(self) -> None:
        """Kill the core, and with it what waited there."""
        for request in self.by_id.values():
            request.lost |= request.waiting
            request.waiting = False
        super().replace_owner()

    def open_again(self, request: WorldRequest, link: int) -> None:
        """Let the gateway that has it give it to another owner; it commits what it has."""
        for row in request.sent:
            request.committed[row.lane] = (row.pos + row.units, row.end)
        request.sent = []
        request.confirmed_units = request.confirmed_bytes = 0
        request.owner_since = request.epoch + 1
        super().open_again(request, link)

    @property
    def orphans(self) -> list[WorldRequest]:
        """Requests that some gateway wants to give to another owner, with all their journal."""
        return [one for one in super().orphans if not (one.taken_over or one.gone)]

    @property
    def adrift(self) -> list[WorldRequest]:
        """Detachable requests that another gateway may take over, also from one that lives."""
        return [
            one
            for one in self.by_id.values()
            if one.detach_s and one.terminal is None and not one.stopped
        ]

    def take_over(self, request: WorldRequest, link: int) -> None:
        """Let a gateway take a request over and open it, where it is or where nobody knows it."""
        client = self.clients[link]
        view = self.core.request_view(request.request_id)
        states = ("QUEUED", "RUNNING", "ORPHANED")
        kept = view is not None and view.state in states and not request.lost
        self.requests.pop((request.link, request.slot), None)
        for lane, kept_lane in request.journal.lanes.items():
            if kept_lane.visible:
                request.sent_to[lane] = max(request.sent_to.get(lane, 0), kept_lane.cursor.next)
        request.link, request.slot = link, 1000 * request.epoch + request.slot
        request.epoch += 1
        request.lost = request.waiting = request.gone = False
        request.taken_over = True
        request.window = Window(client.units, client.bytes)
        request.taken_units = request.taken_bytes = 0
        request.confirmed_units = request.confirmed_bytes = 0
        request.sent = []
        if not kept:
            request.work_epoch = request.owner_since = request.epoch
            request.homes, request.tried = {}, {}
            request.fenced, request.released = set(), set()
            request.sent_to = {}
        placed = request.journal.placed if kept else {}
        request.journal = GatewayJournal(
            {
                lane: GatewayLane(lane, visible=True, cursor=Cursor(pos, ended=end is not None))
                for lane, (pos, end) in request.committed.items()
            },
            placed,
        )
        self.requests[link, request.slot] = request
        self.step(
            ev.Opened(
                link=link,
                slot=request.slot,
                request_id=request.request_id,
                epoch=request.epoch,
                deadline_left_s=0.0,
                request=request.request,
                body=None,
                journal=Journal(
                    lanes=[
                        LaneJournal(lane=lane, next=pos, end=end, visible_pos=pos)
                        for lane, (pos, end) in request.committed.items()
                    ]
                ),
                detach_s=request.detach_s,
                owner_since=request.owner_since,
            )
        )


def _units(row: Row) -> int:
    """An end counts one unit more, so that a bare one is confirmed too."""
    return row_cost(row)[0] + (row.end is not None)
