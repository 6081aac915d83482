import asyncio
from contextlib import aclosing

from stagemesh.cli.plan import Plan, ProcessSpec
from stagemesh.cli.readiness import REAL_PROBES
from stagemesh.cli.supervision import Role
from stagemesh.rpc import start_server

STAGE = "stagemesh.api.stage.v1.StageService"


def spec(role: Role, address: str) -> ProcessSpec:
    return ProcessSpec(role=role, id="x", address=address, command=())


async def test_a_worker_is_ready_when_its_service_is_and_again_after_it_came_back() -> None:
    server = await start_server("127.0.0.1:0", register=lambda _: None, services=(STAGE,))
    probe = REAL_PROBES.process(spec(Role.STAGE_WORKER, server.address))
    async with asyncio.timeout(20), aclosing(probe) as readiness:
        assert await anext(readiness) is False
        server.set_serving(STAGE, True)
        assert await anext(readiness) is True
        await server.stop(0)
        assert await anext(readiness) is False
        server = await start_server(server.address, register=lambda _: None, services=(STAGE,))
        server.set_serving(STAGE, True)
        while not await anext(readiness):
            pass
    await server.stop(0)


async def test_a_gateway_is_ready_when_it_answers_200() -> None:
    answers = [b"503", b"200"]

    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 " + answers.pop(0) + b" X\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answered, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert [r async for r in REAL_PROBES.process(spec(Role.GATEWAY, address))] == [False, True]


async def test_models_are_served_once_every_orchestrator_serves_each() -> None:
    servers = [
        await start_server("127.0.0.1:0", register=lambda _: None, services=("a", "b"))
        for _ in range(2)
    ]
    specs = tuple(spec(Role.ORCHESTRATOR, server.address) for server in servers)
    plan = Plan(processes=specs, models=("a", "b"), discovery="")
    served = asyncio.ensure_future(REAL_PROBES.models(plan))
    for server in servers:
        for model in ("a", "b"):
            assert not served.done()
            server.set_serving(model, True)
            await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await served
    for server in servers:
        await server.stop(0)
