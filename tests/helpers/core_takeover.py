"""A core with one detachable request, and gateways that have it one after another."""

from collections.abc import Sequence

from services.orchestrator.core import effects as fx
from services.orchestrator.core import events as ev
from services.orchestrator.core.settings import CoreSettings
from stagemesh.link.core import Grant, Journal, LaneJournal
from stagemesh.media import Modality, lane_of
from stagemesh.outcome import ErrorCode, Outcome
from tests.helpers.core_stage import END, CoreStage, make_request, of_kind

__all__ = [
    "BYTES",
    "DETACH_S",
    "TEXT",
    "TOMBSTONE_S",
    "UNITS",
    "Detached",
    "at",
    "sent",
    "terminals",
]

TEXT = lane_of(0, 0, Modality.TEXT)
SOUND = lane_of(1, 0, Modality.AUDIO)
UNITS, BYTES = 8, 1 << 20
DETACH_S, TOMBSTONE_S = 20.0, 5.0


class Detached(CoreStage):
    """A gateway on link 1 that opens `r1`, replicas, and other gateways that may take over."""

    def __init__(self, model: str = "echo", *pools: str, streamed: bool = False) -> None:
        super().__init__(
            CoreSettings(orchestrators=1, tombstone_s=TOMBSTONE_S), units=UNITS, mirrors=True
        )
        self.model = model
        self.links = [self.replica(pool)[0] for pool in pools or ("thinker",)]
        self.streamed = streamed
        self.opened = self.give(1, epoch=1, owner_since=0)

    def give(
        self,
        link: int,
        *,
        epoch: int,
        owner_since: int = 1,
        lanes: Sequence[LaneJournal] = (),
        body: str = "",
    ) -> list[fx.Effect]:
        """Let a gateway open it."""
        return self.do(
            ev.Opened(
                link=link, slot=7, request_id="r1", epoch=epoch, deadline_left_s=0.0,
                request=make_request(self.model), body=body, journal=Journal(lanes=[*lanes]),
                detach_s=DETACH_S, owner_since=owner_since,
                streamed=self.streamed,
            )
        )  # fmt: skip

    def lose_gateway(self, link: int = 1) -> list[fx.Effect]:
        """Lose a gateway."""
        return self.do(ev.ClientLost(link=link))

    def take_over(
        self, *lanes: LaneJournal, link: int = 50, epoch: int = 2, body: str = ""
    ) -> list[fx.Effect]:
        """Let another gateway come and open it, as it stands in the store."""
        self.do(ev.ClientAttached(link=link, window_units=UNITS, window_bytes=BYTES, mirrors=True))
        return self.give(link, epoch=epoch, lanes=lanes, body=body)

    def confirm(self, units: int, size: int, link: int = 1) -> list[fx.Effect]:
        """Let a gateway say how much of what it was sent under its epoch it has for good."""
        grant = Grant(7, 0, UNITS + units, BYTES + size)
        return self.do(ev.CreditGranted(link=link, grants=[grant]))


def at(lane: int, pos: int, *, ended: bool = False) -> LaneJournal:
    """Say where a lane stands in the store."""
    return LaneJournal(lane=lane, next=pos, end=END if ended else None, visible_pos=pos)


def sent(effects: list[fx.Effect], link: int = 50) -> list[tuple[int, int, str, bool]]:
    """Give the rows that a gateway was sent."""
    return [
        (row.slot, row.pos, row.text, row.end is not None)
        for order in of_kind(effects, fx.SendRows)
        if order.link == link
        for row in order.rows
    ]


def terminals(effects: list[fx.Effect]) -> list[tuple[int, Outcome, ErrorCode | None]]:
    """Give the ends that gateways were told."""
    return [
        (end.link, end.terminal.outcome, end.terminal.error.code if end.terminal.error else None)
        for end in of_kind(effects, fx.EndRequest)
    ]
