import json
import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stagemesh.cli import commands, main
from stagemesh.cli.run_folder import RunFolder
from stagemesh.pipeline import mesh_schema


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def stagemesh(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_the_version_is_the_distribution_s() -> None:
    assert stagemesh("--version").output == "stagemesh, version 0.1.0\n"


def test_a_right_file_is_summed_up() -> None:
    result = stagemesh("validate", "synthetic")
    assert result.exit_code == 0
    assert result.output.splitlines()[0].endswith("8 pipelines, 9 pools, 18 workers")
    assert "): thinker -> talker -> codec" in result.output


@pytest.mark.parametrize("command", ["validate", "up"])
def test_every_mistake_of_a_file_is_printed_with_its_line(command: str, tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text("pools: {p: {engin: x}}\npipelines: {}\n")
    result = stagemesh(command, str(path))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        f"{path}: line 1: pools.p: the key engine is missing",
        f"{path}: line 1: pools.p.engin: unknown key; did you mean engine?",
        f"{path}: line 2: pipelines: needs at least 1 entries",
    ]


def test_a_file_that_is_not_there_is_told() -> None:
    result = stagemesh("validate", "nowhere")
    assert result.exit_code == 2
    assert "nowhere: No such file or directory; the shipped meshes are demo" in result.stderr


def test_the_schema_is_printed_as_json() -> None:
    assert json.loads(stagemesh("schema").stdout) == mesh_schema()


@pytest.mark.parametrize(
    "address", ["8000", "127.0.0.1:", ":8000", "127.0.0.1:0", "h:x", "h:99999"]
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    result = stagemesh("up", "synthetic", "--http", address)
    assert result.exit_code == 2
    assert "Invalid value for '--http'" in result.stderr


def test_a_busy_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        result = stagemesh("up", "synthetic", "--http", address)
    assert result.exit_code == 1
    assert result.stderr == f"{address}: Address already in use\n"


def test_public_ports_must_not_overlap() -> None:
    result = stagemesh(
        "up", "synthetic", "--http", "127.0.0.1:7999", "--grpc", "127.0.0.1:8000", "--gateways", "2"
    )
    assert result.exit_code == 2
    assert "127.0.0.1:8000: the gateways' and orchestrators' ports overlap" in result.stderr


def test_public_ports_must_not_overlap_by_another_name_of_their_host_either() -> None:
    result = stagemesh(
        "up", "synthetic", "--http", "127.0.0.1:7998", "--grpc", "localhost:7999",
        "--gateways", "2",
    )  # fmt: skip
    assert result.exit_code == 2
    assert "localhost:7999: the gateways' and orchestrators' ports overlap" in result.stderr


def test_an_open_address_without_tls_needs_a_word() -> None:
    result = stagemesh("up", "synthetic", "--http", "0.0.0.0:8000")
    assert result.exit_code == 2
    assert result.stderr == "0.0.0.0:8000 is not loopback and has no TLS; --insecure allows it\n"


def test_a_second_mesh_at_one_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "busy", lambda _host, _port: "")
    with RunFolder("127.0.0.1:8000"):
        result = stagemesh("up", "synthetic")
    assert result.exit_code == 1
    assert "127.0.0.1:8000: a mesh runs there already" in result.stderr


@pytest.mark.parametrize("command", [["status"], ["explain", "req_a"]])
def test_a_command_for_a_running_mesh_says_that_none_runs(command: list[str]) -> None:
    result = stagemesh(*command, "--http", "127.0.0.1:8123")
    assert result.exit_code == 1
    assert result.stderr == "no mesh runs at 127.0.0.1:8123; `stagemesh up` starts one\n"


@pytest.fixture
def state() -> list[dict[str, Any]]:
    return [
        {
            "role": "stage_worker",
            "pid": None,
            "address": "127.0.0.1:1",
            "pool": "thinker",
            "replica_id": "thinker-0",
            "state": "crash-loop",
            "last_log": ["some last words"],
        }
    ]


def test_status_prints_what_the_launcher_says(state: list[dict[str, Any]]) -> None:
    with RunFolder("127.0.0.1:8123") as folder:
        folder.write_state(state, ready=False)
        table = stagemesh("status", "--http", "127.0.0.1:8123")
        as_json = stagemesh("status", "--http", "127.0.0.1:8123", "--json")
    assert table.exit_code == as_json.exit_code == 0
    assert "thinker-0" in table.stdout
    assert table.stdout.endswith("thinker-0: crash-loop; its last lines:\n    some last words\n")
    assert json.loads(as_json.stdout) == [{**state[0], "incarnation": None, "inflight": None}]


def test_pull_runs_the_program_of_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []

    class Done:
        returncode = 3

    def run(command: list[str], **_: object) -> Done:
        ran.append(command)
        return Done()

    monkeypatch.setattr("subprocess.run", run)
    assert stagemesh("models", "pull", "joe").exit_code == 3
    assert ran[0][1:] == ["-m", "services.stage_worker.engines.support.weights", "pull", "joe"]
