"""A stage worker without an engine: a real server and a real link, and a script in between."""

import asyncio
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Self

from grpc import aio

from stagemesh.api.stage.v1 import stage_service_pb2, stage_service_pb2_grpc
from stagemesh.api.types.v1 import control_pb2, link_pb2, media_pb2, outcome_pb2
from stagemesh.ids import new_incarnation
from stagemesh.link.core import Row, Sender
from stagemesh.link.pump import Link, LinkPolicy, Received, serve_link
from stagemesh.outcome import End, FinishReason, Usage
from stagemesh.rpc import RunningServer, start_server
from tests.helpers.loopback import free_address

__all__ = ["FakeWorker", "Job", "counting", "silent"]

STOP = End(finish_reason=FinishReason.STOP, usage=Usage(prompt_tokens=1))


class Job:
    """One attempt: a slot, what it was asked for, and the credit of its outputs.

    It begins where the submission says that its first lane stands.
    """

    def __init__(self, link: Link, submit: link_pb2.Submit, role: link_pb2.RoleSpec) -> None:
        limits = link.peer.limits
        self.link = link
        self.submit = submit
        self.slot = role.slot
        self.lanes = tuple(role.lanes)
        self.sender = Sender(limits.window_units, limits.window_bytes)
        self.resume = {mark.lane: mark for mark in submit.resume}
        mark = self.resume.get(self.lanes[0])
        self.pos = mark.pos if mark else 0
        self.ids_wanted = role.token_ids

    def say(self, text: str, *, end: End | None = None, ids: list[int] | None = None) -> None:
        """Send one token of the first lane, now or once there is credit; its id is its position."""
        if ids is None and self.ids_wanted:
            ids = [self.pos]
        row = Row(self.slot, self.lanes[0], self.pos, 1, text, ids=ids, end=end)
        self.pos += 1
        self.put(row)

    def put(self, row: Row) -> None:
        """Send a row, now or once there is credit."""
        self.link.send_rows(self.sender.offer(row))

    def hand_back(self) -> None:
        """Give the attempt up in good order."""
        self.link.send_frame(link_pb2.Frame(hand_back=link_pb2.HandBack(slot=self.slot)))

    def end_with(self, outcome: int, code: int, reason: str) -> None:
        """Send a terminal for the whole attempt."""
        self.link.send_frame(
            link_pb2.Frame(
                terminal=link_pb2.Terminal(
                    slot=self.slot,
                    outcome=outcome_pb2.Outcome.ValueType(outcome),
                    error=outcome_pb2.ErrorInfo(
                        code=outcome_pb2.ErrorCode.ValueType(code), reason=reason
                    ),
                )
            )
        )


Script = Callable[[Job], None]
"""What a worker does with an attempt when it is submitted."""


def counting(tokens: int) -> Script:
    """Answer with ` w0 w1 w2 …`, as the synthetic engine does, or with what is left of it."""

    def script(job: Job) -> None:
        for index in range(job.pos, tokens):
            job.say(f" w{index}", end=STOP if index == tokens - 1 else None)

    return script


def silent(job: Job) -> None:
    """Take an attempt and say nothing: the test says it."""


class FakeWorker(AbstractAsyncContextManager["FakeWorker"]):
    """Serves `StageService` on loopback; `jobs` and `aborted` tell what was asked of it."""

    def __init__(
        self,
        replica_id: str = "thinker-0",
        *,
        pool: str = "thinker",
        script: Script = silent,
        deaf: bool = False,
        modalities: tuple[int, ...] = (media_pb2.MODALITY_TEXT,),
        contract: link_pb2.ResumeContract.ValueType = link_pb2.RESUME_CONTRACT_UNSPECIFIED,
    ) -> None:
        self.replica_id = replica_id
        self.pool = pool
        self.address = free_address()
        self.incarnation = new_incarnation()
        self.state = link_pb2.PROCESS_STATE_READY
        self.jobs: asyncio.Queue[Job] = asyncio.Queue()
        self.aborted: asyncio.Queue[int] = asyncio.Queue()
        self.released: asyncio.Queue[link_pb2.Release] = asyncio.Queue()
        self.controls: asyncio.Queue[tuple[Link, control_pb2.Control]] = asyncio.Queue()
        self.gate = control_pb2.Gate()
        self.fences: asyncio.Queue[link_pb2.Fence] = asyncio.Queue()
        self.inputs: asyncio.Queue[Row] = asyncio.Queue()
        self.links: list[Link] = []
        self._script = script
        self._deaf = deaf
        self._modalities = modalities
        self._contract = contract
        self._open: dict[tuple[int, int], Job] = {}
        self._server: RunningServer | None = None

    async def __aenter__(self) -> Self:
        """Start to listen."""
        servicer = _StageServicer(self)
        self._server = await start_server(
            self.address,
            register=lambda server: stage_service_pb2_grpc.add_StageServiceServicer_to_server(
                servicer, server
            ),
            services=(),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Break every link and stop listening."""
        await self.kill()

    async def kill(self) -> None:
        """Break every link at once, as a killed process does."""
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(0)

    async def job(self) -> Job:
        """Wait for the next attempt."""
        async with asyncio.timeout(10):
            return await self.jobs.get()

    async def carry_out(self, *, code: int = 0) -> control_pb2.Control:
        """Take the next control call and answer it; with a code it failed."""
        async with asyncio.timeout(10):
            link, control = await self.controls.get()
        answer = control_pb2.Controlled(control_id=control.control_id)
        if code:
            answer.error.code = outcome_pb2.ErrorCode.ValueType(code)
            answer.error.reason = "told so"
        link.send_frame(link_pb2.Frame(controlled=answer))
        return control

    def report(
        self, state: link_pb2.ProcessState.ValueType, gate: control_pb2.Gate | None = None
    ) -> None:
        """Tell everybody that the worker is in another state now."""
        self.state = state
        self.gate = gate or control_pb2.Gate()
        for link in self.links:
            link.ping_now()

    def hello(self) -> link_pb2.Hello:
        """Say what the worker is."""
        modalities = [media_pb2.Modality.ValueType(number) for number in self._modalities]
        return link_pb2.Hello(
            service=link_pb2.SERVICE_KIND_STAGE_WORKER,
            id=self.replica_id,
            incarnation=self.incarnation,
            pid=os.getpid(),
            limits=link_pb2.LinkLimits(window_units=64, window_bytes=1 << 20),
            state=self.state,
            gate=self.gate,
            worker=link_pb2.WorkerCard(
                pool=self.pool,
                engine="synthetic",
                model="synthetic",
                capabilities=link_pb2.Capabilities(
                    input_modalities=[media_pb2.MODALITY_TEXT, media_pb2.MODALITY_AUDIO],
                    output_modalities=modalities,
                    stream_input=True,
                    stream_output=True,
                    resume_contract=self._contract,
                    deterministic=True,
                    slots=4096,
                ),
            ),
        )

    def ping(self) -> link_pb2.Ping:
        """Say how the worker is."""
        load = link_pb2.Load(slots_free=4096)
        return link_pb2.Ping(state=self.state, load=load, gate=self.gate)

    def attached(self, link: Link) -> None:
        """Take an orchestrator."""
        self.links.append(link)

    def received(self, link: Link, received: Received) -> None:
        """Do what an orchestrator orders."""
        for row in received.rows:
            self.inputs.put_nowait(row)
        for frame in received.frames:
            match frame.WhichOneof("kind"):
                case "submit":
                    self._submitted(link, frame.submit)
                case "abort":
                    self._abort(link, frame.abort.slot)
                case "fence":
                    self.fences.put_nowait(frame.fence)
                case "control":
                    self.controls.put_nowait((link, frame.control))
                case "release":
                    self.released.put_nowait(frame.release)
                case _:
                    pass
        for grant in received.grants:
            job = self._open.get((link.id, grant.slot))
            if job is not None:
                link.send_rows(job.sender.grant(grant.units, grant.bytes))

    def lost(self, link: Link, reason: str) -> None:
        """Forget an orchestrator and its attempts."""
        del reason
        self.links.remove(link)
        for key in [key for key in self._open if key[0] == link.id]:
            del self._open[key]

    def _submitted(self, link: Link, submit: link_pb2.Submit) -> None:
        for role in submit.roles:
            job = Job(link, submit, role)
            self._open[link.id, role.slot] = job
            self.jobs.put_nowait(job)
            self._script(job)

    def _abort(self, link: Link, slot: int) -> None:
        self.aborted.put_nowait(slot)
        job = self._open.pop((link.id, slot), None)
        if job is not None and not self._deaf:
            job.end_with(outcome_pb2.OUTCOME_CANCELLED, outcome_pb2.ERROR_CODE_ABORTED, "aborted")


class _StageServicer(stage_service_pb2_grpc.StageServiceServicer):
    def __init__(self, worker: FakeWorker) -> None:
        self._worker = worker

    async def Attach(  # type: ignore[override]  # noqa: N802
        self, request_iterator: object, context: aio.ServicerContext[Any, Any]
    ) -> None:
        await serve_link(
            context,
            hello=self._worker.hello,
            ping=self._worker.ping,
            events=self._worker,
            policy=LinkPolicy(),
        )

    async def Describe(  # noqa: N802
        self,
        request: stage_service_pb2.DescribeRequest,
        context: aio.ServicerContext[Any, Any],
    ) -> stage_service_pb2.DescribeResponse:
        return stage_service_pb2.DescribeResponse(hello=self._worker.hello())
