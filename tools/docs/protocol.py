"""The page of the protocol: services and messages, with the comments of the protos."""

from collections.abc import Iterable, Iterator
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
)
from grpc_tools import protoc

from tools.docs.tables import code, table

__all__ = ["protocol_page"]

_PROTOS: Final = Path(__file__).parents[2] / "protos"
_OURS: Final = "stagemesh."
_AREAS: Final = ("orchestrator", "stage", "admin", "types")

# Where things stand in a descriptor, by the numbers of `descriptor.proto`: a comment's path.
_MESSAGES, _ENUMS, _SERVICES = 4, 5, 6
_INSIDE: Final = 2

_HEAD: Final = """\
# The protocol

Generated from the comments of `protos/`; do not edit.

A gRPC client needs `OrchestratorService.Generate` and nothing else.
The links, and how they are used, are explained in [the link](../design/link.md) and [credit](../design/credit.md).
"""  # noqa: E501 - one sentence a line.

_Path = tuple[int, ...]


def protocol_page() -> str:
    """Write the page.

    Raises:
        RuntimeError: If protoc refuses the protos.
    """
    ours = [_File(file) for file in _described().file if file.package.startswith(_OURS)]
    ours.sort(key=lambda file: (_AREAS.index(file.area), file.name))
    return _HEAD + "".join(file.section() for file in ours)


def _described() -> FileDescriptorSet:
    paths = sorted(str(path) for path in _PROTOS.rglob("*.proto"))
    with TemporaryDirectory() as folder:
        image = Path(folder, "image.binpb")
        roots = [f"-I{_PROTOS}", f"-I{files('grpc_tools') / '_proto'}"]
        options = [*roots, "--include_source_info", f"--descriptor_set_out={image}"]
        if protoc.main(["protoc", *options, *paths]) != 0:
            raise RuntimeError("protoc refuses the protos")
        return FileDescriptorSet.FromString(image.read_bytes())


class _File:
    """One proto file, with its comments by their place."""

    def __init__(self, file: FileDescriptorProto) -> None:
        self._file = file
        self.name = file.name
        self.area = file.package.split(".")[2]
        self._comments = {
            tuple(place.path): _text(place.leading_comments)
            for place in file.source_code_info.location
        }

    def section(self) -> str:
        """Write everything of the file."""
        page = f"\n## `{self.name}`\n"
        for index, service in enumerate(self._file.service):
            page += self._head(service.name, (_SERVICES, index))
            page += table(("call", "takes", "gives", "what it does"), self._calls(index))
        for index, message in enumerate(self._file.message_type):
            page += self._head(message.name, (_MESSAGES, index))
            if message.field:
                page += table(("field", "number", "type", "meaning"), self._fields(index, message))
        for index, enum in enumerate(self._file.enum_type):
            page += self._head(enum.name, (_ENUMS, index))
            page += table(("value", "number", "meaning"), self._values(index, enum))
        return page

    def _head(self, name: str, place: _Path) -> str:
        return f"\n### {name}\n\n{self._comments.get(place, '')}\n\n".replace("\n\n\n", "\n\n")

    def _calls(self, service: int) -> Iterator[tuple[str, ...]]:
        for index, call in enumerate(self._file.service[service].method):
            taken, given = _ends(call)
            text = self._comments.get((_SERVICES, service, _INSIDE, index), "")
            yield code(call.name), taken, given, " ".join(text.split())

    def _fields(self, index: int, message: DescriptorProto) -> Iterator[tuple[str, ...]]:
        for number, field in enumerate(message.field):
            text = self._comments.get((_MESSAGES, index, _INSIDE, number), "")
            words = " ".join(text.split())
            yield code(field.name), str(field.number), _kind(field, message), words

    def _values(self, index: int, enum: EnumDescriptorProto) -> Iterator[tuple[str, ...]]:
        for number, value in enumerate(enum.value):
            text = self._comments.get((_ENUMS, index, _INSIDE, number), "")
            yield code(value.name), str(value.number), " ".join(text.split())


def _text(comment: str) -> str:
    """Take a comment without what it tells buf."""
    lines = [line.strip() for line in comment.strip().splitlines()]
    return "\n".join(line for line in lines if not line.startswith("buf:")).strip()


def _ends(call: MethodDescriptorProto) -> Iterable[str]:
    for name, streamed in (
        (call.input_type, call.client_streaming),
        (call.output_type, call.server_streaming),
    ):
        yield ("stream of " if streamed else "") + code(name.rpartition(".")[2])


def _kind(field: FieldDescriptorProto, message: DescriptorProto) -> str:
    label = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    name = field.type_name.rpartition(".")[2] or label
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"list of {code(name)}"
    if field.proto3_optional:
        return f"{code(name)}, optional"
    if field.HasField("oneof_index"):
        return f"{code(name)}, one of `{message.oneof_decl[field.oneof_index].name}`"
    return code(name)
