import socket

import pytest

from stagemesh.cli.ports import PORTS, NoFreePorts, busy, free_ports, overlap


def test_free_ports_are_different_and_can_be_listened_on() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(port in PORTS and not busy("127.0.0.1", port) for port in ports)


def test_a_port_that_is_promised_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stagemesh.cli.ports.PORTS", range(20_000, 20_010))
    (free,) = free_ports(1)
    with pytest.raises(NoFreePorts):
        free_ports(10, besides={free})


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (("127.0.0.1", 80), ("127.0.0.1", 80), True),
        (("127.0.0.1", 80), ("127.0.0.1", 81), False),
        (("127.0.0.1", 80), ("127.0.0.2", 80), False),
        (("localhost", 80), ("127.0.0.1", 80), True),
        (("0.0.0.0", 80), ("127.0.0.1", 80), True),
        (("127.0.0.1", 80), ("::", 80), True),
        (("no.such.host.invalid", 80), ("127.0.0.1", 80), False),
    ],
)
def test_two_addresses_are_in_each_other_s_way_however_they_are_spelt(
    one: tuple[str, int], other: tuple[str, int], expected: bool
) -> None:
    assert overlap(one, other) is overlap(other, one) is expected


def test_no_port_of_ours_is_one_that_connections_take() -> None:
    assert set(PORTS).isdisjoint(range(32_768, 61_000))


def test_a_port_that_is_listened_on_is_busy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert busy("127.0.0.1", server.getsockname()[1]) == "Address already in use"


def test_an_address_that_is_not_ours_is_told() -> None:
    assert busy("192.0.2.1", 80) == "Cannot assign requested address"


def test_too_many_ports_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stagemesh.cli.ports.PORTS", range(20_000, 20_002))
    with pytest.raises(NoFreePorts, match="no 3 free ports between 20000 and 20001"):
        free_ports(3)
