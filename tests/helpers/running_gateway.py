"""A whole gateway in this process, on real sockets, with fake orchestrators behind it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
from openai import AsyncOpenAI

from services.gateway.app import Gateway
from services.gateway.settings import Settings
from stagemesh.telemetry import Metrics
from tests.helpers.fake_orchestrator import FakeOrchestrator, orchestrator_at
from tests.helpers.loopback import free_address

__all__ = ["RunningGateway", "running_gateway"]


class RunningGateway:
    """A gateway that is linked to its orchestrators, and clients for it."""

    def __init__(
        self, gateway: Gateway, orchestrators: Sequence[FakeOrchestrator], clients: AsyncExitStack
    ) -> None:
        self.gateway = gateway
        self.orchestrators = orchestrators
        self.url = f"http://{gateway.address}"
        self.openai = AsyncOpenAI(
            base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=60.0
        )
        self.http = httpx.AsyncClient(base_url=self.url, timeout=60.0)
        clients.push_async_callback(self.openai.close)
        clients.push_async_callback(self.http.aclose)

    @property
    def orchestrator(self) -> FakeOrchestrator:
        """The first orchestrator."""
        return self.orchestrators[0]


@asynccontextmanager
async def running_gateway(
    *orchestrators: FakeOrchestrator, linked: bool = True, **settings: Any
) -> AsyncIterator[RunningGateway]:
    """Run a gateway for as long as the block lasts; it is linked to all when the block begins."""
    async with AsyncExitStack() as stack:
        addresses = [free_address() for _ in orchestrators]
        for address, orchestrator in zip(addresses, orchestrators, strict=True):
            await stack.enter_async_context(orchestrator_at(address, orchestrator))
        named = ",".join(f"o{at}@{address}" for at, address in enumerate(addresses))
        discovery = f"static:orchestrators={named or f'none@{free_address()}'}"
        gateway = Gateway(
            Settings(
                id="gateway-test",
                http=free_address(),
                payload=free_address(),
                **{"discovery": discovery, "drain_s": 1.0, **settings},
            ),
            registry=Metrics(process=False),
        )
        task = asyncio.create_task(gateway.run())
        try:
            await gateway.started.wait()
            if linked:
                for orchestrator in orchestrators:
                    await orchestrator.until(lambda o=orchestrator: bool(o.links))  # type: ignore[misc]
            running = RunningGateway(gateway, orchestrators, stack)
            if linked and orchestrators:
                await _linked(running, len(orchestrators))
            yield running
        finally:
            gateway.stop()
            await task


async def _linked(running: RunningGateway, count: int) -> None:
    """Wait until the gateway knows that it is linked: its peers' Hello crosses its own."""
    async with asyncio.timeout(5):
        # A probe has no way to be told of a change.
        while (await running.http.get("/ready")).json()["links"] < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
