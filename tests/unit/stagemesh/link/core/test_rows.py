from stagemesh.link.core import Row, confirming_cost, row_cost
from stagemesh.media import Body, Handle, Modality, lane_of
from stagemesh.outcome import End, FinishReason

TEXT = lane_of(0, 0, Modality.TEXT)
AUDIO = lane_of(1, 0, Modality.AUDIO)
IMAGE = lane_of(2, 0, Modality.IMAGE)


def test_text_costs_its_units_and_characters() -> None:
    assert row_cost(Row(1, TEXT, 0, 3, "später")) == (3, 6)


def test_token_ids_cost_four_bytes_each() -> None:
    assert row_cost(Row(1, TEXT, 0, 2, "ab", [7, 8])) == (2, 10)


def test_audio_costs_bytes_only() -> None:
    assert row_cost(Row(1, AUDIO, 0, 480, body=Body(inline=bytes(960)))) == (0, 960)


def test_an_item_costs_a_unit_and_the_bytes_its_handle_stands_for() -> None:
    handle = Handle(
        handle_id="h", request_id="r", holder_id="w", incarnation=1, address="a", size_bytes=5000
    )
    assert row_cost(Row(1, IMAGE, 0, 1, body=Body(handle=handle))) == (1, 5000)


def test_a_bare_end_of_text_costs_nothing() -> None:
    assert row_cost(Row(1, TEXT, 9, 0)) == (0, 0)


def test_the_cost_in_bytes_is_the_size() -> None:
    row = Row(1, TEXT, 0, 2, "ab", [7, 8], body=Body(inline=b"xyz"))
    assert row_cost(row) == (2, row.size_bytes)
    assert row.size_bytes == 2 + 8 + 3


def test_where_credit_confirms_an_end_counts_though_it_costs_nothing() -> None:
    end = End(finish_reason=FinishReason.STOP)
    assert confirming_cost(Row(1, TEXT, 9, 0, end=end)) == (1, 0)
    assert confirming_cost(Row(1, TEXT, 0, 2, "ab", [7, 8], end=end)) == (3, 10)
    assert confirming_cost(Row(1, AUDIO, 0, 480, body=Body(inline=bytes(960)))) == (0, 960)
