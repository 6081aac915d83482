"""What channels and servers agree on."""

from stagemesh.rpc import MESSAGE_BYTES_MAX
from stagemesh.rpc.policy import CHANNEL_OPTIONS, SERVER_OPTIONS


def test_what_one_end_may_send_the_other_may_receive() -> None:
    for one, other in ((CHANNEL_OPTIONS, SERVER_OPTIONS), (SERVER_OPTIONS, CHANNEL_OPTIONS)):
        sent = dict(one)["grpc.max_send_message_length"]
        assert sent == dict(other)["grpc.max_receive_message_length"] == MESSAGE_BYTES_MAX


def test_a_server_tolerates_pings_as_frequent_as_channels_send_them() -> None:
    allowed_ms = dict(SERVER_OPTIONS)["grpc.http2.min_recv_ping_interval_without_data_ms"]
    assert allowed_ms < dict(CHANNEL_OPTIONS)["grpc.keepalive_time_ms"]


def test_bursts_far_above_grpc_s_own_limit_are_kept() -> None:
    options = dict(SERVER_OPTIONS)
    pending = options["grpc.server.max_pending_requests"]
    assert 3_000 < pending < options["grpc.server.max_pending_requests_hard_limit"]


def test_no_connection_is_closed_for_its_age() -> None:
    for options in (CHANNEL_OPTIONS, SERVER_OPTIONS):
        assert not [name for name in dict(options) if "age_ms" in name or "idle_ms" in name]
