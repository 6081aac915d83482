from stagemesh.media import Body, Handle

HANDLE = Handle(
    handle_id="h_1", request_id="req_1", holder_id="talker-0", incarnation=7,
    address="127.0.0.1:7000", size_bytes=1_000_000,
)  # fmt: skip


def test_inline_bytes_count_as_they_are() -> None:
    assert Body(inline=b"12345").size_bytes == 5
    assert Body().size_bytes == 0


def test_a_handle_counts_as_what_it_stands_for() -> None:
    assert Body(handle=HANDLE).size_bytes == 1_000_000
