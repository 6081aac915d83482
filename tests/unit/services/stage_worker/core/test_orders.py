from services.stage_worker.core import effects as do
from services.stage_worker.core.orders import Orders
from stagemesh.link.core import Grant, Row
from stagemesh.outcome import Outcome, Terminal


def test_rows_go_first_joined_for_each_link_and_grants_last() -> None:
    orders = Orders()
    ended = do.SendTerminal(link=1, slot=1, terminal=Terminal(outcome=Outcome.FAILED))
    a, b, c = (Row(slot, 16, 0, 1, "x") for slot in (1, 2, 3))
    orders.rows(1, [a])
    orders.add(ended)
    orders.rows(2, [b])
    orders.rows(1, [c])
    grant = Grant(1, 0, 1, 1)
    orders.grant(1, grant)
    assert orders.take() == [
        do.SendRows(link=1, rows=[a, c]),
        do.SendRows(link=2, rows=[b]),
        ended,
        do.SendGrants(link=1, grants=[grant]),
    ]
    assert orders.take() == []


def test_the_senders_list_is_not_kept() -> None:
    orders = Orders()
    mine = [Row(1, 16, 0, 1, "x")]
    orders.rows(1, mine)
    orders.rows(1, [Row(1, 16, 1, 1, "y")])
    assert len(mine) == 1
