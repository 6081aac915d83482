"""Makes `.venv` what the list of a profile says, and fetches the models' weights.

Needs nothing but a Python of the right age, and does nothing if nothing has changed. The profile
`full` has vLLM for the CPU, `light` has CTranslate2 in its place; a full environment serves both.
"""

import argparse
import fcntl
import hashlib
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
VENV: Final = ROOT / ".venv"
STAMP: Final = VENV / "stagemesh-setup.json"
PYTHON_MIN: Final = (3, 11)

_FIND_LINKS: Final = ".find-links="


def best_profile() -> tuple[str, str]:
    """Return the richest profile that this machine can run, and why."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return "light", "vLLM for the CPU is built for Linux on x86_64 only"
    try:
        able = " avx2 " in Path("/proc/cpuinfo").read_text()
    except OSError:
        able = False
    if not able:
        return "light", "this processor lacks AVX2, which vLLM needs"
    return "full", "this machine can run vLLM"


def find_links() -> list[str]:
    """Return the folders of wheels that pip is set up with here; uv does not read its settings."""
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "config", "list"]
    lines = subprocess.run(pip, check=True, capture_output=True, text=True).stdout.splitlines()
    found = [line.partition(_FIND_LINKS)[2].strip("'\"") for line in lines if _FIND_LINKS in line]
    return sorted({place for value in found for place in value.split()})


def install(profile: str) -> None:
    """Bring the environment to the versions of a profile."""
    if not (VENV / "bin" / "python").exists():
        _say(f"making {VENV}")
        _run(sys.executable, "-m", "venv", str(VENV))
    lock = _lock(profile)
    uv = next(line for line in lock.read_text().splitlines() if line.startswith("uv=="))
    _pip("install", "--no-deps", uv)
    _say(f"installing {lock.relative_to(ROOT)}")
    places = find_links()
    torch = [place for place in places if any(Path(place).glob("torch-*+cpu-*.whl"))]
    links = [f"--find-links={place}" for place in places]
    # The registry's torch for Linux is a CUDA build and needs packages that the list leaves out.
    backend = [] if torch or "UV_TORCH_BACKEND" in os.environ else ["--torch-backend=cpu"]
    _uv("install", "--no-deps", "--compile-bytecode", *links, *backend, "--requirement", str(lock))


def install_project() -> None:
    """Install this checkout itself, in place."""
    _uv("install", "--no-deps", "--no-build-isolation", "--editable", str(ROOT))


def main() -> int:
    """Set up, and say what is done and how long it takes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", choices=["full", "light"], help="by itself the best that runs")
    parser.add_argument("--show-profile", action="store_true", help="print what would be taken")
    parser.add_argument("--no-weights", action="store_true", help="leave the models' weights alone")
    asked = parser.parse_args()
    if sys.version_info < PYTHON_MIN:
        _say(f"Python 3.11 or newer is needed, this is {platform.python_version()}")
        return 1
    began_s = time.monotonic()
    best, why = best_profile()
    profile = asked.profile or best
    if asked.show_profile:
        print(profile)
        return 0
    if asked.profile is None and profile != "full":
        _say(f"taking the profile {profile}: {why}")
    try:
        with _alone():
            _settle(profile)
        if not asked.no_weights:
            weights = "services.stage_worker.engines.support.weights"
            _run(str(VENV / "bin" / "python"), "-m", weights, "pull", "--quiet")
    except subprocess.CalledProcessError as error:
        _say(f"this command failed: {shlex.join(error.cmd)}")
        return 1
    _say(f"ready after {time.monotonic() - began_s:.1f} s")
    return 0


@contextmanager
def _alone() -> Iterator[None]:
    VENV.mkdir(exist_ok=True)
    with (VENV / "stagemesh-setup.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _settle(profile: str) -> None:
    stamp = _read_stamp()
    project = _digest(ROOT / "pyproject.toml")
    if stamp.get("lock") not in {_digest(_lock(name)) for name in {profile, "full"}}:
        STAMP.unlink(missing_ok=True)
        install(profile)
        stamp = {"lock": _digest(_lock(profile))}
    if stamp.get("project") != project:
        install_project()
        stamp["project"] = project
        STAMP.write_text(json.dumps(stamp) + "\n")


def _lock(profile: str) -> Path:
    return ROOT / "requirements" / f"{profile}.lock"


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _read_stamp() -> dict[str, str]:
    try:
        return dict(json.loads(STAMP.read_text()))
    except (OSError, ValueError):
        return {}


def _pip(*arguments: str) -> None:
    _run(
        str(VENV / "bin" / "python"), "-m", "pip", "-qq", "--disable-pip-version-check", *arguments
    )


def _uv(command: str, *arguments: str) -> None:
    python = f"--python={VENV / 'bin' / 'python'}"
    _run(str(VENV / "bin" / "uv"), "pip", command, "--quiet", python, *arguments)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, cwd=ROOT)


def _say(line: str) -> None:
    print(f"setup: {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
