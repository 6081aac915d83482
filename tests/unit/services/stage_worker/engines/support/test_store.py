"""Folders of weights are made whole or not at all, and known by their digest."""

import os
from pathlib import Path

import pytest

from services.stage_worker.engines.support.store import (
    cache_root,
    digest_of,
    locked,
    made_whole,
    sweep,
)


def test_the_cache_lies_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_root() == tmp_path / "stagemesh" / "models"


def test_the_cache_lies_below_home_if_the_environment_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_root() == Path.home() / ".cache" / "stagemesh" / "models"


def test_a_folder_appears_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "hf"
    with made_whole(target) as draft:
        (draft / "a").write_text("1")
        assert not target.exists()
    assert (target / "a").read_text() == "1"
    assert [entry.name for entry in tmp_path.iterdir()] == ["hf"]


def test_a_folder_that_failed_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="disk"), made_whole(tmp_path / "hf"):
        raise OSError("disk is full")
    assert list(tmp_path.iterdir()) == []


def test_a_new_folder_takes_the_place_of_an_old_one(tmp_path: Path) -> None:
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "old").touch()
    with made_whole(tmp_path / "hf") as draft:
        (draft / "new").touch()
    assert [file.name for file in (tmp_path / "hf").iterdir()] == ["new"]


def test_what_a_dead_process_left_is_swept_away(tmp_path: Path) -> None:
    (tmp_path / ".hf.99999.draft" / "deep").mkdir(parents=True)
    (tmp_path / "hf").mkdir()
    with locked(tmp_path):
        sweep(tmp_path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".lock", "hf"]


def test_the_digest_covers_names_and_contents(tmp_path: Path) -> None:
    digests = set()
    for number, (name, text) in enumerate(
        [("a.json", "1"), ("b.json", "1"), ("a.json", "2"), ("deep/a.json", "1")]
    ):
        file = tmp_path / str(number) / name
        file.parent.mkdir(parents=True)
        file.write_text(text)
        digests.add(digest_of(tmp_path / str(number), tmp_path / f"{number}.note"))
    assert len(digests) == 4


def test_the_digest_leaves_out_what_no_model_reads(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"weights")
    before = digest_of(model, tmp_path / "1.note")
    (model / "README.md").write_text("words")
    assert digest_of(model, tmp_path / "2.note") == before


def test_the_digest_of_a_file_covers_its_companions(tmp_path: Path) -> None:
    voice = tmp_path / "voice.onnx"
    voice.write_bytes(b"weights")
    before = digest_of(voice, tmp_path / "1.note")
    (tmp_path / "voice.onnx.json").write_text("{}")
    assert digest_of(voice, tmp_path / "2.note") != before


def test_the_digest_is_remembered_until_a_file_changes(tmp_path: Path) -> None:
    file, note = tmp_path / "model" / "model.onnx", tmp_path / "note"
    file.parent.mkdir()
    file.write_bytes(b"one")
    first = digest_of(file.parent, note)
    times = (file.stat().st_atime_ns, file.stat().st_mtime_ns)
    file.write_bytes(b"two")
    os.utime(file, ns=times)
    assert digest_of(file.parent, note) == first
    os.utime(file, ns=(times[0], times[1] + 1))
    assert digest_of(file.parent, note) != first


def test_a_spoilt_note_is_made_anew(tmp_path: Path) -> None:
    file, note = tmp_path / "model.onnx", tmp_path / "note"
    file.write_bytes(b"one")
    first = digest_of(file, note)
    note.write_text("[]")
    assert digest_of(file, note) == first
    note.write_text("{")
    assert digest_of(file, note) == first


def test_a_note_that_cannot_be_written_costs_time_only(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(b"one")
    (tmp_path / "not-a-folder").touch()
    note = tmp_path / "not-a-folder" / "note"
    assert digest_of(file, note) == digest_of(file, tmp_path / "note")
