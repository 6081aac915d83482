"""Writes or checks the lists of exact versions in `requirements/`.

Run it by `make lock` after a change of the dependencies in `pyproject.toml`; `--check` compares the
lists with that file and with each other, and asks no registry.
"""

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.setup_venv import ROOT, VENV, find_links

PROFILES: Final[Mapping[str, Sequence[str]]] = {
    "full": ("gateway", "worker-light", "worker-diffusers", "worker-vllm-cpu", "dev"),
    "light": ("gateway", "worker-light", "worker-diffusers", "dev"),
    "base": ("gateway", "orchestrator"),
}
# vllm-cpu asks for these and needs none of them here; torchvision and its kin break it where their
# build does not fit that of torch, and triton alone takes a gigabyte.
LEFT_OUT: Final = ("torchaudio", "torchcodec", "torchvision", "triton")


def write(profile: str, fixed: Path | None) -> Path:
    """Resolve a profile and write its list; versions in `fixed` stay as they are there."""
    lock = ROOT / "requirements" / f"{profile}.lock"
    command = [str(VENV / "bin" / "uv"), "pip", "compile", "--quiet", "--upgrade"]
    command += ["--python-version", "3.11", "--no-header", "--no-annotate", "--no-emit-index-url"]
    command += [f"--extra={extra}" for extra in PROFILES[profile]]
    command += [f"--no-emit-package={name}" for name in LEFT_OUT]
    command += [f"--find-links={place}" for place in find_links()]
    command += [f"--constraint={fixed}"] if fixed else []
    done = subprocess.run(
        [*command, str(ROOT / "pyproject.toml")], check=True, stdout=subprocess.PIPE, text=True
    )
    pins = [re.sub(r"\+[\w.]+", "", line) for line in done.stdout.splitlines() if "==" in line]
    head = f"# Written by `make lock` for PROFILE={profile}. Complete: install it with --no-deps.\n"
    lock.write_text(head + "".join(f"{pin}\n" for pin in pins))
    return lock


def problems() -> list[str]:
    """Say in what the lists differ from `pyproject.toml` or from each other."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: list[str] = []
    full = _pins("full")
    for profile, extras in PROFILES.items():
        pins = _pins(profile)
        wanted = list(project["dependencies"])
        for extra in extras:
            wanted += project["optional-dependencies"][extra]
        for requirement in map(Requirement, wanted):
            pin = pins.get(canonicalize_name(requirement.name))
            if pin is None or not requirement.specifier.contains(pin):
                found.append(f"{profile}.lock has {pin or 'nothing'} for {requirement}")
        found += [
            f"{profile}.lock has {name} {pin}, full.lock has {full.get(name)}"
            for name, pin in pins.items()
            if full.get(name) != pin
        ]
    return found


def _pins(profile: str) -> dict[str, str]:
    lines = (ROOT / "requirements" / f"{profile}.lock").read_text().splitlines()
    pairs = (line.partition("==") for line in lines if not line.startswith("#"))
    return {canonicalize_name(name): pin.split(";")[0].strip() for name, _, pin in pairs}


def main() -> int:
    """Write all lists, or only check them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    if not parser.parse_args().check:
        full = write("full", None)
        for profile in ("light", "base"):
            write(profile, full)
    found = problems()
    sys.stderr.write("".join(f"{line}; run `make lock`\n" for line in found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
