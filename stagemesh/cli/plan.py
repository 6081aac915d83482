"""Which processes a mesh needs, and what each is told. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stagemesh.cli.supervision import DRAIN_S, Role
from stagemesh.pipeline import Mesh

__all__ = ["Plan", "ProcessSpec", "Size", "make_plan", "ports_needed"]

_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """One process: its command, and where others find it.

    `address` is what it is known by (a gateway's HTTP, an orchestrator's client port, a worker's
    gRPC); `admin_address` is set for orchestrators, `pool` for workers.
    """

    role: Role
    id: str
    address: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    pool: str = ""
    admin_address: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All processes of a mesh, workers first, and the discovery file's text."""

    processes: tuple[ProcessSpec, ...]
    models: tuple[str, ...]
    discovery: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How many gateways and orchestrators there are, and the first public addresses of each."""

    http: tuple[str, int]
    grpc: tuple[str, int]
    gateways: int = 1
    orchestrators: int = 1
    insecure: bool = False

    @property
    def public(self) -> tuple[tuple[str, int], ...]:
        """Every address that was asked for by number: gateways' first, each kind in a row."""
        http = [(self.http[0], self.http[1] + at) for at in range(self.gateways)]
        grpc = [(self.grpc[0], self.grpc[1] + at) for at in range(self.orchestrators)]
        return (*http, *grpc)


def ports_needed(mesh: Mesh, size: Size) -> int:
    """Count the ports that a mesh needs beside its public ones."""
    workers = sum(pool.replicas for pool in mesh.pools.values())
    return 2 * workers + 3 * size.orchestrators + size.gateways


def make_plan(
    mesh: Mesh,
    size: Size,
    *,
    mesh_path: Path,
    discovery_path: Path,
    dump_path: Path,
    ports: Sequence[int],
    python: str,
) -> Plan:
    """Lay out a mesh; `ports` are free ones on loopback, as many as `ports_needed` says."""
    free = iter(f"{_HOST}:{port}" for port in ports)
    workers = tuple(_workers(mesh, mesh_path, free, python))
    paths = ["--mesh", str(mesh_path), "--discovery", f"file:{discovery_path}"]
    paths += ["--dump-directory", str(dump_path)]
    orchestrators = tuple(_orchestrators(size, paths, free, python))
    gateways = tuple(_gateways(size, discovery_path, free, python))
    links = {spec.id: _flag(spec, "--link") for spec in orchestrators}
    groups: dict[str, list[dict[str, str]]] = {
        "orchestrators": [{"id": name, "address": link} for name, link in links.items()]
    }
    for spec in workers:
        entry = {"id": spec.id, "address": spec.address}
        groups.setdefault(f"pool/{spec.pool}", []).append(entry)
    return Plan(
        processes=(*workers, *orchestrators, *gateways),
        models=tuple(mesh.pipelines),
        discovery=json.dumps({"groups": groups}, indent=2) + "\n",
    )


def _workers(
    mesh: Mesh, mesh_path: Path, free: Iterator[str], python: str
) -> Iterator[ProcessSpec]:
    for pool in mesh.pools.values():
        for at in range(pool.replicas):
            name, address = f"{pool.name}-{at}", next(free)
            command = [python, "-m", "services.stage_worker", "--mesh", str(mesh_path)]
            command += ["--pool", pool.name, "--replica-id", name]
            command += ["--listen", address, "--metrics", next(free)]
            yield ProcessSpec(
                role=Role.STAGE_WORKER,
                id=name,
                address=address,
                command=tuple(command),
                env={**_drain(Role.STAGE_WORKER), **pool.env},
                pool=pool.name,
            )


def _orchestrators(
    size: Size, paths: Sequence[str], free: Iterator[str], python: str
) -> Iterator[ProcessSpec]:
    host, first = size.grpc
    for at in range(size.orchestrators):
        name, address, admin = f"orchestrator-{at}", f"{host}:{first + at}", next(free)
        command = [python, "-m", "services.orchestrator", *paths, "--id", name]
        command += ["--grpc", address]
        command += ["--link", next(free), "--admin", admin, "--metrics", next(free)]
        command += ["--orchestrators", str(size.orchestrators)]
        yield ProcessSpec(
            role=Role.ORCHESTRATOR,
            id=name,
            address=address,
            command=(*command, *_insecure(size)),
            env=_drain(Role.ORCHESTRATOR),
            admin_address=admin,
        )


def _gateways(
    size: Size, discovery_path: Path, free: Iterator[str], python: str
) -> Iterator[ProcessSpec]:
    host, first = size.http
    for at in range(size.gateways):
        name, address = f"gateway-{at}", f"{host}:{first + at}"
        command = [python, "-m", "services.gateway", "--id", name]
        command += ["--discovery", f"file:{discovery_path}", "--http", address]
        command += ["--payload", next(free)]
        yield ProcessSpec(
            role=Role.GATEWAY,
            id=name,
            address=address,
            command=(*command, *_insecure(size)),
            env=_drain(Role.GATEWAY),
        )


def _drain(role: Role) -> dict[str, str]:
    return {"STAGEMESH_DRAIN_S": str(DRAIN_S[role])}


def _insecure(size: Size) -> tuple[str, ...]:
    return ("--insecure",) if size.insecure else ()


def _flag(spec: ProcessSpec, flag: str) -> str:
    return spec.command[spec.command.index(flag) + 1]
