"""The order of effects."""

from services.orchestrator.core.effects import (
    AbortAttempt,
    AnswerUnknown,
    PublishModels,
    SendGrants,
    SendRows,
)
from services.orchestrator.core.orders import Orders
from stagemesh.link.core import Grant, Row


def row(slot: int) -> Row:
    return Row(slot, 1, 0, 1, "x")


def test_rows_of_a_link_share_one_effect() -> None:
    orders = Orders()
    for slot in range(3):
        orders.client_rows(1).append(row(slot))
    orders.client_rows(2).append(row(9))
    first, second = orders.take()
    assert isinstance(first, SendRows)
    assert [r.slot for r in first.rows] == [0, 1, 2]
    assert isinstance(second, SendRows)
    assert second.link == 2


def test_another_effect_for_the_link_comes_between() -> None:
    orders = Orders()
    orders.client_rows(1).append(row(1))
    orders.to_client(AnswerUnknown(link=1, slot=5))
    orders.client_rows(1).append(row(2))
    kinds = [type(effect).__name__ for effect in orders.take()]
    assert kinds == ["SendRows", "AnswerUnknown", "SendRows"]


def test_grants_are_gathered_and_cut_in_the_same_way() -> None:
    orders = Orders()
    orders.grant(3, Grant(1, 0, 5, 5))
    orders.grant(3, Grant(2, 0, 5, 5))
    orders.to_worker(AbortAttempt(link=3, slot=1, cause=""))
    orders.grant(3, Grant(4, 0, 5, 5))
    first, abort, last = orders.take()
    assert isinstance(first, SendGrants)
    assert [grant.slot for grant in first.grants] == [1, 2]
    assert isinstance(abort, AbortAttempt)
    assert isinstance(last, SendGrants)


def test_news_come_first_then_clients_then_workers() -> None:
    orders = Orders()
    orders.worker_rows(3).append(row(1))
    orders.client_rows(1).append(row(1))
    orders.publish(PublishModels(models=()))
    orders.publish(PublishModels(models=()))
    news, to_client, to_worker = orders.take()
    assert isinstance(news, PublishModels)
    assert isinstance(to_client, SendRows)
    assert to_client.link == 1
    assert isinstance(to_worker, SendRows)
    assert to_worker.link == 3


def test_empty_sends_are_left_out_and_nothing_is_given_twice() -> None:
    orders = Orders()
    orders.client_rows(1)
    assert orders.take() == []
    orders.client_rows(1).append(row(1))
    assert len(orders.take()) == 1
    assert orders.take() == []
