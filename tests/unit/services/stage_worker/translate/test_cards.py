from services.stage_worker.core import Limits
from services.stage_worker.engines.base import LoadReport, ModelCard, ResumeContract
from services.stage_worker.translate import card_to_proto, limits_to_proto, load_to_proto
from stagemesh.api.types.v1 import link_pb2
from tests.helpers.hand_engine import HandEngine


def test_a_card_says_what_runs_and_what_it_can() -> None:
    card = card_to_proto(
        "pool", "hand", ModelCard(model="m", digest="d"), HandEngine(slots=9).capabilities
    )
    assert (card.pool, card.engine, card.model, card.model_digest) == ("pool", "hand", "m", "d")
    assert card.capabilities.slots == 9


def test_a_card_of_an_engine_that_loads_has_no_capabilities() -> None:
    assert not card_to_proto("p", "e", ModelCard(model="m"), None).HasField("capabilities")


def test_limits_are_the_first_windows() -> None:
    limits = limits_to_proto(Limits(input_window_units=3, input_window_bytes=4))
    assert limits == link_pb2.LinkLimits(window_units=3, window_bytes=4)


def test_a_load_report_is_told_with_the_room_that_is_left() -> None:
    load = load_to_proto(LoadReport(running=1, waiting=2, steps=3), 4)
    assert load == link_pb2.Load(running=1, waiting=2, slots_free=4)


def test_contracts_have_the_numbers_of_the_proto() -> None:
    for contract in ResumeContract:
        number = link_pb2.ResumeContract.Value(f"RESUME_CONTRACT_{contract.name}")
        assert int(number) == int(contract)
