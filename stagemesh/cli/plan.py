"""Which processes a mesh needs, and what each is told. Pure."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from stagemesh.cli.supervision import DRAIN_S, Role
from stagemesh.pipeline import Mesh

__all__ = [
    "Plan",
    "ProcessSpec",
    "Size",
    "discovery_text",
    "make_plan",
    "moved",
    "ports_needed",
]

_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """One process: its command, and where others find it.

    `address` is what it is known by (a gateway's HTTP, an orchestrator's client port, a worker's
    gRPC); `admin_address` is set for orchestrators, `pool` for workers. `private` are those of its
    addresses that nobody outside the mesh was promised.
    """

    role: Role
    id: str
    address: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    pool: str = ""
    admin_address: str = ""
    private: tuple[str, ...] = ()


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
    processes = (*workers, *orchestrators, *gateways)
    return Plan(
        processes=processes, models=tuple(mesh.pipelines), discovery=discovery_text(processes)
    )


def discovery_text(processes: Iterable[ProcessSpec]) -> str:
    """Write the file by which processes find each other."""
    groups: dict[str, list[dict[str, str]]] = {}
    for spec in processes:
        if spec.role is Role.ORCHESTRATOR:
            entry = {"id": spec.id, "address": _flag(spec, "--link")}
            groups.setdefault("orchestrators", []).append(entry)
        elif spec.role is Role.STAGE_WORKER:
            entry = {"id": spec.id, "address": spec.address}
            groups.setdefault(f"pool/{spec.pool}", []).append(entry)
    return json.dumps({"groups": groups}, indent=2) + "\n"


def moved(spec: ProcessSpec, addresses: Mapping[str, str]) -> ProcessSpec:
    """Give a process other addresses in place of some of its own."""

    def new(word: str) -> str:
        return addresses.get(word, word)

    return replace(
        spec,
        address=new(spec.address),
        admin_address=new(spec.admin_address),
        command=tuple(map(new, spec.command)),
        private=tuple(map(new, spec.private)),
    )


def _workers(
    mesh: Mesh, mesh_path: Path, free: Iterator[str], python: str
) -> Iterator[ProcessSpec]:
    for pool in mesh.pools.values():
        for at in range(pool.replicas):
            name, address, metrics = f"{pool.name}-{at}", next(free), next(free)
            command = [python, "-m", "services.stage_worker", "--mesh", str(mesh_path)]
            command += ["--pool", pool.name, "--replica-id", name]
            command += ["--listen", address, "--metrics", metrics]
            yield ProcessSpec(
                role=Role.STAGE_WORKER,
                id=name,
                address=address,
                command=tuple(command),
                env={**_drain(Role.STAGE_WORKER), **pool.env},
                pool=pool.name,
                private=(address, metrics),
            )


def _orchestrators(
    size: Size, paths: Sequence[str], free: Iterator[str], python: str
) -> Iterator[ProcessSpec]:
    host, first = size.grpc
    for at in range(size.orchestrators):
        name, address = f"orchestrator-{at}", f"{host}:{first + at}"
        admin, link, metrics = next(free), next(free), next(free)
        command = [python, "-m", "services.orchestrator", *paths, "--id", name]
        command += ["--grpc", address]
        command += ["--link", link, "--admin", admin, "--metrics", metrics]
        command += ["--orchestrators", str(size.orchestrators)]
        yield ProcessSpec(
            role=Role.ORCHESTRATOR,
            id=name,
            address=address,
            command=(*command, *_insecure(size)),
            env=_drain(Role.ORCHESTRATOR),
            admin_address=admin,
            private=(admin, link, metrics),
        )


def _gateways(
    size: Size, discovery_path: Path, free: Iterator[str], python: str
) -> Iterator[ProcessSpec]:
    host, first = size.http
    for at in range(size.gateways):
        name, address, payload = f"gateway-{at}", f"{host}:{first + at}", next(free)
        command = [python, "-m", "services.gateway", "--id", name]
        command += ["--discovery", f"file:{discovery_path}", "--http", address]
        command += ["--payload", payload]
        yield ProcessSpec(
            role=Role.GATEWAY,
            id=name,
            address=address,
            command=(*command, *_insecure(size)),
            env=_drain(Role.GATEWAY),
            private=(payload,),
        )


def _drain(role: Role) -> dict[str, str]:
    return {"STAGEMESH_DRAIN_S": str(DRAIN_S[role])}


def _insecure(size: Size) -> tuple[str, ...]:
    return ("--insecure",) if size.insecure else ()


def _flag(spec: ProcessSpec, flag: str) -> str:
    return spec.command[spec.command.index(flag) + 1]
