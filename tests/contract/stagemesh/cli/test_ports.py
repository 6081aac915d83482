import socket

import pytest

from stagemesh.cli.ports import PORTS, NoFreePorts, busy, free_ports


def test_free_ports_are_different_and_can_be_listened_on() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(port in PORTS and not busy("127.0.0.1", port) for port in ports)


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
