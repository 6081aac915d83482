"""The orders of one step, gathered: rows and grants become one order for each link."""

from services.stage_worker.core.effects import Effect, SendGrants, SendRows
from stagemesh.link.core import Grant, Row

__all__ = ["Orders"]


class Orders:
    """What one step asks of the shell."""

    def __init__(self) -> None:
        self._effects: list[Effect] = []
        self._rows: dict[int, list[Row]] = {}
        self._grants: dict[int, list[Grant]] = {}

    def add(self, effect: Effect) -> None:
        """Add an order that is performed in its place."""
        self._effects.append(effect)

    def rows(self, link: int, rows: list[Row]) -> None:
        """Add outputs that have their credit."""
        known = self._rows.get(link)
        if known is None:
            self._rows[link] = list(rows)
        else:
            known += rows

    def grant(self, link: int, grant: Grant) -> None:
        """Add credit for inputs."""
        self._grants.setdefault(link, []).append(grant)

    def take(self) -> list[Effect]:
        """Give the orders and start afresh. Rows go first, so that no end overtakes them."""
        effects = self._effects
        self._effects = []
        if self._rows:
            effects = [
                *(SendRows(link=link, rows=rows) for link, rows in self._rows.items()),
                *effects,
            ]
            self._rows = {}
        if self._grants:
            effects += [SendGrants(link=link, grants=some) for link, some in self._grants.items()]
            self._grants = {}
        return effects
