import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.helpers.code import ROOT
from tests.helpers.e2e_mesh import E2eMesh, running_mesh
from tests.helpers.pages import Block, all_pages, blocks, prose
from tools.docs.pages import DOCS, PAGES

README: Final = ROOT / "README.md"
README_LINES_MAX: Final = 60

LINK = re.compile(r"\[[^\]]+\]\(([^)#\s]+)(#[^)\s]*)?\)")
SECOND_SENTENCE = re.compile(r"[a-z)`*\"][.!?] +[A-Z`]")
"""The end of a sentence with another one behind it, on the same line."""

DEFAULT_HTTP: Final = "127.0.0.1:8000"
DEFAULT_GRPC: Final = "127.0.0.1:50051"

EXAMPLES = [
    (block, following if "output" in following.words else None)
    for page in all_pages()
    for block, following in pairwise([*blocks(page), Block(page, 0, "", frozenset(), "")])
    if "run" in block.words
]


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_fresh(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name](), "run `make docs`"


@pytest.mark.parametrize("name", ["metrics", "settings"])
def test_everything_that_can_be_looked_up_has_a_meaning(name: str) -> None:
    text = (DOCS / "reference" / f"{name}.md").read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if line.endswith("| — |")] == []


def test_the_readme_fits_on_a_screen_or_two() -> None:
    text = README.read_text(encoding="utf-8")
    assert text.count("\n") <= README_LINES_MAX
    assert "curl" in text
    assert "grpcurl" in text
    assert "from openai import OpenAI" in text


@pytest.mark.parametrize("page", all_pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    text = "\n".join(line for _, line in prose(page))
    tables = [line for line in page.read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    broken = [
        target
        for target, _ in LINK.findall("\n".join([text, *tables]))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []


@pytest.mark.parametrize("page", all_pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_line_holds_one_sentence(page: Path) -> None:
    if page.relative_to(ROOT).as_posix().startswith("docs/reference/"):
        return  # Tables and generated text.
    crowded = [f"{number}: {line}" for number, line in prose(page) if SECOND_SENTENCE.search(line)]
    assert crowded == []


def read_pipelines(file: str, *names: str) -> dict[str, Any]:
    """Take some pipelines of a shipped mesh file, and their pools with one replica each."""
    whole = yaml.safe_load((ROOT / "pipelines" / file).read_text(encoding="utf-8"))
    pipelines = {name: whole["pipelines"][name] for name in names}
    used = {stage["pool"] for one in pipelines.values() for stage in one["stages"].values()}
    pools = {name: whole["pools"][name] | {"replicas": 1} for name in used}
    return {"pools": pools, "pipelines": pipelines}


def joined(*meshes: dict[str, Any]) -> str:
    """Write one mesh file of several, whose pools may have the same names."""
    whole: dict[str, dict[str, Any]] = {"pools": {}, "pipelines": {}}
    for number, mesh in enumerate(meshes):
        for name, pool in mesh["pools"].items():
            whole["pools"][f"{name}-{number}"] = pool
        for name, pipeline in mesh["pipelines"].items():
            stages = {
                stage: said | {"pool": f"{said['pool']}-{number}"}
                for stage, said in pipeline["stages"].items()
            }
            whole["pipelines"][name] = pipeline | {"stages": stages}
    return yaml.safe_dump(whole, sort_keys=False)


def files_of(page: Path) -> dict[str, str]:
    """Give the files that a page has its reader write."""
    return {block.file: block.text for block in blocks(page) if block.file}


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[E2eMesh]:
    """Everything that the pages ask: `story` of the tutorial, `echo`, and a real chat model."""
    folder = tmp_path_factory.mktemp("docs")
    tutorial = files_of(DOCS / "tutorial" / "first-pipeline.md")["first.yaml"]
    file = folder / "docs.yaml"
    file.write_text(
        joined(
            yaml.safe_load(tutorial),
            read_pipelines("synthetic.yaml", "echo"),
            read_pipelines("demo-light.yaml", "smollm2"),
        )
    )
    # Weights are found in the cache, so only what the launcher writes goes elsewhere.
    with running_mesh(file, folder) as mesh:
        yield mesh


def run_example(block: Block, mesh: E2eMesh, folder: Path) -> str:
    """Do what a reader does with an example; give what it prints."""
    for name, text in files_of(block.page).items():
        (folder / name).write_text(text)
    text = block.text.replace(DEFAULT_HTTP, mesh.http).replace(DEFAULT_GRPC, mesh.grpc)
    tools = str(Path(sys.executable).parent)
    environ = os.environ | {
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)
    }  # fmt: skip
    program = {"bash": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}
    done = subprocess.run(
        [*program[block.language], text],
        cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.models
@pytest.mark.parametrize(("block", "output"), EXAMPLES, ids=lambda one: getattr(one, "name", "-"))
def test_an_example_does_what_its_page_says(
    block: Block, output: Block | None, mesh: E2eMesh, tmp_path: Path
) -> None:
    printed = run_example(block, mesh, tmp_path)
    assert printed.strip()
    assert '"error"' not in printed
    if output is not None:
        pattern = re.escape(output.text.strip("\n")).replace("…", ".*")
        assert re.fullmatch(pattern, printed.strip("\n")), printed


def test_the_pages_have_examples_to_run() -> None:
    pages = {block.page for block, _ in EXAMPLES}
    assert {README, DOCS / "index.md", DOCS / "tutorial" / "first-pipeline.md"} <= pages
    assert sum(block.page == README for block, _ in EXAMPLES) == 3
