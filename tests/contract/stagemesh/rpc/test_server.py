"""One server and one channel on a real socket, under the one policy."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from stagemesh.api.stage.v1.payload_service_pb2 import (
    FetchRequest,
    FetchResponse,
    ReleaseRequest,
)
from stagemesh.errors import MeshError
from stagemesh.outcome import REASONS, ErrorCode, ErrorInfo, error_for
from stagemesh.rpc import MESSAGE_BYTES_MAX, RunningServer, abort, error_of, open_channel
from tests.helpers.echo_service import SERVICE, Echo, start_echo, stub_of
from tests.helpers.loopback import free_address

BURST = 3_000
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVING = health_pb2.HealthCheckResponse.SERVING


Start = Callable[..., Awaitable[RunningServer]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts servers that end with the test."""
    servers: list[RunningServer] = []

    async def start_one(echo: Echo, **options: Any) -> RunningServer:
        servers.append(await start_echo(echo, **options))
        return servers[-1]

    yield start_one
    for server in servers:
        await server.stop(0)


async def test_a_burst_on_one_channel_loses_no_call(start: Start) -> None:
    echo = Echo()
    waiting = asyncio.Event()

    async def hold(_: str, context: Any) -> None:
        if echo.calls == BURST:
            waiting.set()  # All of them are here at once before the first is answered.
        await waiting.wait()

    echo.on_release = hold
    server = await start(echo)
    async with open_channel(server.address) as channel, asyncio.timeout(60):
        calls = [stub_of(channel).Release(ReleaseRequest(handle_ids=["a"])) for _ in range(BURST)]
        answers = await asyncio.gather(*calls)
    assert sum(answer.released for answer in answers) == BURST


async def test_both_ends_send_small_messages_at_once(start: Start) -> None:
    server = await start(Echo())
    async with open_channel(server.address) as channel:
        await stub_of(channel).Release(ReleaseRequest())
        delays = _no_delay_of_connections(server.port)
    assert len(delays) == 2
    assert all(delays)


@pytest.mark.parametrize("method", ["Fetch", "Release"])
async def test_a_message_that_cannot_be_parsed_is_the_client_s_mistake(
    start: Start, method: str
) -> None:
    server = await start(Echo())
    raw: dict[str, Callable[[bytes], bytes]] = {
        "request_serializer": bytes, "response_deserializer": bytes
    }  # fmt: skip
    async with open_channel(server.address) as channel:
        with pytest.raises(aio.AioRpcError) as ended:
            if method == "Fetch":
                call = channel.unary_stream(f"/{SERVICE}/{method}", **raw)
                await call(b"\xff\xff", timeout=5).read()
            else:
                await channel.unary_unary(f"/{SERVICE}/{method}", **raw)(b"\xff\xff", timeout=5)
    assert ended.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error_of(ended.value).reason == "invalid_value"


@pytest.mark.parametrize("reason", sorted(REASONS))
async def test_an_error_comes_back_as_it_was_raised(start: Start, reason: str) -> None:
    info = error_for(reason, f"about {reason}", stage="s", attempt=2, retry_after_s=1.5, param="p")
    echo = Echo()

    async def fail(_: str, context: Any) -> None:
        await abort(context, info)

    echo.on_release = fail
    assert await _failure_of(start, echo) == info


async def test_a_mesh_error_that_a_servicer_raises_is_its_status(start: Start) -> None:
    echo = Echo()

    async def fail(_: str, context: Any) -> None:
        raise MeshError(error_for("no_replica"))

    echo.on_release = fail
    assert await _failure_of(start, echo) == error_for("no_replica")


async def test_what_a_proxy_needs_stands_in_plain_trailers(start: Start) -> None:
    echo = Echo()

    async def fail(_: str, context: Any) -> None:
        await abort(context, error_for("queue_full", retry_after_s=2.5))

    echo.on_release = fail
    server = await start(echo)
    async with open_channel(server.address) as channel:
        with pytest.raises(aio.AioRpcError) as caught:
            await stub_of(channel).Release(ReleaseRequest())
    trailers = dict(caught.value.trailing_metadata())
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert trailers["retry-after"] == "3"
    assert trailers["grpc-retry-pushback-ms"] == "2500"
    assert trailers["x-stagemesh-not-admitted"] == "1"


async def test_an_exception_s_text_never_reaches_a_client(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    server = await start(Echo())
    async with open_channel(server.address) as channel:
        call = stub_of(channel).Fetch(FetchRequest(handle_id="raise"))
        with pytest.raises(aio.AioRpcError) as caught:
            [response async for response in call]
    assert error_of(caught.value) == error_for("internal_error")
    assert "secret" not in str(caught.value)
    assert "a secret" in caplog.text


async def test_a_message_beyond_the_limit_is_too_large(start: Start) -> None:
    server = await start(Echo())
    async with open_channel(server.address) as channel:
        with pytest.raises(aio.AioRpcError) as caught:
            await stub_of(channel).Release(ReleaseRequest(request_id="x" * MESSAGE_BYTES_MAX))
    assert error_of(caught.value).code is ErrorCode.PAYLOAD_TOO_LARGE


async def test_four_mebibytes_of_content_pass(start: Start) -> None:
    server = await start(Echo())
    async with open_channel(server.address) as channel:
        await stub_of(channel).Release(ReleaseRequest(request_id="x" * 4 * 1024 * 1024))


async def test_nobody_there_is_a_lost_link() -> None:
    async with open_channel(free_address()) as channel:
        with pytest.raises(aio.AioRpcError) as caught:
            await stub_of(channel).Release(ReleaseRequest())
    assert error_of(caught.value).code is ErrorCode.LINK_LOST


async def test_a_killed_server_is_a_lost_link_for_a_running_stream() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.helpers.echo_program", stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        address = (await process.stdout.readline()).decode().strip()
        async with open_channel(address) as channel:
            call = stub_of(channel).Fetch(FetchRequest())
            await call.read()
            process.send_signal(signal.SIGKILL)
            with pytest.raises(aio.AioRpcError) as caught:
                await call.read()
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    info = error_of(caught.value)
    assert (info.code, info.retryable) == (ErrorCode.LINK_LOST, True)


async def test_a_proxy_of_the_environment_is_not_asked(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "grpc_proxy", "https_proxy"):
        monkeypatch.setenv(name, f"http://{free_address()}")
    server = await start(Echo())
    async with open_channel(server.address) as channel:
        await stub_of(channel).Release(ReleaseRequest(), timeout=5)


async def test_a_second_server_on_a_port_fails_to_start(start: Start) -> None:
    server = await start(Echo())
    with pytest.raises(OSError, match=server.address):
        await start(Echo(), address=server.address)


async def test_stop_lets_a_running_call_finish_and_takes_no_other(start: Start) -> None:
    echo = Echo()
    server = await start(echo)
    async with open_channel(server.address) as channel, open_channel(server.address) as late:
        call = stub_of(channel).Fetch(FetchRequest())
        await call.read()
        stopping = asyncio.create_task(server.stop(30))
        with pytest.raises(aio.AioRpcError):
            while True:  # Until the server has heard of it.
                await stub_of(late).Release(ReleaseRequest())
        echo.go_on.set()
        last = await call.read()
        assert isinstance(last, FetchResponse)
        assert last.data == b"last"
        assert await call.read() is aio.EOF
        await stopping


async def test_health_tells_liveness_and_each_readiness(start: Start) -> None:
    server = await start(Echo())
    async with open_channel(server.address) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)

        async def check(name: str) -> int:
            answer = await health.Check(health_pb2.HealthCheckRequest(service=name))
            return int(answer.status)

        assert await check("") == SERVING
        assert await check(SERVICE) == NOT_SERVING
        server.set_serving(SERVICE, True)
        server.set_serving("some-model", True)
        assert await check(SERVICE) == SERVING
        assert await check("some-model") == SERVING
        with pytest.raises(aio.AioRpcError) as caught:
            await check("no-such-model")
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_health_watcher_hears_each_change_and_ends_with_the_server(start: Start) -> None:
    server = await start(Echo())
    async with open_channel(server.address) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        call = health.Watch(health_pb2.HealthCheckRequest(service=SERVICE))
        assert (await call.read()).status == NOT_SERVING
        server.set_serving(SERVICE, True)
        assert (await call.read()).status == SERVING
        async with asyncio.timeout(5):
            await server.stop(60)  # The watcher does not hold it up.
        assert (await call.read()).status == NOT_SERVING
        assert await call.read() is aio.EOF


@pytest.mark.parametrize("on", [True, False])
async def test_reflection_is_there_only_where_it_was_asked_for(start: Start, on: bool) -> None:
    server = await start(Echo(), reflection=on)
    async with open_channel(server.address) as channel:
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)  # type: ignore[arg-type]
        asked = reflection_pb2.ServerReflectionRequest(list_services="")
        call = stub.ServerReflectionInfo(iter([asked]))
        if on:
            listed = (await call.read()).list_services_response.service
            assert {SERVICE, "grpc.health.v1.Health"} <= {one.name for one in listed}
        else:
            with pytest.raises(aio.AioRpcError) as caught:
                await call.read()
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def _failure_of(start: Start, echo: Echo) -> ErrorInfo:
    server = await start(echo)
    async with open_channel(server.address) as channel:
        with pytest.raises(aio.AioRpcError) as caught:
            await stub_of(channel).Release(ReleaseRequest())
    return error_of(caught.value)


def _no_delay_of_connections(port: int) -> list[int]:
    """Give TCP_NODELAY of every connection of this process that has `port` at one end."""
    delays = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if not Path(f"/proc/self/fd/{name}").readlink().name.startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as copy:
                if copy.family not in (socket.AF_INET, socket.AF_INET6):
                    continue
                if port in (copy.getsockname()[1], copy.getpeername()[1]):
                    delays.append(copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
    return delays
