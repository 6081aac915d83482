"""Which orchestrator a command asks, and what it says of the answer."""

from typing import Any

import pytest

from stagemesh.cli import operate
from stagemesh.cli.operate import admins_of, ask_any, results_told, take_out
from stagemesh.client import ReplicaResult
from stagemesh.errors import MeshError
from stagemesh.outcome import error_for

PROCESSES: list[dict[str, Any]] = [
    {"role": "gateway", "replica_id": "gateway-0"},
    {"role": "orchestrator", "replica_id": "o-0", "admin_address": "a:1"},
    {"role": "orchestrator", "replica_id": "o-1", "admin_address": "a:2"},
    {"role": "stage_worker", "replica_id": "t-0"},
]


def result(reason: str = "") -> ReplicaResult:
    return ReplicaResult(pool="p", replica_id="t-0", reason=reason, message="why")


def test_every_orchestrator_has_an_admin_port() -> None:
    assert admins_of(PROCESSES) == {"o-0": "a:1", "o-1": "a:2"}


async def test_the_next_orchestrator_is_asked_if_one_cannot_be_reached() -> None:
    asked: list[str] = []

    async def ask(address: str) -> list[ReplicaResult]:
        asked.append(address)
        if address == "a:1":
            raise MeshError(error_for("link_lost"))
        return [result()]

    assert await ask_any(PROCESSES, ask) == [result()]
    assert asked == ["a:1", "a:2"]
    with pytest.raises(MeshError):
        await ask_any(PROCESSES[:2], ask)


async def test_a_refusal_is_final() -> None:
    async def ask(address: str) -> list[ReplicaResult]:
        raise MeshError(error_for("invalid_value", address))

    with pytest.raises(MeshError, match="a:1"):
        await ask_any(PROCESSES, ask)


async def test_each_name_is_taken_out_where_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    async def call(
        address: str, replica_ids: Any, *, orchestrator: bool, **more: float
    ) -> list[ReplicaResult]:
        asked.append((address, tuple(replica_ids), orchestrator, more))
        return [result()] if replica_ids else []

    monkeypatch.setattr(operate, "drain", call)
    monkeypatch.setattr(operate, "undrain", call)
    assert await take_out(PROCESSES, ["o-1", "t-0"], drain_s=3.0, undo=False) == [result()]
    await take_out(PROCESSES, ["o-0"], drain_s=3.0, undo=True)
    assert asked == [
        ("a:2", (), True, {"drain_s": 3.0}),
        ("a:1", ("t-0",), False, {"drain_s": 3.0}),
        ("a:1", (), True, {"timeout_s": 30.0}),
    ]
    with pytest.raises(MeshError, match="gateway-0 is neither"):
        await take_out(PROCESSES, ["gateway-0"], drain_s=3.0, undo=False)


def test_each_replica_has_its_line() -> None:
    assert results_told([result(), result("conflict")]) == [
        "p/t-0: done",
        "p/t-0: conflict: why",
    ]
