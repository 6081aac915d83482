from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from stagemesh.cli.status import COLUMNS, merge_status, status_table
from stagemesh.client import ListedOrchestrator, ListedReplica, ReplicaList


def process(role: str, state: str = "ready", **more: Any) -> dict[str, Any]:
    return {
        "role": role,
        "pid": 7,
        "address": "127.0.0.1:1",
        "pool": None,
        "replica_id": f"{role}-0",
        "state": state,
        **more,
    }


WORKER = process("stage_worker", pool="thinker")
ORCHESTRATOR = process("orchestrator", admin_address="127.0.0.1:2")
GATEWAY = process("gateway")


def listed(state: str = "ready", pid: int = 7, inflight: int = 3) -> ReplicaList:
    return ReplicaList(
        orchestrator=ListedOrchestrator(
            id="orchestrator-0", incarnation=0xAB, state="ready", requests_open=4
        ),
        replicas=(
            ListedReplica(
                replica_id="stage_worker-0",
                pool="thinker",
                pid=pid,
                incarnation=0xCD,
                state=state,
                inflight=inflight,
            ),
        ),
    )


def test_every_record_has_the_columns_and_an_orchestrator_its_admin_port() -> None:
    merged = merge_status([WORKER, ORCHESTRATOR, GATEWAY], {}, {})
    assert [tuple(record) for record in merged] == [COLUMNS, (*COLUMNS, "admin_address"), COLUMNS]


def test_a_worker_is_what_the_orchestrators_see() -> None:
    lists = {"127.0.0.1:2": listed(), "127.0.0.1:3": listed(inflight=5)}
    (record,) = merge_status([WORKER], lists, {})
    assert record["state"] == "ready"
    assert record["incarnation"] == "00000000000000cd"
    assert record["inflight"] == 8


@pytest.mark.parametrize("answer", [listed(pid=6), listed(state="")])
def test_what_is_remembered_of_an_earlier_life_does_not_count(answer: ReplicaList) -> None:
    (record,) = merge_status([{**WORKER, "state": "starting"}], {"127.0.0.1:2": answer}, {})
    assert (record["state"], record["incarnation"], record["inflight"]) == ("starting", None, None)


def test_a_draining_worker_is_not_ready() -> None:
    (record,) = merge_status([WORKER], {"127.0.0.1:2": listed("draining")}, {})
    assert record["state"] == "draining"


def test_an_orchestrator_counts_its_requests() -> None:
    (record,) = merge_status([ORCHESTRATOR], {"127.0.0.1:2": listed()}, {})
    assert record["incarnation"] == "00000000000000ab"
    assert record["inflight"] == 4


@pytest.mark.parametrize(
    ("state", "ready", "expected"),
    [
        ("ready", True, "ready"),
        ("ready", False, "not-ready"),
        ("starting", True, "ready"),
        ("starting", False, "starting"),
    ],
)
def test_a_gateway_is_ready_when_it_says_so(state: str, ready: bool, expected: str) -> None:
    (record,) = merge_status([{**GATEWAY, "state": state}], {}, {"127.0.0.1:1": ready})
    assert record["state"] == expected


@pytest.mark.parametrize("state", ["restarting", "crash-loop", "stopping", "stopped"])
def test_what_only_the_launcher_knows_stands(state: str) -> None:
    gone = {**WORKER, "state": state}
    (record,) = merge_status([gone], {"127.0.0.1:2": listed()}, {})
    assert record["state"] == state
    assert record["incarnation"] is None


def test_a_crash_loop_keeps_its_last_lines() -> None:
    gone = {**WORKER, "state": "crash-loop", "last_log": ["words"]}
    (record,) = merge_status([gone], {}, {})
    assert record["last_log"] == ["words"]


def test_the_table_shows_every_column_and_a_dash_for_nothing() -> None:
    out = StringIO()
    Console(file=out, width=200).print(status_table(merge_status([WORKER], {}, {})))
    head, row = out.getvalue().splitlines()
    assert tuple(head.split()) == COLUMNS
    assert row.split() == [
        "stage_worker", "7", "127.0.0.1:1", "thinker", "stage_worker-0", "-", "ready", "-",
    ]  # fmt: skip
