"""Adapters: names that stand for one thing, and folders that may hold safetensors only."""

from pathlib import Path

import pytest

from services.stage_worker.engines.support.adapters import ADAPTERS_MAX, Adapters, folder_of
from stagemesh.control import Adapter
from stagemesh.errors import MeshError
from stagemesh.outcome import ErrorCode

A, B = Adapter(name="a", path="/roots/a"), Adapter(name="b", path="/roots/b")


def loaded(*some: Adapter) -> Adapters:
    adapters = Adapters()
    for adapter in some:
        adapters.add(adapters.new(adapter, Path(adapter.path)))
    return adapters


def test_adapters_are_found_by_name_and_listed_in_order() -> None:
    adapters = loaded(B, A)
    assert adapters.listed() == (A, B)
    assert adapters.get("a").adapter == A
    assert adapters.get("a").number != adapters.get("b").number


def test_a_name_in_use_is_not_given_to_something_else() -> None:
    adapters = loaded(A)
    assert not adapters.check(A), "it is loaded already"
    assert adapters.check(B)
    with pytest.raises(MeshError) as caught:
        adapters.check(Adapter(name="a", path="/roots/other"))
    assert caught.value.info.code is ErrorCode.CONFLICT


def test_a_number_is_never_used_again() -> None:
    adapters = loaded(A)
    number = adapters.remove("a").number
    assert adapters.new(A, Path("/")).number > number
    for name in ("a", "x"):
        with pytest.raises(MeshError) as caught:
            adapters.get(name)
        assert caught.value.info.reason == "adapter_not_found"


def test_only_so_many_may_be_loaded() -> None:
    adapters = loaded(*(Adapter(name=f"n{i}", path="/p") for i in range(ADAPTERS_MAX)))
    with pytest.raises(MeshError):
        adapters.check(A)


def test_an_adapter_lies_below_a_configured_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAGEMESH_MODEL_ROOTS", str(tmp_path / "roots"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    inside, outside = tmp_path / "roots" / "good", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir(parents=True)
        (folder / "adapter_model.safetensors").write_bytes(b"x")
    assert folder_of(Adapter(name="a", path=str(inside))) == inside.resolve()
    for path in (outside, tmp_path / "roots" / "missing", "plain-name"):
        with pytest.raises(MeshError) as caught:
            folder_of(Adapter(name="a", path=str(path)))
        assert caught.value.info.param == "adapter.path"
    (inside / "extra.bin").write_bytes(b"x")
    with pytest.raises(MeshError, match="safetensors only"):
        folder_of(Adapter(name="a", path=str(inside)))
