"""Every module has its tests at the path that mirrors its own, or stands on a short list."""

from fnmatch import fnmatch
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.helpers.code import ROOT, sources

TIERS: Final = ("unit", "contract")
"""Where a module's own tests may be: in `contract` if what it does is I/O."""

EDGES: Final = "services/gateway/edges"
ENGINES: Final = "services/stage_worker/engines"
ORCHESTRATOR: Final = "services/orchestrator/core"
SERVICES: Final = "tests/contract/services"
VALUES: Final = "It holds values or protocols and decides nothing; those who use it are tested."
WHOLE: Final = "It is part of one decision, which scenario files play whole, with golden effects."
SOCKET: Final = "It is an end of a socket, and is tested over one."


class Elsewhere(NamedTuple):
    """Modules whose tests are somewhere else, and why."""

    modules: str
    tests: str
    reason: str


SHORT_LIST: Final = (
    # Programs and their composition roots.
    Elsewhere("services/gateway/__main__.py", f"{SERVICES}/test_gateway_process.py", SOCKET),
    Elsewhere("services/gateway/app.py", f"{SERVICES}/test_gateway_process.py", SOCKET),
    Elsewhere("services/orchestrator/app.py", f"{SERVICES}/test_orchestrator_process.py", SOCKET),
    Elsewhere("services/stage_worker/app.py", f"{SERVICES}/test_stage_worker_process.py", SOCKET),
    Elsewhere("stagemesh/cli/__main__.py", "tests/e2e/stagemesh/cli/test_up.py", SOCKET),
    Elsewhere("stagemesh/cli/tether.py", "tests/contract/stagemesh/cli/test_process.py", SOCKET),
    # The ends of sockets.
    Elsewhere(f"{EDGES}/*.py", f"{SERVICES}/test_gateway_http.py", SOCKET),
    Elsewhere("services/gateway/client/*.py", f"{SERVICES}/test_gateway_links.py", SOCKET),
    Elsewhere(
        "services/orchestrator/peers/asking.py", f"{SERVICES}/test_orchestrator_peers.py", SOCKET
    ),
    Elsewhere("services/stage_worker/servicer/*.py", f"{SERVICES}/test_stage_worker.py", SOCKET),
    Elsewhere(
        "services/orchestrator/servicer/answers.py",
        "tests/unit/services/orchestrator/servicer/test_generate.py",
        "It is what the calls that run a request have in common, and is tested through them.",
    ),
    # The orchestrator's core is one machine.
    Elsewhere(f"{ORCHESTRATOR}/*.py", f"tests/unit/{ORCHESTRATOR}/test_machine.py", WHOLE),
    # Model libraries: one suite for all engines, with a case for each.
    *(
        Elsewhere(
            f"{ENGINES}/{name}_engine.py",
            f"tests/contract/engines/case_{name}.py",
            "It is judged by the suite that every engine has to pass.",
        )
        for name in ("ctranslate2", "diffusers", "piper", "transformers", "vllm", "whisper")
    ),
    Elsewhere(
        f"{ENGINES}/vllm_[!e]*.py", "tests/contract/engines/case_vllm.py",
        "It is a part of the engine, and is judged with it on the real library.",
    ),
    Elsewhere(
        f"{ENGINES}/support/children.py", "tests/contract/engines/test_children.py",
        "It is about processes that die.",
    ),
    Elsewhere(
        f"{ENGINES}/support/job.py", f"tests/unit/{ENGINES}/support/test_threaded.py",
        "It is the half of `threaded` that a compute thread holds.",
    ),
    Elsewhere(
        "services/stage_worker/models/shapes/loader.py", "tests/contract/engines/case_diffusers.py",
        "It needs its weights, and is judged with the engine that loads it.",
    ),
    # Shared parts of the OpenAI bodies and replies.
    *(
        Elsewhere(
            f"services/gateway/core/{part}/{name}.py",
            f"tests/unit/services/gateway/core/{part}/test_chat.py",
            "It is what several bodies or replies have in common, and is tested through them.",
        )
        for part, name in (
            ("replies", "bound"), ("replies", "head"), ("requests", "content"),
            ("requests", "origin"),
        )
    ),
    # Values.
    Elsewhere("services/gateway/core/limits.py", f"{SERVICES}/test_gateway_errors.py", VALUES),
    Elsewhere("services/*/core/effects.py", "tests/property", VALUES),
    Elsewhere("services/*/core/events.py", "tests/property", VALUES),
    Elsewhere("stagemesh/control.py", "tests/unit/stagemesh/wire/test_control.py", VALUES),
    Elsewhere("services/stage_worker/bridges/base.py", f"{SERVICES}/test_stage_worker.py", VALUES),
    Elsewhere(f"{ENGINES}/base.py", "tests/contract/engines/test_engine.py", VALUES),
    Elsewhere("stagemesh/media/request.py", "tests/unit/stagemesh/wire/test_requests.py", VALUES),
    Elsewhere("stagemesh/outcome/values.py", "tests/unit/stagemesh/outcome/test_table.py", VALUES),
    Elsewhere("stagemesh/pipeline/model.py", "tests/unit/stagemesh/pipeline/test_build.py", VALUES),
)  # fmt: skip


def mirrors(module: Path) -> list[Path]:
    """Give the places at which a module's own tests may be."""
    name = "main" if module.stem == "__main__" else module.stem
    return [ROOT / "tests" / tier / module.parent / f"test_{name}.py" for tier in TIERS]


def without_mirror() -> list[Path]:
    """List the modules that have no tests at a mirrored path."""
    modules = [path.relative_to(ROOT) for path in sources("services", "stagemesh")]
    return [
        module
        for module in modules
        if module.name != "__init__.py" and not any(path.exists() for path in mirrors(module))
    ]


def test_every_module_has_its_tests_or_stands_on_the_list() -> None:
    unlisted = [
        str(module)
        for module in without_mirror()
        if not any(fnmatch(str(module), one.modules) for one in SHORT_LIST)
    ]
    assert unlisted == []


@pytest.mark.parametrize("entry", SHORT_LIST, ids=lambda entry: entry.modules)
def test_an_entry_of_the_list_is_needed_and_leads_somewhere(entry: Elsewhere) -> None:
    assert any(fnmatch(str(module), entry.modules) for module in without_mirror())
    assert (ROOT / entry.tests).exists()
    assert entry.reason.endswith(".")


def subject_of(place: Path) -> Path | None:
    """Find what a test of the tier `unit` is for: a module, or a package's `__init__`.

    A module with much to test may have several, `test_<module>_<part>`.
    """
    words = place.stem.removeprefix("test_").split("_")
    if words == [place.parent.name]:
        return place.parent / "__init__.py"
    for count in range(len(words), 0, -1):
        name = "_".join(words[:count])
        module = place.parent / f"{'__main__' if name == 'main' else name}.py"
        if (ROOT / module).exists():
            return module
    return None


def test_every_unit_test_mirrors_a_module_or_a_package() -> None:
    unit = ROOT / "tests" / "unit"
    places = [path.relative_to(unit) for path in sorted(unit.rglob("test_*.py"))]
    assert [str(place) for place in places if subject_of(place) is None] == []
