"""The effects of one event or timer, in the order in which the shell must perform them."""

from services.orchestrator.core.effects import (
    AbortAttempt,
    AnswerControl,
    AnswerInteraction,
    AnswerUnknown,
    AskWorker,
    DropRequest,
    Effect,
    EndRequest,
    FenceRequest,
    HandBackRequest,
    PlaceNotice,
    PublishModels,
    ReleaseHandles,
    RenewHandles,
    ResetLanes,
    SayGoAway,
    SendGrants,
    SendPrompt,
    SendRows,
    SubmitAttempts,
)
from stagemesh.link.core import Grant, Row

__all__ = ["Orders", "ToClient", "ToWorker"]

ToClient = (
    AnswerInteraction
    | AnswerUnknown
    | DropRequest
    | EndRequest
    | HandBackRequest
    | PlaceNotice
    | ResetLanes
    | SayGoAway
)
ToWorker = AbortAttempt | FenceRequest | ReleaseHandles | RenewHandles | SendPrompt | SubmitAttempts


class Orders:
    """Collects effects.

    What goes to clients comes before what goes to workers, so that a client never holds an effect
    without its cause. For one link everything keeps its order; rows that nothing else of their link
    separates share one `SendRows`, and so do grants.
    """

    def __init__(self) -> None:
        self._news: list[Effect] = []
        self._to_clients: list[Effect] = []
        self._to_workers: list[Effect] = []
        self._controls: list[AnswerControl | AskWorker] = []
        self._rows: dict[int, list[Row]] = {}
        self._grants: dict[int, list[Grant]] = {}

    def client_rows(self, link: int) -> list[Row]:
        """Give the list of rows that is open for a client link."""
        rows = self._rows.get(link)
        if rows is None:
            rows = self._rows[link] = []
            self._to_clients.append(SendRows(link=link, rows=rows))
        return rows

    def worker_rows(self, link: int) -> list[Row]:
        """Give the list of rows that is open for a worker link."""
        rows = self._rows.get(link)
        if rows is None:
            rows = self._rows[link] = []
            self._to_workers.append(SendRows(link=link, rows=rows))
        return rows

    def client_grant(self, link: int, grant: Grant) -> None:
        """Let a client give more of its input."""
        grants = self._grants.get(link)
        if grants is None:
            grants = self._grants[link] = []
            self._to_clients.append(SendGrants(link=link, grants=grants))
        grants.append(grant)

    def grant(self, link: int, grant: Grant) -> None:
        """Let a worker send more."""
        grants = self._grants.get(link)
        if grants is None:
            grants = self._grants[link] = []
            self._to_workers.append(SendGrants(link=link, grants=grants))
        grants.append(grant)

    def to_client(self, effect: ToClient) -> None:
        """Add an effect for a client; later rows and grants of its link come after it."""
        self._rows.pop(effect.link, None)
        self._grants.pop(effect.link, None)
        self._to_clients.append(effect)

    def to_worker(self, effect: ToWorker) -> None:
        """Add an effect for a worker; later rows and grants of its link come after it."""
        self._rows.pop(effect.link, None)
        self._grants.pop(effect.link, None)
        self._to_workers.append(effect)

    def to_operator(self, effect: AnswerControl) -> None:
        """Add an answer to an operator, after everything that concerns requests."""
        self._controls.append(effect)

    def control(self, effect: AskWorker) -> None:
        """Add a control call to a worker, after everything that concerns requests."""
        self._controls.append(effect)

    def publish(self, effect: PublishModels) -> None:
        """Tell everybody what can be served; of one step only the last word counts."""
        self._news = [effect]

    def take(self) -> list[Effect]:
        """Give everything that was collected since the last call; empty sends are left out."""
        effects = [
            effect
            for effect in (*self._news, *self._to_clients, *self._to_workers)
            if not (isinstance(effect, SendRows) and not effect.rows)
        ]
        effects += self._controls
        self._news = []
        self._to_clients = []
        self._to_workers = []
        self._controls = []
        self._rows = {}
        self._grants = {}
        return effects
