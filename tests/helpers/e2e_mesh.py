"""A whole mesh, started as a person would start it, with everything a test may ask of it."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

import httpx
import psutil
from openai import AsyncOpenAI
from prometheus_client.parser import text_string_to_metric_families

from stagemesh.cli.ports import busy, free_ports
from stagemesh.cli.status import gather_status

__all__ = ["CLI", "ROOT", "E2eMesh", "running_mesh", "shared_memory", "until"]

ROOT: Final = Path(__file__).parents[2]

READY_S: Final = 90.0
END_S: Final = 20.0
IN_A_ROW: Final = 4
"""So many gateways or orchestrators are in one mesh at most."""
CLI: Final = (sys.executable, "-m", "stagemesh.cli")
ASK_EVERY_S: Final = 0.02

_T = TypeVar("_T")


async def until(
    ask: Callable[[], Awaitable[_T]], holds: Callable[[_T], bool], timeout_s: float
) -> _T:
    """Ask again and again until the answer is right; give that answer."""
    deadline_s = time.monotonic() + timeout_s
    while not holds(answer := await ask()):
        assert time.monotonic() < deadline_s, f"not within {timeout_s} s; the last answer: {answer}"
        await asyncio.sleep(ASK_EVERY_S)
    return answer


def shared_memory(*marks: str) -> set[str]:
    """Name what lies in shared memory with one of these marks in its name."""
    names = {entry.name for entry in Path("/dev/shm").glob("stagemesh-*")}
    return {name for name in names if any(mark in name for mark in marks)}


class E2eMesh:
    """One mesh that `stagemesh up` runs: its addresses, its processes, what they count."""

    def __init__(
        self,
        process: "subprocess.Popen[str]",
        *,
        http: str,
        grpc: str,
        errors: Path,
        environ: Mapping[str, str],
    ) -> None:
        cache = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        self.process = process
        self.folder = cache / "stagemesh" / "run" / http
        self._errors = errors
        self._environ = environ
        self.http = http
        self.grpc = grpc
        self.url = f"http://{http}"
        self.http_port = int(http.rpartition(":")[2])
        self.grpc_port = int(grpc.rpartition(":")[2])
        self._lines: SimpleQueue[str] = SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self._lines.put(line.strip())
        self._lines.put("it ended")

    def wait_ready(self, within_s: float = READY_S) -> None:
        """Wait until the launcher says so, and until every process is linked."""
        deadline_s = time.monotonic() + within_s
        try:
            assert self._lines.get(timeout=within_s) == "ready", self.said
        except Empty:
            raise AssertionError(f"not ready within {within_s} s; it said:\n{self.said}") from None
        while not all(one["state"] == "ready" for one in self.asked_status()):
            assert time.monotonic() < deadline_s, self.said

    def asked_status(self) -> list[dict[str, Any]]:
        """Ask `stagemesh status --json`, in a process of its own."""
        asked = subprocess.run(
            [*CLI, "status", "--json", "--http", self.http],
            capture_output=True, text=True, check=True, timeout=30, cwd=ROOT, env=self._environ,
        )  # fmt: skip
        records: list[dict[str, Any]] = json.loads(asked.stdout)
        return records

    async def command(self, *words: str, code: int = 0) -> str:
        """Run `stagemesh WORDS` for this mesh; give all that it said."""
        ran = await asyncio.to_thread(
            subprocess.run, [*CLI, *words, "--http", self.http],
            capture_output=True, text=True, check=False, timeout=60, cwd=ROOT, env=self._environ,
        )  # fmt: skip
        assert ran.returncode == code, ran.stderr
        return ran.stdout + ran.stderr

    def openai(self, **settings: Any) -> AsyncOpenAI:
        """Make the official client, without retries of its own."""
        return AsyncOpenAI(
            base_url=f"{self.url}/v1",
            api_key="none",
            **{"max_retries": 0, "timeout": 60} | settings,
        )

    def processes(self) -> list[dict[str, Any]]:
        """Give what the launcher knows of its processes."""
        found: list[dict[str, Any]] = json.loads((self.folder / "state.json").read_text())[
            "processes"
        ]
        return found

    async def status(self) -> list[dict[str, Any]]:
        """Give what `stagemesh status --json` gives."""
        return await gather_status(self.processes())

    def pids(self) -> dict[str, int]:
        """Give the process ids by name."""
        return {one["replica_id"]: one["pid"] for one in self.processes()}

    async def one(self, name: str) -> dict[str, Any]:
        """Give the status of one process."""
        return next(one for one in await self.status() if one["replica_id"] == name)

    async def inflight(self, *names: str) -> list[int]:
        """Give how many attempts each of these replicas has; none without a link."""
        found = {one["replica_id"]: one["inflight"] or 0 for one in await self.status()}
        return [found[name] for name in names]

    async def back(self, name: str, before: Mapping[str, Any], timeout_s: float = 40.0) -> float:
        """Wait until a process that died lives again and is ready; give how long that took.

        If it is an orchestrator, every gateway has its links again, too.
        """
        begun_s = time.monotonic()

        def again(now: dict[str, Any]) -> bool:
            return bool(now["state"] == "ready" and now["pid"] not in {None, before["pid"]})

        await until(lambda: self.one(name), again, timeout_s)
        took_s = time.monotonic() - begun_s
        if before["role"] == "orchestrator":
            await until(self.links, lambda links: len(set(links)) == 1, timeout_s)
        return took_s

    async def links(self) -> list[int]:
        """Give how many orchestrators there are, and how many each gateway is linked with."""
        processes = self.processes()
        there = sum(one["role"] == "orchestrator" for one in processes)
        gateways = [one["address"] for one in processes if one["role"] == "gateway"]
        async with httpx.AsyncClient() as client:
            said = [(await client.get(f"http://{address}/ready")).json() for address in gateways]
        return [there, *(one["links"] for one in said)]

    def kill(self, name: str, number: int = signal.SIGKILL) -> int:
        """Send a signal to one process; give its id."""
        pid = self.pids()[name]
        os.kill(pid, number)
        return pid

    def log(self, name: str) -> list[dict[str, Any]]:
        """Give the log lines of one process's present life, those that are JSON."""
        text = (self.folder / "logs" / f"{name}.log").read_text()
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    async def metrics(self, name: str) -> dict[str, float]:
        """Give what a process counts: sums over all labels, and each `name{values}` by itself.

        The values stand in the order of the labels' names.
        """
        found = next(one for one in self.processes() if one["replica_id"] == name)
        address = found["address"] if found["role"] == "gateway" else _metrics_port(found["pid"])
        async with httpx.AsyncClient() as client:
            text = (await client.get(f"http://{address}/metrics", timeout=10)).text
        values: dict[str, float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                values[sample.name] = values.get(sample.name, 0.0) + sample.value
                labels = ",".join(value for _, value in sorted(sample.labels.items()))
                values[f"{sample.name}{{{labels}}}"] = sample.value
        return values

    async def pool_metric(self, pool: str, metric: str) -> float:
        """Add up what all replicas of a pool count."""
        names = [one["replica_id"] for one in self.processes() if one["pool"] == pool]
        return sum([(await self.metrics(name)).get(metric, 0.0) for name in names])

    async def leftovers(self) -> dict[str, float]:
        """Name everything of requests that any process still holds; nothing, when all is over."""
        left: dict[str, float] = {}
        for one in await self.status():
            if one["role"] != "gateway":
                left[f"{one['replica_id']} inflight"] = one["inflight"] or 0
        for one in self.processes():
            name = one["replica_id"]
            if one["pid"] is None:  # It died, and with it all that it held.
                continue
            try:
                counted = await self.metrics(name)
            except (FileNotFoundError, httpx.TransportError):
                left[f"{name} is just dying"] = 1
                continue
            left |= {f"{name} {key}": counted.get(key, 0.0) for key in _HOLDINGS}
            # The question itself is being answered while the gateway counts.
            left[f"{name} calls"] = max(0.0, counted.get("stagemesh_gateway_open_requests", 0) - 1)
        return {what: value for what, value in left.items() if value}

    async def settled(self, timeout_s: float = 5.0) -> None:
        """Wait until nothing of any request is left anywhere."""
        await until(self.leftovers, lambda left: not left, timeout_s)

    def rss_mib(self) -> dict[str, float]:
        """Give the resident memory of each process."""
        sizes: dict[str, float] = {}
        for name, pid in self.pids().items():
            sizes[name] = psutil.Process(pid).memory_info().rss / 2**20
        return sizes

    def stop(self) -> tuple[int, float]:
        """Send SIGTERM to the launcher; give its exit code and how long it took."""
        begun_s = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(END_S)
        return code, time.monotonic() - begun_s

    @property
    def said(self) -> str:
        """What the launcher wrote to stderr."""
        return self._errors.read_text()


_HOLDINGS: Final = (
    "stagemesh_gateway_open_streams",
    "stagemesh_orchestrator_requests_open",
    "stagemesh_orchestrator_attempts_inflight",
    "stagemesh_payload_held_bytes",
    "stagemesh_worker_held_bytes",
)


@contextmanager
def running_mesh(
    file: Path,
    folder: Path,
    *more: str,
    environment: Mapping[str, str] | None = None,
    ready_s: float = READY_S,
) -> Iterator[E2eMesh]:
    """Run a mesh for as long as the block lasts; whatever happens, it is gone afterwards."""
    http, grpc = _addresses()
    environ = {**os.environ, **(environment or {})}
    command = [*CLI, "up", str(file), "--http", http, "--grpc", grpc, *more]
    folder.mkdir(parents=True, exist_ok=True)
    said = folder / "up.err"
    with said.open("w") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environ, cwd=ROOT
        )
    with process:
        mesh = E2eMesh(process, http=http, grpc=grpc, errors=said, environ=environ)
        try:
            mesh.wait_ready(ready_s)
            yield mesh
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(END_S)
                finally:
                    process.kill()
    shutil.rmtree(mesh.folder, ignore_errors=True)  # After a failure the logs are worth keeping.


def _addresses() -> tuple[str, str]:
    """Give two free addresses; the ports behind them are for further processes of each kind."""
    while True:
        http, grpc = free_ports(2)
        wanted = [*range(http, http + IN_A_ROW), *range(grpc, grpc + IN_A_ROW)]
        if len(set(wanted)) == len(wanted) and not any(busy("127.0.0.1", at) for at in wanted):
            return f"127.0.0.1:{http}", f"127.0.0.1:{grpc}"


def _metrics_port(pid: int) -> str:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    return words[words.index("--metrics") + 1]
