"""The command line."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import NoReturn

import click
import msgspec
from rich.console import Console

from stagemesh.cli.explain import gather_stories, story_text
from stagemesh.cli.launcher import Launcher
from stagemesh.cli.meshes import MeshFile, NoMeshFile, read_mesh
from stagemesh.cli.operate import Processes, ask_any, results_told, take_out
from stagemesh.cli.plan import Size, make_plan, ports_needed
from stagemesh.cli.ports import NoFreePorts, busy, free_ports, overlap
from stagemesh.cli.process import child_environment
from stagemesh.cli.progress import make_progress
from stagemesh.cli.readiness import REAL_PROBES
from stagemesh.cli.run_folder import AlreadyRunning, NotRunning, RunFolder, read_state
from stagemesh.cli.status import gather_status, status_table
from stagemesh.client import ReplicaResult, pause, resume, sleep, wake_up
from stagemesh.control import TAGS, PauseMode
from stagemesh.errors import MeshError
from stagemesh.pipeline import Mesh, MeshFileError, mesh_schema
from stagemesh.settings import is_loopback

__all__ = ["main"]

_PORT_MAX = 65_535


class _Address(click.ParamType[tuple[str, int]]):
    """`HOST:PORT`."""

    name = "HOST:PORT"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        host, colon, port = str(value).rpartition(":")
        if not (host and colon and port.isascii() and port.isdigit()):
            self.fail(f"{value} is not of the form HOST:PORT", param, ctx)
        if not 0 < int(port) <= _PORT_MAX:
            self.fail(f"{port} is not a port (1 to {_PORT_MAX})", param, ctx)
        return host.strip("[]"), int(port)


_HTTP = click.option(
    "--http", type=_Address(), default="127.0.0.1:8000", show_default=True, help="The gateway."
)


@click.group()
@click.version_option(package_name="stagemesh", prog_name="stagemesh")
def main() -> None:
    """Serve omni-modality models as a mesh of gRPC stages."""


@main.command()
@click.argument("file")
@_HTTP
@click.option("--grpc", type=_Address(), default="127.0.0.1:50051", show_default=True)
@click.option("--gateways", type=click.IntRange(1, 64), default=1, show_default=True)
@click.option("--orchestrators", type=click.IntRange(1, 64), default=1, show_default=True)
@click.option("--insecure", is_flag=True, help="Allow public addresses that are not loopback.")
def up(
    file: str,
    *,
    http: tuple[str, int],
    grpc: tuple[str, int],
    gateways: int,
    orchestrators: int,
    insecure: bool,
) -> None:
    """Run a whole mesh here, until SIGINT or SIGTERM.

    FILE is a mesh file, or the name of one that is shipped, such as demo. With several gateways or
    orchestrators, the addresses name the first and the others take the next ports. Prints `ready`
    once everything can be used; everything else goes to stderr.
    """
    size = Size(
        http=http, grpc=grpc, gateways=gateways, orchestrators=orchestrators, insecure=insecure
    )
    _, text, mesh = _checked(file)
    _check_addresses(size)
    try:
        with RunFolder(_joined(http)) as folder:
            code = _run(folder, text, mesh, size)
    except (AlreadyRunning, NoFreePorts) as error:
        _give_up(f"{_joined(http)}: {error}", code=1)
    sys.exit(code)


@main.command()
@_HTTP
@click.option("--json", "as_json", is_flag=True, help="A list of objects instead of a table.")
def status(http: tuple[str, int], as_json: bool) -> None:
    """List the processes of the mesh whose first gateway is at --http."""
    records = asyncio.run(gather_status(_processes(http)))
    if as_json:
        click.echo(json.dumps(records, indent=2))
        return
    Console(width=None if sys.stdout.isatty() else 200).print(status_table(records))
    for record in records:
        if record.get("last_log"):
            click.echo(f"\n{record['replica_id']}: {record['state']}; its last lines:")
            click.echo("\n".join(f"    {line}" for line in record["last_log"]))


_POOLS = click.argument("pools", nargs=-1, metavar="[POOL]…")
_TIMEOUT = click.option(
    "--timeout-s", type=click.FloatRange(0, 600), default=30.0, show_default=True
)
_TAGS = click.option("--tag", "tags", type=click.Choice(sorted(TAGS)), multiple=True)


def _mode(*modes: PauseMode) -> Callable[[Callable[..., None]], Callable[..., None]]:
    choice = click.Choice([mode.name.lower() for mode in modes])
    text = "What becomes of what runs."
    return click.option("--mode", type=choice, default="wait", show_default=True, help=text)


@main.command("pause")
@_POOLS
@_HTTP
@_mode(*PauseMode)
@_TIMEOUT
def pause_pools(
    pools: tuple[str, ...], *, http: tuple[str, int], mode: str, timeout_s: float
) -> None:
    """Take nothing new for pools, or for all, until they are resumed."""
    found = PauseMode[mode.upper()]
    _operate(http, lambda admin: pause(admin, pools, found, timeout_s=timeout_s))


@main.command("resume")
@_POOLS
@_HTTP
@_TIMEOUT
def resume_pools(pools: tuple[str, ...], *, http: tuple[str, int], timeout_s: float) -> None:
    """Take work for pools again."""
    _operate(http, lambda admin: resume(admin, pools, timeout_s=timeout_s))


@main.command("sleep")
@_POOLS
@_HTTP
@_mode(PauseMode.ABORT, PauseMode.WAIT)
@_TAGS
@_TIMEOUT
def sleep_pools(
    pools: tuple[str, ...],
    *,
    http: tuple[str, int],
    mode: str,
    tags: tuple[str, ...],
    timeout_s: float,
) -> None:
    """Let the engines of pools give their memory back, until they are woken up and resumed."""
    found = PauseMode[mode.upper()]
    _operate(http, lambda admin: sleep(admin, pools, found, tags, timeout_s=timeout_s))


@main.command("wake")
@_POOLS
@_HTTP
@_TAGS
@_TIMEOUT
def wake_pools(
    pools: tuple[str, ...], *, http: tuple[str, int], tags: tuple[str, ...], timeout_s: float
) -> None:
    """Bring back what a sleep gave away; `resume` then takes work again."""
    _operate(http, lambda admin: wake_up(admin, pools, tags, timeout_s=timeout_s))


@main.command("drain")
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@_HTTP
@click.option("--drain-s", type=click.FloatRange(0, 600), default=30.0, show_default=True)
@click.option("--undo", is_flag=True, help="Take them in again.")
def drain_processes(
    names: tuple[str, ...], *, http: tuple[str, int], drain_s: float, undo: bool
) -> None:
    """Take replicas or orchestrators out without losing a request, and leave them running.

    NAME is what `status` calls `replica_id`. Returns when nothing is left on them.
    """
    _told(_processes(http), lambda all_: take_out(all_, names, drain_s=drain_s, undo=undo))


@main.command()
@click.argument("request_id")
@_HTTP
@click.option("--json", "as_json", is_flag=True, help="A list of objects instead of a timeline.")
def explain(request_id: str, *, http: tuple[str, int], as_json: bool) -> None:
    """Tell what happened to a request, also for a while after its end.

    REQUEST_ID is the `x-request-id` of the answer. Every orchestrator of the mesh whose first
    gateway is at --http is asked; the last owner comes first.
    """
    stories, mute = asyncio.run(gather_stories(_processes(http), request_id))
    for name in mute:
        click.echo(f"{name} does not answer", err=True)
    if not stories:
        _give_up(f"no orchestrator knows of {request_id} (any more)", code=1)
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(stories), indent=2))
        return
    Console(width=None if sys.stdout.isatty() else 200).print(story_text(stories))


@main.command()
@click.argument("file")
def validate(file: str) -> None:
    """Check a mesh file and name every mistake with its line."""
    path, _, mesh = _checked(file)
    replicas = sum(pool.replicas for pool in mesh.pools.values())
    click.echo(
        f"{path}: {len(mesh.pipelines)} pipelines, {len(mesh.pools)} pools, {replicas} workers"
    )
    for pipeline in mesh.pipelines.values():
        stages = " -> ".join(stage.name for stage in pipeline.stages)
        click.echo(f"  {pipeline.name} ({pipeline.revision}): {stages}")


@main.command()
def schema() -> None:
    """Print the JSON Schema of mesh files."""
    click.echo(json.dumps(mesh_schema(), indent=2))


@main.group()
def models() -> None:
    """The weights of models."""


@models.command()
@click.argument("names", nargs=-1, metavar="[NAME]…")
def pull(names: tuple[str, ...]) -> None:
    """Bring weights onto this machine: all that are known, or those named."""
    module = "services.stage_worker.engines.support.weights"
    command = [sys.executable, "-m", module, "pull", *names]
    sys.exit(subprocess.run(command, env=child_environment({}), check=False).returncode)


def _operate(http: tuple[str, int], ask: Callable[[str], Awaitable[list[ReplicaResult]]]) -> None:
    _told(_processes(http), lambda processes: ask_any(processes, ask))


def _told(processes: Processes, ask: Callable[[Processes], Awaitable[list[ReplicaResult]]]) -> None:
    """Say what came of a call; exit with 1 if it failed anywhere."""

    async def run() -> list[ReplicaResult]:
        return await ask(processes)

    try:
        results = asyncio.run(run())
    except MeshError as error:
        where = f"{error.info.param}: " if error.info.param else ""
        _give_up(f"{where}{error.info.message}", code=1)
    for line in results_told(results):
        click.echo(line)
    if any(one.reason for one in results):
        sys.exit(1)


def _processes(http: tuple[str, int]) -> Processes:
    try:
        processes: Processes = read_state(_joined(http))["processes"]
    except NotRunning as error:
        _give_up(str(error), code=1)
    return processes


def _checked(file: str) -> MeshFile:
    try:
        return read_mesh(file)
    except (MeshFileError, NoMeshFile) as error:
        _give_up(str(error), code=2)


def _check_addresses(size: Size) -> None:
    seen: list[tuple[str, int]] = []
    for host, port in size.public:
        address = _joined((host, port))
        if not (size.insecure or is_loopback(address)):
            _give_up(f"{address} is not loopback and has no TLS; --insecure allows it", code=2)
        if port > _PORT_MAX or any(overlap((host, port), other) for other in seen):
            _give_up(f"{address}: the gateways' and orchestrators' ports overlap or end", code=2)
        seen.append((host, port))
        problem = busy(host, port)
        if problem:
            _give_up(f"{address}: {problem}", code=1)


def _run(folder: RunFolder, text: str, mesh: Mesh, size: Size) -> int:
    plan = make_plan(
        mesh,
        size,
        # A copy, so that a worker that comes back runs what the others run.
        mesh_path=folder.write("mesh.yaml", text),
        discovery_path=folder.path / "discovery.json",
        dump_path=folder.logs,
        ports=free_ports(ports_needed(mesh, size), besides={port for _, port in size.public}),
        python=sys.executable,
    )
    folder.write("discovery.json", plan.discovery)
    launcher = Launcher(
        plan,
        folder,
        make_progress(Console(stderr=True)),
        probes=REAL_PROBES,
        announce=lambda: click.echo("ready"),
    )
    code = asyncio.run(_until_signalled(launcher))
    if code == 0 and not launcher.died:
        folder.forget()
    return code


async def _until_signalled(launcher: Launcher) -> int:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, launcher.stop)
    return await launcher.run()


def _joined(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _give_up(message: str, *, code: int) -> NoReturn:
    click.echo(message, err=True)
    sys.exit(code)
