import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagemesh.api.types.v1 import link_pb2
from stagemesh.errors import invalid
from stagemesh.link.core import REQUEST_SOURCE, Grant, Outbox, Row
from stagemesh.link.pump import Received, WireFault, decode, encode
from stagemesh.media import Body, Handle, Modality, lane_of
from stagemesh.outcome import End, FinishReason, Timings, Usage

TEXT = lane_of(0, 0, Modality.TEXT)
AUDIO = lane_of(1, 0, Modality.AUDIO)
END = End(
    finish_reason=FinishReason.STOP,
    stop_match="###",
    usage=Usage(prompt_tokens=5, completion_tokens=9),
    timings=Timings(total_s=1.5),
)


def over_the_wire(outbox: Outbox) -> list[Received]:
    """Encode, serialize, parse and decode one message."""
    batch = outbox.take()
    assert batch is not None
    assert outbox.take() is None
    return decode(link_pb2.LinkMessage.FromString(encode(batch).SerializeToString()))


def test_rows_come_back_as_they_were() -> None:
    rows = [
        Row(1, TEXT, 0, 1, " w0"),
        Row(2, TEXT, 7, 2, "ü😀", [9, 10]),
        Row(3, TEXT, 7, 0, "", end=END),
        Row(4, TEXT, 1 << 40, 1, "r", None, 1, False),
    ]
    outbox = Outbox()
    outbox.put_rows(rows)
    assert over_the_wire(outbox) == [Received(rows, [], [])]


def test_rows_with_bodies_come_back_as_rows() -> None:
    handle = Handle(
        handle_id="h_1",
        request_id="req_1",
        holder_id="w-1",
        incarnation=1 << 63,
        address="127.0.0.1:1",
        size_bytes=1 << 33,
        digest=b"d" * 16,
    )
    rows = [
        Row(1, AUDIO, 0, 3, body=Body(inline=b"abcdef", media_type="audio/pcm"), visible=False),
        Row(2, AUDIO, 3, 1, body=Body(handle=handle), end=END),
    ]
    outbox = Outbox()
    outbox.put_rows(rows)
    assert over_the_wire(outbox) == [Received(rows, [], [])]


def test_grants_come_back_as_they_were() -> None:
    grants = [Grant(1, 0, 1 << 40, 1 << 41), Grant(2, 0xFFFF_FFFF, 3, 4)]
    outbox = Outbox()
    outbox.put_grants(grants)
    assert over_the_wire(outbox) == [Received([], [], grants)]


def test_an_output_after_another_frame_begins_a_new_step() -> None:
    abort = link_pb2.Frame(abort=link_pb2.Abort(slot=1))
    chunk = Row(1, AUDIO, 0, 1, body=Body(inline=b"x"))
    outbox = Outbox()
    outbox.put_rows([Row(2, TEXT, 0, 1, "a"), chunk])
    outbox.put_frame(abort, (1,))
    outbox.put_rows([chunk])
    outbox.put_grants([Grant(2, 0, 1, 1)])
    assert over_the_wire(outbox) == [
        Received([Row(2, TEXT, 0, 1, "a"), chunk], [abort], []),
        Received([chunk], [], [Grant(2, 0, 1, 1)]),
    ]


def test_half_a_surrogate_pair_harms_its_own_row_only() -> None:
    outbox = Outbox()
    outbox.put_rows([Row(1, TEXT, 0, 1, "a\ud800b"), Row(2, TEXT, 0, 1, "fine 😀")])
    [received] = over_the_wire(outbox)
    assert [row.text for row in received.rows] == ["a\ufffdb", "fine 😀"]


def one_row() -> link_pb2.Outputs:
    return link_pb2.Outputs(slot=[1], lane=[TEXT], pos=[0], units=[1], text=["x"])


@pytest.mark.parametrize("column", ["lane", "pos", "units"])
def test_a_column_of_another_length_is_a_fault(column: str) -> None:
    outputs = one_row()
    getattr(outputs, column).append(1)
    with pytest.raises(WireFault, match="2 entries where there are 1 rows"):
        decode(link_pb2.LinkMessage(outputs=outputs))


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (link_pb2.Outputs(text=["y"]), "2 entries where there are 1 rows"),
        (link_pb2.Outputs(slot=[2]), "1 entries where there are 2 rows"),
        (link_pb2.Outputs(kind=[0, 0]), "2 entries where there are 1 rows"),
        (link_pb2.Outputs(visible=[True, False]), "2 entries where there are 1 rows"),
        (link_pb2.Outputs(token_ids=[5]), "0 entries where there are 1 rows"),
        (link_pb2.Outputs(token_ids=[5, 6], token_ids_len=[1]), "2 token ids where"),
        (link_pb2.Outputs(token_ids=[5], token_ids_len=[2]), "1 token ids where"),
        (link_pb2.Outputs(ends=[link_pb2.RowEnd(row=1)]), "an end names row 1 of 1"),
        (link_pb2.Outputs(ends=[link_pb2.RowEnd(row=0)]), "an end is not valid"),
    ],
)
def test_columns_that_do_not_agree_are_a_fault(more: link_pb2.Outputs, why: str) -> None:
    outputs = one_row()
    outputs.MergeFrom(more)
    with pytest.raises(WireFault, match=why):
        decode(link_pb2.LinkMessage(outputs=outputs))


def test_grants_that_do_not_agree_are_a_fault() -> None:
    with pytest.raises(WireFault, match="0 entries where there are 1 grants"):
        decode(link_pb2.LinkMessage(grants=link_pb2.Grants(slot=[1], units=[1])))
    with pytest.raises(WireFault, match="2 entries where there are 1 grants"):
        decode(
            link_pb2.LinkMessage(
                grants=link_pb2.Grants(slot=[1], units=[1], bytes=[1], source=[1, 2])
            )
        )


def test_grants_without_sources_are_for_outputs() -> None:
    message = link_pb2.LinkMessage(grants=link_pb2.Grants(slot=[4], units=[5], bytes=[6]))
    assert decode(message) == [Received([], [], [Grant(4, 0, 5, 6)])]


def column(values: st.SearchStrategy[int]) -> st.SearchStrategy[list[int]]:
    """A column of two rows, most of the time."""
    return st.one_of(st.lists(values, min_size=2, max_size=2), st.lists(values, max_size=3))


small = st.integers(0, 3)


@given(
    st.builds(
        link_pb2.Outputs,
        slot=column(small),
        lane=column(st.integers(0, 0xFFFF_FFFF)),
        pos=column(small),
        units=column(small),
        text=st.lists(st.text(max_size=3), min_size=2, max_size=2),
        token_ids=st.lists(small, max_size=4),
        token_ids_len=st.lists(small, max_size=2),
        kind=st.one_of(st.just([]), column(small)),
        ends=st.lists(st.builds(link_pb2.RowEnd, row=small), max_size=1),
    )
)
def test_any_columns_are_read_or_refused(outputs: link_pb2.Outputs) -> None:
    try:
        [received] = decode(link_pb2.LinkMessage(outputs=outputs))
    except WireFault:
        return
    assert [row.slot for row in received.rows] == list(outputs.slot)
    assert [one for row in received.rows for one in row.ids or ()] == list(outputs.token_ids)


def test_a_clients_input_comes_back_as_it_was_in_its_order() -> None:
    rows = [
        Row(1, REQUEST_SOURCE, 0, 1, "so"),
        Row(1, REQUEST_SOURCE, 1, 1, body=Body(inline=b"pcm", media_type="audio/pcm")),
        Row(1, REQUEST_SOURCE, 2, 1, segment_end=True),
        Row(1, REQUEST_SOURCE, 3, 0, end=End(finish_reason=FinishReason.STOP)),
    ]
    outbox = Outbox()
    outbox.put_rows(rows)
    assert over_the_wire(outbox) == [Received(rows, [], [])]


def test_the_input_of_an_open_is_read_between_open_and_go() -> None:
    outbox = Outbox()
    outbox.put_frame(link_pb2.Frame(open=link_pb2.Open(slot=1, more=True)), (1,))
    outbox.put_rows([Row(1, REQUEST_SOURCE, 0, 1, "so")])
    outbox.put_frame(link_pb2.Frame(go=link_pb2.Go(slot=1)), (1,))
    steps = over_the_wire(outbox)
    assert [len(step.rows) for step in steps] == [0, 1]
    assert [[frame.WhichOneof("kind") for frame in step.frames] for step in steps] == [
        ["open"],
        ["go"],
    ]


def test_the_end_of_a_segment_is_not_the_end_of_its_lane() -> None:
    rows = [
        Row(1, TEXT, 0, 1, "a", segment_end=True),
        Row(1, AUDIO, 0, 4, body=Body(inline=b"pcm"), segment_end=True),
    ]
    outbox = Outbox()
    outbox.put_rows(rows)
    assert over_the_wire(outbox) == [Received(rows, [], [])]


def test_half_a_surrogate_in_an_input_does_not_end_the_link() -> None:
    outbox = Outbox()
    outbox.put_rows([Row(1, REQUEST_SOURCE, 0, 1, "a\ud800")])
    (step,) = over_the_wire(outbox)
    assert step.rows[0].text.startswith("a")


def test_an_input_of_another_source_breaks_the_link() -> None:
    frame = link_pb2.Frame(input=link_pb2.Input(slot=1, source=TEXT))
    with pytest.raises(WireFault, match="none of a request"):
        decode(link_pb2.LinkMessage(frames=[frame]))


def test_an_input_with_a_bad_body_breaks_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(message: object) -> Body:
        raise invalid("no")

    monkeypatch.setattr("stagemesh.link.pump.codec.body_from_proto", refuse)
    given = link_pb2.Input(slot=1, source=REQUEST_SOURCE)
    given.body.inline = b"x"
    with pytest.raises(WireFault, match="bad body"):
        decode(link_pb2.LinkMessage(frames=[link_pb2.Frame(input=given)]))
