"""The composition root: makes the parts of one worker, and starts and stops them in order."""

import asyncio
import logging
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

from services.stage_worker.bridges import find_bridge
from services.stage_worker.core import Identity, ProcessState, StageWorker
from services.stage_worker.driver import Driver, Ledger
from services.stage_worker.engines import find_engine
from services.stage_worker.engines.base import Engine, EngineConfig, ModelCard
from services.stage_worker.servicer import (
    STAGE_SERVICE,
    Links,
    Presence,
    StageServicer,
    register_services,
)
from services.stage_worker.settings import Settings
from stagemesh.errors import BadSettings
from stagemesh.heap import freeze_heap
from stagemesh.ids import new_incarnation
from stagemesh.link.pump import LinkPolicy
from stagemesh.outcome import ErrorInfo
from stagemesh.payload import PayloadReader, PayloadServicer, PayloadStore
from stagemesh.pipeline import Pool
from stagemesh.rpc import RunningServer, start_server
from stagemesh.telemetry import Metrics, metrics, start_metrics

__all__ = ["Program", "serve"]

FLUSH_S: Final = 2.0
"""How long the last answers may take to be written once no attempt is open any more."""

CLOSE_S: Final = 10.0
"""How long an engine may take to close."""

_log = logging.getLogger(__name__)


async def serve(settings: Settings, pool: Pool) -> bool:
    """Run one worker until SIGTERM or SIGINT; see `Program.run` for what it gives and raises."""
    program = Program(settings, pool, loaded=freeze_heap)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, program.stop)
    return await program.run()


class Program:
    """One worker; `listening` is set once its port is open, `ready` once its engine is loaded."""

    def __init__(
        self,
        settings: Settings,
        pool: Pool,
        *,
        registry: Metrics = metrics,
        loaded: Callable[[], None] = lambda: None,
    ) -> None:
        """Take what is set, and whom to tell once the engine is loaded."""
        self.listening = asyncio.Event()
        self.ready = asyncio.Event()
        self.address = settings.listen
        self._settings = settings
        self._pool = pool
        self._registry = registry
        self._loaded = loaded
        self._config = EngineConfig(
            pool=pool.name,
            replica_id=settings.replica_id,
            model=pool.model,
            options=pool.options,
        )
        self._core = StageWorker(
            Identity(pool=pool.name, replica_id=settings.replica_id), settings.limits
        )
        self._driver: Driver | None = None
        self._loading: asyncio.Task[ModelCard] | None = None
        self._server: RunningServer | None = None
        self._stopping = False

    def stop(self) -> None:
        """Begin to drain; `run` returns when it is done. A load under way is given up."""
        self._stopping = True
        if self._loading is not None:
            self._loading.cancel()
        if self._driver is not None:
            self._driver.drain(self._settings.drain_s)

    async def run(self) -> bool:
        """Serve until `stop`, then drain; False if the engine broke or could not be loaded.

        Raises:
            BadSettings: If an address is not allowed, or an option of the pool is wrong.
            OSError: If an address cannot be bound, or the payload directory not be written.
            ExceptionGroup: With what the core raised; the process must not go on with it.
        """
        engine = find_engine(self._pool.engine)(self._config)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(_close, engine)
            driver, presence, links = await self._start(stack, engine)
            model = await self._load(engine)
            if model is None:
                return self._stopping
            presence.loaded(model, engine.capabilities)
            # The Hello of a link that opened earlier knew nothing of the engine.
            links.close("the engine is loaded")
            if self._stopping:
                driver.drain(0.0)
            self._loaded()
            self.ready.set()
            error = await driver.run()
            links.close("draining")
        return _told(error)

    async def _start(self, stack: AsyncExitStack, engine: Engine) -> tuple[Driver, Presence, Links]:
        """Open the ports; nothing is served on them before the engine is loaded."""
        settings = self._settings
        incarnation = new_incarnation()
        address = settings.advertise or settings.listen
        store = PayloadStore(
            holder_id=settings.replica_id,
            incarnation=incarnation,
            address=address,
            directory=settings.payload_directory,
            bytes_max=settings.payload_bytes_max,
            lease_s=settings.lease_s,
            warm_bytes_max=settings.payload_warm_bytes_max,
        )
        stack.callback(store.close)
        reader = await stack.enter_async_context(
            PayloadReader(tls=settings.channel_tls, insecure=settings.insecure)
        )
        driver = Driver(
            self._core,
            engine,
            store=store,
            payloads=reader,
            find_bridge=find_bridge,
            lease_s=settings.lease_s,
            ledger=Ledger(self._registry),
        )
        presence = Presence(
            self._core,
            self._config,
            self._pool.engine,
            incarnation=incarnation,
            limits=settings.limits,
            payload_address=address,
            look=driver.look,
        )
        links = Links(driver, self._report_health)
        driver.connect(links)
        self._driver = driver
        if settings.metrics:
            scraped = await start_metrics(
                settings.metrics, source=self._registry, insecure=settings.insecure
            )
            stack.push_async_callback(scraped.close)
        await self._listen(stack, StageServicer(links, presence, LinkPolicy()), store)
        return driver, presence, links

    async def _listen(
        self, stack: AsyncExitStack, stage: StageServicer, store: PayloadStore
    ) -> None:
        settings = self._settings
        self._server = await start_server(
            settings.listen,
            register=partial(register_services, stage, PayloadServicer(store)),
            services=(STAGE_SERVICE,),
            reflection=settings.reflection,
            tls=settings.server_tls,
            insecure=settings.insecure,
        )
        stack.push_async_callback(self._server.stop, FLUSH_S)
        self.address = self._server.address
        if not settings.advertise:
            store.address = self.address
        self.listening.set()
        _log.info("listening", extra={"address": self.address, "pool": self._pool.name})

    async def _load(self, engine: Engine) -> ModelCard | None:
        """Load the engine; None if that failed, took too long, or was given up."""
        self._loading = asyncio.create_task(engine.load(_tell_progress), name="load")
        limit = asyncio.timeout(self._settings.load_s)
        try:
            async with limit:
                model = await self._loading
        except asyncio.CancelledError:
            if not self._stopping:
                raise
            return None
        except BadSettings:
            raise
        except Exception:  # An engine is a plugin: whatever it raises, there is nothing to serve.
            late = {"after_s": self._settings.load_s} if limit.expired() else {}
            _log.exception("load_failed", extra={"engine": self._pool.engine, **late})
            return None
        finally:
            self._loading = None
        _log.info("loaded", extra={"model": model.model, "digest": model.digest})
        return model

    def _report_health(self) -> None:
        if self._server is not None:
            ready = self._core.state is ProcessState.READY
            self._server.set_serving(STAGE_SERVICE, ready)


def _tell_progress(detail: str) -> None:
    _log.info("loading", extra={"event": "loading", "detail": detail})


def _told(error: ErrorInfo | None) -> bool:
    if error is not None:
        _log.error("engine_broke", extra={"reason": error.reason, "detail": error.message})
    return error is None


async def _close(engine: Engine) -> None:
    try:
        async with asyncio.timeout(CLOSE_S):
            await engine.close()
    except TimeoutError:
        _log.error("engine_did_not_close", extra={"after_s": CLOSE_S})
