import json
from pathlib import Path

import pytest

from stagemesh.cli.plan import (
    Plan,
    ProcessSpec,
    Size,
    discovery_text,
    make_plan,
    moved,
    ports_needed,
)
from stagemesh.cli.supervision import Role
from stagemesh.pipeline import parse_mesh

MESH = parse_mesh("""\
pools:
  thinker: {engine: synthetic, replicas: 2, env: {OMP_NUM_THREADS: "1"}}
  talker: {engine: synthetic, options: {gives: audio}}
pipelines:
  talk:
    stages:
      thinker: {pool: thinker}
      talker: {pool: talker, inputs: [thinker]}
    outputs: {audio: talker}
""")
SIZE = Size(http=("127.0.0.1", 8000), grpc=("127.0.0.1", 9000), gateways=2, orchestrators=2)


def plan(size: Size = SIZE) -> Plan:
    return make_plan(
        MESH,
        size,
        mesh_path=Path("/run/mesh.yaml"),
        discovery_path=Path("/run/discovery.json"),
        dump_path=Path("/run/logs"),
        ports=range(20_000, 20_000 + ports_needed(MESH, size)),
        python="py",
    )


def spec(name: str) -> ProcessSpec:
    return next(spec for spec in plan().processes if spec.id == name)


def flags(name: str) -> dict[str, str]:
    command = spec(name).command[3:]
    return dict(zip(command[::2], command[1::2], strict=True))


def test_there_is_a_process_for_each_replica_orchestrator_and_gateway() -> None:
    assert [(spec.role, spec.id, spec.pool) for spec in plan().processes] == [
        (Role.STAGE_WORKER, "thinker-0", "thinker"),
        (Role.STAGE_WORKER, "thinker-1", "thinker"),
        (Role.STAGE_WORKER, "talker-0", "talker"),
        (Role.ORCHESTRATOR, "orchestrator-0", ""),
        (Role.ORCHESTRATOR, "orchestrator-1", ""),
        (Role.GATEWAY, "gateway-0", ""),
        (Role.GATEWAY, "gateway-1", ""),
    ]
    assert plan().models == ("talk",)


def test_a_worker_is_told_its_pool_and_ports() -> None:
    worker = spec("thinker-1")
    assert worker.command[:3] == ("py", "-m", "services.stage_worker")
    assert flags("thinker-1") == {
        "--mesh": "/run/mesh.yaml",
        "--pool": "thinker",
        "--replica-id": "thinker-1",
        "--listen": worker.address,
        "--metrics": "127.0.0.1:20003",
    }
    assert worker.address == "127.0.0.1:20002"


def test_a_worker_has_its_pool_s_environment_and_everybody_a_time_to_drain() -> None:
    assert spec("thinker-0").env == {"OMP_NUM_THREADS": "1", "STAGEMESH_DRAIN_S": "1.0"}
    assert spec("orchestrator-0").env == {"STAGEMESH_DRAIN_S": "4.0"}
    assert spec("gateway-0").env == {"STAGEMESH_DRAIN_S": "8.0"}


def test_orchestrators_take_public_ports_in_a_row_and_know_how_many_they_are() -> None:
    first, second = flags("orchestrator-0"), flags("orchestrator-1")
    assert (first["--grpc"], second["--grpc"]) == ("127.0.0.1:9000", "127.0.0.1:9001")
    assert spec("orchestrator-1").admin_address == second["--admin"]
    assert first["--orchestrators"] == "2"
    assert first["--discovery"] == "file:/run/discovery.json"


def test_gateways_take_public_ports_in_a_row() -> None:
    assert spec("gateway-0").address == flags("gateway-0")["--http"] == "127.0.0.1:8000"
    assert spec("gateway-1").address == flags("gateway-1")["--http"] == "127.0.0.1:8001"
    assert SIZE.public == (
        ("127.0.0.1", 8000),
        ("127.0.0.1", 8001),
        ("127.0.0.1", 9000),
        ("127.0.0.1", 9001),
    )


def test_discovery_has_the_link_ports_and_each_pool_s_workers() -> None:
    groups = json.loads(plan().discovery)["groups"]
    assert groups == {
        "orchestrators": [
            {"id": "orchestrator-0", "address": flags("orchestrator-0")["--link"]},
            {"id": "orchestrator-1", "address": flags("orchestrator-1")["--link"]},
        ],
        "pool/thinker": [
            {"id": "thinker-0", "address": "127.0.0.1:20000"},
            {"id": "thinker-1", "address": "127.0.0.1:20002"},
        ],
        "pool/talker": [{"id": "talker-0", "address": "127.0.0.1:20004"}],
    }


def test_an_address_is_private_if_only_the_mesh_needs_to_know_it() -> None:
    private = {process.id: process.private for process in plan().processes}
    worker, orchestrator = flags("thinker-0"), flags("orchestrator-0")
    assert private["thinker-0"] == (worker["--listen"], worker["--metrics"])
    assert set(private["orchestrator-0"]) == {
        orchestrator[name] for name in ("--admin", "--link", "--metrics")
    }
    assert private["gateway-0"] == (flags("gateway-0")["--payload"],)


def test_a_process_that_moves_is_told_and_found_at_its_new_address() -> None:
    worker, orchestrator = spec("thinker-0"), spec("orchestrator-0")
    link = flags("orchestrator-0")["--link"]
    there = moved(worker, {worker.address: "127.0.0.1:7"})
    elsewhere = moved(orchestrator, {link: "127.0.0.1:8", orchestrator.admin_address: "h:9"})
    assert there.address == there.private[0] == "127.0.0.1:7"
    assert there.command[there.command.index("--listen") + 1] == "127.0.0.1:7"
    assert there.private[1] == worker.private[1]
    assert (elsewhere.admin_address, elsewhere.address) == ("h:9", orchestrator.address)
    assert json.loads(discovery_text((there, elsewhere)))["groups"] == {
        "orchestrators": [{"id": "orchestrator-0", "address": "127.0.0.1:8"}],
        "pool/thinker": [{"id": "thinker-0", "address": "127.0.0.1:7"}],
    }


def test_no_port_is_given_twice() -> None:
    used = [
        value
        for process in plan().processes
        for flag, value in zip(process.command, process.command[1:], strict=False)
        if flag in {"--listen", "--metrics", "--grpc", "--link", "--admin", "--http", "--payload"}
    ]
    assert len(used) == len(set(used)) == ports_needed(MESH, SIZE) + len(SIZE.public)


@pytest.mark.parametrize("insecure", [False, True])
def test_only_public_processes_hear_of_insecure(insecure: bool) -> None:
    size = Size(http=SIZE.http, grpc=SIZE.grpc, insecure=insecure)
    told = {spec.role for spec in plan(size).processes if "--insecure" in spec.command}
    assert told == ({Role.GATEWAY, Role.ORCHESTRATOR} if insecure else set())
