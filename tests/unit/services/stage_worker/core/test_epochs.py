from services.stage_worker.core import effects as do
from services.stage_worker.core import events as seen
from services.stage_worker.core.epochs import Epochs
from services.stage_worker.core.orders import Orders


def test_an_older_owner_is_told_that_it_is_one() -> None:
    orders = Orders()
    epochs = Epochs(orders)
    assert epochs.admit(1, "a", 2, 0.0)
    assert epochs.admit(1, "a", 2, 0.0)
    assert not epochs.admit(7, "a", 1, 0.0)
    assert orders.take() == [do.SendFenced(link=7, request_id="a", epoch=2)]


def test_payloads_obey_the_newest_owner_only() -> None:
    orders = Orders()
    epochs = Epochs(orders)
    epochs.admit(1, "a", 2, 0.0)
    epochs.release(seen.ReleaseAsked(link=7, request_id="a", epoch=1), 0.0)
    epochs.renew(seen.RenewAsked(link=7, request_id="a", epoch=1), 0.0)
    fenced = do.SendFenced(link=7, request_id="a", epoch=2)
    assert orders.take() == [fenced, fenced]
    epochs.renew(seen.RenewAsked(link=1, request_id="a", epoch=2), 0.0)
    epochs.release(seen.ReleaseAsked(link=1, request_id="a", epoch=2), 0.0)
    assert orders.take() == [
        do.RenewPayloads(request_id="a"),
        do.ReleasePayloads(request_id="a"),
    ]


def test_a_fence_without_handles_claims_nothing() -> None:
    orders = Orders()
    Epochs(orders).claim(seen.FenceRaised(link=1, request_id="a", epoch=2), {1})
    assert orders.take() == []
