"""Children of a worker die with it, whoever kills it."""

import multiprocessing
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from services.stage_worker.engines.support.children import VARIABLE, die_with_parent, family

PROGRAM = textwrap.dedent(
    """
    import multiprocessing, os, signal, sys
    from services.stage_worker.engines.support.children import die_with_parent

    def child(ready):
        die_with_parent()
        ready.put(os.getpid())
        signal.pause()

    if __name__ == "__main__":
        spawn = multiprocessing.get_context("spawn")
        ready = spawn.Queue()
        spawn.Process(target=child, args=(ready,)).start()
        print(ready.get(), flush=True)
        sys.stdin.read()
    """
)


def ends(pid: int, *, within_s: float) -> bool:
    """Wait for the end of a process that need not be our child."""
    try:
        psutil.Process(pid).wait(within_s)
    except psutil.TimeoutExpired:
        return False
    except psutil.NoSuchProcess:
        pass
    return True


@pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")
@pytest.mark.parametrize("asked", [True, False])
def test_a_child_dies_with_a_killed_parent_if_that_was_asked_for(
    tmp_path: Path, asked: bool
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd()), VARIABLE: "1" if asked else ""}
    with subprocess.Popen(
        [sys.executable, program],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert {parent.pid, child} <= set(family(os.getpid()))
        parent.kill()
    try:
        assert ends(child, within_s=5.0 if asked else 0.5) is asked
    finally:
        if psutil.pid_exists(child):
            psutil.Process(child).kill()


def test_a_process_that_no_process_of_ours_started_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    die_with_parent()
    assert multiprocessing.parent_process() is None
