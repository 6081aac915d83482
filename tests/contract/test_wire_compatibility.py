import shutil
import subprocess
import sys
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path

import pytest
from google.protobuf import json_format
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorSet
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message import Message

from services.orchestrator.core.replicas import WorkerState
from services.stage_worker.core import ProcessState
from services.stage_worker.engines.base import ResumeContract
from stagemesh.api.types.v1 import link_pb2, media_pb2, outcome_pb2
from stagemesh.media import Modality, OutputKind
from stagemesh.outcome import ErrorCode, FinishReason, Outcome
from stagemesh.pipeline import EdgeMode
from tests.helpers.code import ROOT
from tests.helpers.filled_messages import GOLDEN, ROOTS

BASELINE = ROOT / "protos" / "baseline" / "v1.binpb"
LINK_PROTO = Path("protos/stagemesh/api/types/v1/link.proto")


def buf(*arguments: str, root: Path = ROOT) -> tuple[int, str]:
    """Run buf in a tree."""
    run = subprocess.run(
        [Path(sys.executable).with_name("buf"), *arguments],
        cwd=root, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return run.returncode, run.stdout + run.stderr


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "buf.yaml", tmp_path)
    shutil.copytree(ROOT / "protos", tmp_path / "protos")
    return tmp_path


def test_the_protos_are_well_formed() -> None:
    assert buf("lint") == (0, "")
    assert buf("format", "--diff", "--exit-code") == (0, "")


def test_nothing_that_was_released_has_changed() -> None:
    assert buf("breaking", "--against", str(BASELINE)) == (0, "")


@pytest.mark.parametrize(
    ("before", "after", "objection"),
    [
        ("uint32 protocol = 5;", "uint64 protocol = 5;", "changed type"),
        ("  bool hidden = 7;\n", "", 'field "7" with name "hidden"'),
        ("uint32 pid = 6;", "uint32 process_id = 6;", "changed name"),
        ("  PROCESS_STATE_STALLED = 4;\n", "", 'enum value "4"'),
    ],
)
def test_a_change_that_breaks_others_is_objected_to(
    copy: Path, before: str, after: str, objection: str
) -> None:
    proto = copy / LINK_PROTO
    text = proto.read_text()
    assert text.count(before) == 1
    proto.write_text(text.replace(before, after))
    code, said = buf("breaking", "--against", str(BASELINE), root=copy)
    assert code != 0
    assert objection in said


def test_a_field_that_is_added_breaks_nobody(copy: Path) -> None:
    proto = copy / LINK_PROTO
    text = proto.read_text()
    proto.write_text(text.replace("  uint32 pid = 6;", "  uint32 pid = 6;\n  uint32 fresh = 99;"))
    assert proto.read_text() != text
    assert buf("breaking", "--against", str(BASELINE), root=copy) == (0, "")


@pytest.mark.parametrize("kind", ROOTS, ids=lambda kind: kind.DESCRIPTOR.name)
def test_what_a_release_wrote_is_read_and_written_the_same(kind: type[Message]) -> None:
    name = kind.DESCRIPTOR.full_name
    data = (GOLDEN / f"{name}.binpb").read_bytes()
    text = (GOLDEN / f"{name}.json").read_text(encoding="utf-8")
    message = kind.FromString(data)
    assert message == json_format.Parse(text, kind())
    assert message.SerializeToString(deterministic=True) == data


def released() -> Iterator[str]:
    """Name every field that the baseline has."""

    def fields(above: str, message: DescriptorProto) -> Iterator[str]:
        name = f"{above}.{message.name}"
        yield from (f"{name}.{field.name}" for field in message.field)
        for nested in message.nested_type:
            yield from fields(name, nested)

    for file in FileDescriptorSet.FromString(BASELINE.read_bytes()).file:
        if file.package.startswith("stagemesh."):
            for message in file.message_type:
                yield from fields(file.package, message)


def present(message: Message) -> Iterator[str]:
    """Name every field that is set in a message, and in those inside it."""
    for field, value in message.ListFields():
        yield field.full_name
        parts = value if field.is_repeated else [value]
        if field.type == field.TYPE_MESSAGE and not field.full_name.startswith("google."):
            for part in parts:
                yield from present(part)


@pytest.mark.parametrize(
    ("ours", "wire", "prefix"),
    [
        (EdgeMode, link_pb2.EdgeMode, "EDGE_MODE"),
        (ErrorCode, outcome_pb2.ErrorCode, "ERROR_CODE"),
        (FinishReason, outcome_pb2.FinishReason, "FINISH_REASON"),
        (Modality, media_pb2.Modality, "MODALITY"),
        (Outcome, outcome_pb2.Outcome, "OUTCOME"),
        (OutputKind, link_pb2.OutputKind, "OUTPUT_KIND"),
        (ProcessState, link_pb2.ProcessState, "PROCESS_STATE"),
        (ResumeContract, link_pb2.ResumeContract, "RESUME_CONTRACT"),
        (WorkerState, link_pb2.ProcessState, "PROCESS_STATE"),
    ],
    ids=lambda one: getattr(one, "__name__", None),
)
def test_our_names_have_the_numbers_of_the_wire(
    ours: type[IntEnum], wire: EnumTypeWrapper, prefix: str
) -> None:
    numbers = {name.removeprefix(f"{prefix}_"): number for name, number in wire.items()}
    del numbers["UNSPECIFIED"]
    if ours is OutputKind:
        numbers["TEXT"] = 0  # What is not said is text.
    assert {one.name: one.value for one in ours} == numbers


REQUESTS = {
    "admin.v1.ListReplicasRequest.pools",
    "orchestrator.v1.AbortRequest.request_id",
    "orchestrator.v1.AbortResponse.aborted",
    "orchestrator.v1.GetRequestRequest.request_id",
    "stage.v1.ReleaseRequest.handle_ids",
    "stage.v1.ReleaseRequest.request_id",
    "stage.v1.ReleaseResponse.released",
}
"""Messages of one or two plain fields, which `buf breaking` covers by itself."""


def test_what_a_release_wrote_has_every_field_that_it_had() -> None:
    seen: set[str] = set()
    for kind in ROOTS:
        data = (GOLDEN / f"{kind.DESCRIPTOR.full_name}.binpb").read_bytes()
        seen |= set(present(kind.FromString(data)))
    missing = set(released()) - seen
    assert missing == {f"stagemesh.api.{name}" for name in REQUESTS}
