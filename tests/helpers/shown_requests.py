"""Requests as a core shows them, set by a test, and peers that answer as it says."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from services.orchestrator.core.views import RequestQuery, RequestView
from services.orchestrator.peers import Answers

__all__ = ["NO_PEERS", "FewPeers", "ShownRequests"]

Q = TypeVar("Q")
T = TypeVar("T")


class ShownRequests:
    """A core's views; a test changes them as it likes."""

    def __init__(self, *views: RequestView) -> None:
        self.views = {view.request_id: view for view in views}
        self.queries: list[RequestQuery] = []

    def request_view(self, request_id: str) -> RequestView | None:
        """Show one."""
        return self.views.get(request_id)

    def request_views(self, query: RequestQuery) -> list[RequestView]:
        """Show all, and note what was asked."""
        self.queries.append(query)
        return list(self.views.values())


class FewPeers:
    """Peers that are stubs without a wire, and some that do not answer."""

    def __init__(self, *stubs: Any, unanswered: tuple[str, ...] = ()) -> None:
        self.stubs = stubs
        self.unanswered = unanswered

    async def ask(
        self, method: Callable[[Any], Callable[[Q], Awaitable[T]]], question: Q
    ) -> Answers[T]:
        """Ask all of them."""
        given = tuple([await method(stub)(question) for stub in self.stubs])
        return Answers(given, self.unanswered)


NO_PEERS = FewPeers()
