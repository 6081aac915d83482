"""The program that converts weights runs exactly the step that it is told."""

from pathlib import Path

import pytest

from services.stage_worker.engines.support import convert
from services.stage_worker.engines.support.weights import MODELS, Converted


def test_the_step_that_is_named_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Path, Path]] = []
    monkeypatch.setitem(
        convert.STEPS, "gguf-to-hf", lambda source, target: seen.append((source, target))
    )
    assert convert.main(["gguf-to-hf", "/from", "/to"]) == 0
    assert seen == [(Path("/from"), Path("/to"))]


def test_an_unknown_step_is_an_error() -> None:
    with pytest.raises(KeyError):
        convert.main(["gguf-to-nothing", "/from", "/to"])


def test_every_step_that_a_model_needs_exists() -> None:
    needed = {
        how.step
        for model in MODELS.values()
        for how in model.formats.values()
        if isinstance(how, Converted)
    }
    assert needed == set(convert.STEPS)
