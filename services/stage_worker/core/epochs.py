"""Who may speak for a request: the highest epoch that was seen of it."""

from collections.abc import Collection

from services.stage_worker.core import effects as do
from services.stage_worker.core import events as seen
from services.stage_worker.core.fences import Fences
from services.stage_worker.core.orders import Orders

__all__ = ["Epochs"]


class Epochs:
    """Lets the newest owner of a request speak, and tells every older one that it is not."""

    def __init__(self, orders: Orders) -> None:
        self._fences = Fences()
        self._orders = orders

    def admit(self, link: int, request_id: str, epoch: int, now_s: float) -> bool:
        """Note the epoch of an order; False, and an answer, if a higher one was seen."""
        if self._fences.raise_to(request_id, epoch, now_s):
            return True
        epoch = self._fences.epoch(request_id)
        self._orders.add(do.SendFenced(link=link, request_id=request_id, epoch=epoch))
        return False

    def claim(self, event: seen.FenceRaised, links: Collection[int]) -> None:
        """Keep the payloads that a new owner asks for, and let it know which are here.

        Those that had it before, on these links, are told: they may wait for it for long.
        """
        for link in sorted(set(links) - {event.link}):
            self._orders.add(
                do.SendFenced(link=link, request_id=event.request_id, epoch=event.epoch)
            )
        if event.handle_ids:
            self._orders.add(
                do.ClaimPayloads(
                    link=event.link,
                    request_id=event.request_id,
                    epoch=event.epoch,
                    handle_ids=event.handle_ids,
                )
            )

    def renew(self, event: seen.RenewAsked, now_s: float) -> None:
        """Keep a request's payloads alive, if its owner asks for it."""
        if self.admit(event.link, event.request_id, event.epoch, now_s):
            self._orders.add(do.RenewPayloads(request_id=event.request_id))

    def release(self, event: seen.ReleaseAsked, now_s: float) -> None:
        """Free payloads of a request, if its owner asks for it."""
        if self.admit(event.link, event.request_id, event.epoch, now_s):
            self._orders.add(
                do.ReleasePayloads(request_id=event.request_id, handle_ids=event.handle_ids)
            )
