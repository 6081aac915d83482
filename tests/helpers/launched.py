"""A mesh that `stagemesh up` runs, as a person would."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from stagemesh.cli.ports import free_ports

__all__ = ["Launched", "launched"]

MESH = """\
pools:
  thinker: {engine: synthetic, replicas: 2}
pipelines:
  echo:
    stages: {thinker: {pool: thinker, bridge: script}}
    outputs: {text: thinker}
"""
CLI = [sys.executable, "-m", "stagemesh.cli"]


class Launched:
    """The launcher's process, and what it prints."""

    def __init__(self, process: subprocess.Popen[str], http: str) -> None:
        self.process = process
        self.http = http
        self._lines: SimpleQueue[str] = SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self._lines.put(line)

    def next_line(self, timeout_s: float) -> str:
        """Wait for the next line on stdout."""
        return self._lines.get(timeout=timeout_s).strip()

    def status(self) -> list[dict[str, Any]]:
        """Ask `stagemesh status --json`."""
        asked = subprocess.run(
            [*CLI, "status", "--json", "--http", self.http],
            capture_output=True, text=True, check=True, timeout=30,
        )  # fmt: skip
        records: list[dict[str, Any]] = json.loads(asked.stdout)
        return records

    def end(self, timeout_s: float) -> tuple[int, list[str]]:
        """Wait for its end; give its exit code and the lines nobody took."""
        code = self.process.wait(timeout_s)
        self._reader.join(timeout_s)
        left = []
        while True:
            try:
                left.append(self._lines.get_nowait().strip())
            except Empty:
                return code, left


@contextmanager
def launched(tmp_path: Path, environment: dict[str, str], *more: str) -> Iterator[Launched]:
    """Run a small mesh of scripted workers; whatever happens, it is gone afterwards."""
    mesh = tmp_path / "mesh.yaml"
    mesh.write_text(MESH)
    http, grpc = (f"127.0.0.1:{port}" for port in free_ports(2))
    command = [*CLI, "up", str(mesh), "--http", http, "--grpc", grpc, *more]
    with (tmp_path / "up.err").open("w") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
        )
    with process:
        try:
            yield Launched(process, http)
        finally:
            process.kill()
