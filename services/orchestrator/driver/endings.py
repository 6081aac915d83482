"""Who waits for the end of a request."""

import asyncio

__all__ = ["Endings"]


class Endings:
    """Wakes those who wait for a request to be over here."""

    def __init__(self) -> None:
        # As many as calls wait, each of them for a bounded time.
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def ended(self, request_id: str) -> None:
        """Take note that a request is over here."""
        for waiter in self._waiting.pop(request_id, ()):
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, request_id: str, timeout_s: float) -> None:
        """Return when a request that is open now is over, or after `timeout_s`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters = self._waiting.setdefault(request_id, set())
        waiters.add(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except TimeoutError:
            return
        finally:
            waiters.discard(waiter)
            if not waiters and self._waiting.get(request_id) is waiters:
                del self._waiting[request_id]
