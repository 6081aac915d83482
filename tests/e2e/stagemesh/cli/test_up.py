import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.helpers.launched import Launched, launched

READY_S = 60.0


@pytest.fixture
def mesh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Launched]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with launched(tmp_path, dict(os.environ)) as mesh:
        assert mesh.next_line(READY_S) == "ready"
        yield mesh


def echo(mesh: Launched, script: str) -> dict[str, Any]:
    body = {"model": "echo", "messages": [{"role": "user", "content": f"#synthetic {script}"}]}
    answer = httpx.post(f"http://{mesh.http}/v1/chat/completions", json=body, timeout=30)
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()
    return result


def until(
    mesh: Launched, holds: Callable[[list[dict[str, Any]]], bool], timeout_s: float = 30.0
) -> list[dict[str, Any]]:
    """Ask for the status until something holds; each question takes a while of its own."""
    deadline_s = time.monotonic() + timeout_s
    while not holds(found := mesh.status()):
        assert time.monotonic() < deadline_s, found
    return found


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def of_ours(incarnations: set[str]) -> list[str]:
    """Give what processes left in shared memory."""
    names = [entry.name for entry in Path("/dev/shm").glob("stagemesh-*")]
    return [name for name in names if any(mark in name for mark in incarnations)]


def test_a_mesh_answers_lists_itself_and_goes_without_a_trace(
    mesh: Launched, tmp_path: Path
) -> None:
    answer = echo(mesh, '{"tokens": 3}')
    assert answer["choices"][0]["message"]["content"] == " w0 w1 w2"
    records = until(mesh, lambda found: all(r["incarnation"] for r in found[:3]))
    assert [(r["role"], r["pool"], r["replica_id"], r["state"]) for r in records] == [
        ("stage_worker", "thinker", "thinker-0", "ready"),
        ("stage_worker", "thinker", "thinker-1", "ready"),
        ("orchestrator", None, "orchestrator-0", "ready"),
        ("gateway", None, "gateway-0", "ready"),
    ]
    assert {r["inflight"] for r in records[:3]} == {0}
    assert len({r["incarnation"] for r in records[:3]}) == 3

    began_s = time.monotonic()
    mesh.process.send_signal(signal.SIGTERM)
    assert mesh.end(15.0) == (0, [])
    assert time.monotonic() - began_s < 15.0
    assert not any(alive(r["pid"]) for r in records)
    assert of_ours({r["incarnation"] for r in records[:3]}) == []
    assert list((tmp_path / "cache" / "stagemesh" / "run").iterdir()) == []


def test_a_killed_worker_comes_back_as_a_new_incarnation(mesh: Launched) -> None:
    before = until(mesh, lambda found: all(r["incarnation"] for r in found[:3]))
    os.kill(before[0]["pid"], signal.SIGKILL)

    def back(found: list[dict[str, Any]]) -> bool:
        return found[0]["incarnation"] not in {None, before[0]["incarnation"]}

    after = until(mesh, back)
    assert (after[0]["state"], after[1]["state"]) == ("ready", "ready")
    assert after[0]["address"] == before[0]["address"]
    assert [r["pid"] for r in after[1:]] == [r["pid"] for r in before[1:]]
    assert of_ours({before[0]["incarnation"]}) == []
    for _ in range(4):
        assert echo(mesh, '{"tokens": 1}')["choices"][0]["message"]["content"] == " w0"


def test_a_request_in_flight_is_finished_before_the_mesh_goes(mesh: Launched) -> None:
    body = {
        "model": "echo",
        "stream": True,
        "messages": [{"role": "user", "content": '#synthetic {"tokens": 40, "each_ms": 50}'}],
    }
    text = ""
    url = f"http://{mesh.http}/v1/chat/completions"
    with httpx.stream("POST", url, json=body, timeout=30) as answer:
        for line in answer.iter_lines():
            if not text:
                mesh.process.send_signal(signal.SIGINT)
            text += line
    assert '" w39' in text
    assert text.endswith("data: [DONE]")
    assert mesh.end(15.0) == (0, [])


def test_nothing_outlives_a_launcher_that_is_killed(mesh: Launched) -> None:
    pids = [record["pid"] for record in mesh.status()]
    mesh.process.kill()
    mesh.process.wait(5)
    deadline_s = time.monotonic() + 5.0
    while any(alive(pid) for pid in pids):
        assert time.monotonic() < deadline_s
        os.sched_yield()
