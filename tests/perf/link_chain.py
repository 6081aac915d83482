"""The chain that `bench_link` measures: worker, relay and sink, each a process.

Run as `python -m tests.perf.link_chain ROLE VARIANT …`. `link` joins the processes by links;
`calls` by one server-streaming call for each request. Engine, windows and checks are the same.
"""

import argparse
import asyncio
import json
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from grpc import aio

from stagemesh.api.orchestrator.v1 import (
    gateway_link_service_pb2_grpc,
    orchestrator_service_pb2_grpc,
)
from stagemesh.api.stage.v1 import stage_service_pb2_grpc
from stagemesh.api.types.v1 import link_pb2
from stagemesh.link.pump import Dialer
from stagemesh.rpc import open_channel, start_server
from tests.perf.chain_engine import Streams, random_words
from tests.perf.chain_over_calls import CallsRelay, CallsSink, CallsWorker
from tests.perf.chain_over_link import POLICY, LinkRelay, LinkSink, LinkWorker, hello


def tell(**what: object) -> None:
    """Tell the parent something, as a line of JSON."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def stopped() -> asyncio.Event:
    """An event that SIGTERM sets."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    return stop


async def serve(register: Callable[[aio.Server], None], work: list[Any]) -> None:
    """Serve, and do the work, until SIGTERM."""
    stop = stopped()
    server = await start_server("127.0.0.1:0", register=register, services=())
    tell(address=server.address)
    tasks = [asyncio.create_task(one) for one in work]
    try:
        waiting = asyncio.create_task(stop.wait())
        await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await server.stop(0)


async def worker(options: argparse.Namespace) -> None:
    """The end that makes tokens."""
    streams, words = Streams(options.step_ms / 1000), random_words(options.seed)

    def register(server: aio.Server) -> None:
        if options.variant == "link":
            stage_service_pb2_grpc.add_StageServiceServicer_to_server(
                LinkWorker(streams, words), server
            )
        else:
            orchestrator_service_pb2_grpc.add_OrchestratorServiceServicer_to_server(
                CallsWorker(streams, words), server
            )

    await serve(register, [streams.run()])


async def relay(options: argparse.Namespace) -> None:
    """The process between."""
    async with open_channel(options.peer) as channel:
        if options.variant == "link":
            middle = LinkRelay()
            dialer = Dialer(
                stage_service_pb2_grpc.StageServiceStub(channel).Attach,
                hello=lambda: hello(link_pb2.SERVICE_KIND_ORCHESTRATOR),
                ping=link_pb2.Ping,
                events=middle.events,
                policy=POLICY,
            )
            add = gateway_link_service_pb2_grpc.add_GatewayLinkServiceServicer_to_server
            await serve(lambda server: add(middle, server), [dialer.run()])
        else:
            calls = CallsRelay(orchestrator_service_pb2_grpc.OrchestratorServiceStub(channel))
            add_calls = orchestrator_service_pb2_grpc.add_OrchestratorServiceServicer_to_server
            await serve(lambda server: add_calls(calls, server), [])


async def measure(counter: LinkSink | CallsSink, options: argparse.Namespace) -> None:
    """Tell when the window begins and what it held."""
    await asyncio.sleep(options.warm_s)
    tokens, messages, began_s = counter.tokens, counter.messages, time.perf_counter()
    tell(begin=True)
    await asyncio.sleep(options.window_s)
    took_s = time.perf_counter() - began_s
    tell(tokens=counter.tokens - tokens, messages=counter.messages - messages, seconds=took_s)


async def sink(options: argparse.Namespace) -> None:
    """The end that takes tokens."""
    async with open_channel(options.peer) as channel:
        if options.variant == "link":
            link_sink = LinkSink(options.streams)
            dialer = Dialer(
                gateway_link_service_pb2_grpc.GatewayLinkServiceStub(channel).Attach,
                hello=lambda: hello(link_pb2.SERVICE_KIND_GATEWAY),
                ping=link_pb2.Ping,
                events=link_sink,
                policy=POLICY,
            )
            tasks = [asyncio.create_task(dialer.run())]
            await measure(link_sink, options)
        else:
            calls_sink = CallsSink()
            stub = orchestrator_service_pb2_grpc.OrchestratorServiceStub(channel)
            tasks = [asyncio.create_task(calls_sink.run(stub)) for _ in range(options.streams)]
            await measure(calls_sink, options)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def main() -> None:
    """Run one process of the chain."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=["worker", "relay", "sink"])
    parser.add_argument("variant", choices=["link", "calls"])
    parser.add_argument("--peer", default="")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--step-ms", type=float, default=0.0)
    parser.add_argument("--warm-s", type=float, default=0.5)
    parser.add_argument("--window-s", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    roles = {"worker": worker, "relay": relay, "sink": sink}
    asyncio.run(roles[options.role](options))


if __name__ == "__main__":
    main()
