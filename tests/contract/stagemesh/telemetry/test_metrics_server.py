"""`/metrics` over real sockets."""

import asyncio
import socket

import httpx
import pytest

from stagemesh.telemetry import Metrics, start_metrics
from tests.helpers.loopback import free_address


async def test_a_scraper_gets_the_metrics_and_nothing_else() -> None:
    metrics = Metrics(process=False)
    metrics.counter("starts", "Starts.").labels().inc()
    address = free_address()
    server = await start_metrics(address, source=metrics)
    try:
        async with httpx.AsyncClient(base_url=f"http://{address}") as client:
            answer = await client.get("/metrics?x=1")
            assert answer.status_code == 200
            assert "stagemesh_starts_total 1.0" in answer.text
            assert (await client.get("/")).status_code == 404
            assert (await client.post("/metrics")).status_code == 404
    finally:
        await server.close()


async def test_close_frees_the_port_and_cuts_who_is_connected() -> None:
    address = free_address()
    server = await start_metrics(address)
    reader, writer = await asyncio.open_connection(*address.split(":"))
    writer.write(b"GET /metr")
    await writer.drain()
    await server.close()
    await server.close()
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", server.port))


async def test_a_head_without_an_end_is_cut() -> None:
    server = await start_metrics("127.0.0.1:0")
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"x" * 100_000)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await writer.drain()
            await reader.readexactly(1)
        writer.close()
    finally:
        await server.close()
