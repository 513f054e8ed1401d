"""The parser of .proto files against protoc: the same descriptors, for the files that it brings and for our own."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from headrace.schemas.protobuf.descriptor import read_descriptor
from headrace.schemas.protobuf.descriptor_writer import compiled_proto
from headrace.schemas.protobuf.parser import parse_proto
from headrace.schemas.protobuf.resolution import resolve_proto
from headrace.schemas.protobuf.syntax import ProtoFile
from headrace.schemas.protobuf.text import canonical_proto, normalized_proto

grpc_tools = pytest.importorskip("grpc_tools")
protoc = pytest.importorskip("grpc_tools.protoc")

_SHIPPED = Path(grpc_tools.__path__[0]) / "_proto"
_OWN = Path(__file__).parent / "protos"
_FILES = [
    *((_SHIPPED, str(each.relative_to(_SHIPPED))) for each in sorted(_SHIPPED.rglob("*.proto"))),
    *((_OWN, str(each.relative_to(_OWN))) for each in sorted(_OWN.rglob("*.proto"))),
]
_OF_OPTIONS = ("retention", "targets", "edition_defaults", "feature_support")
"""Options of fields of options, which only protoc itself uses: they are part of the text, not of our descriptors."""

Descriptor = Any
"""A `FileDescriptorProto`, or a part of it."""


def _compiled(root: Path, name: str, folder: Path) -> Descriptor:
    """What protoc makes of a file, without the options that only it uses."""
    out = folder / "compiled"
    status = protoc.main(["protoc", f"-I{root}", f"-I{_SHIPPED}", f"-I{_OWN}", f"--descriptor_set_out={out}", name])
    assert status == 0
    descriptor = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file[-1]
    for message in _messages(descriptor.message_type):
        # protoc puts the entry of a map where its field is; our files have their fields first.
        message.nested_type.sort(key=lambda each: not each.options.map_entry)
        for extension_range in message.extension_range:
            extension_range.ClearField("options")
        for oneof in message.oneof_decl:
            oneof.ClearField("options")
    for part in _parts(descriptor):
        for option in _OF_OPTIONS if isinstance(part.options, descriptor_pb2.FieldOptions) else ("feature_support",):
            if option in part.options.DESCRIPTOR.fields_by_name:
                part.options.ClearField(option)
        part.options.DiscardUnknownFields()
        if not part.options.ListFields():
            part.ClearField("options")
    return descriptor


def _messages(messages: Any) -> Iterator[Descriptor]:
    for message in messages:
        yield message
        yield from _messages(message.nested_type)


def _parts(file: Descriptor) -> Iterator[Descriptor]:
    """The parts of a file that have options."""
    messages = [*_messages(file.message_type)]
    yield file
    yield from messages
    yield from file.extension
    for message in messages:
        yield from message.field
        yield from message.extension
    for enum in (*file.enum_type, *(each for message in messages for each in message.enum_type)):
        yield enum
        yield from enum.value
    for service in file.service:
        yield service
        yield from service.method


def _ours(file: ProtoFile, root: Path, name: str) -> Descriptor:
    references: dict[str, ProtoFile] = {}
    pending = [each for _, each in file.imports]
    while pending:
        imported = pending.pop()
        path = next(each / imported for each in (root, _SHIPPED) if (each / imported).exists())
        references[imported] = parse_proto(path.read_text())
        pending += [each for _, each in references[imported].imports]
    return descriptor_pb2.FileDescriptorProto.FromString(compiled_proto(resolve_proto(file, references), name))


@pytest.mark.parametrize(("root", "name"), _FILES, ids=[name for _, name in _FILES])
def test_descriptors_are_those_of_protoc(root: Path, name: str, tmp_path: Path) -> None:
    assert _ours(parse_proto((root / name).read_text()), root, name) == _compiled(root, name, tmp_path)


@pytest.mark.parametrize(("root", "name"), _FILES, ids=[name for _, name in _FILES])
def test_a_compiled_file_is_read_without_loss(root: Path, name: str, tmp_path: Path) -> None:
    """Confluent's serializers for Python register compiled files."""
    expected = _compiled(root, name, tmp_path)
    file = read_descriptor(base64.b64encode(expected.SerializeToString()).decode())
    assert file is not None
    assert _ours(file, root, name) == expected
    again = _ours(parse_proto(canonical_proto(file)), root, name)
    assert _sorted(again) == _sorted(expected)


@pytest.mark.parametrize(("root", "name"), _FILES, ids=[name for _, name in _FILES])
@pytest.mark.parametrize("write", [canonical_proto, normalized_proto])
def test_protoc_reads_the_canonical_text(root: Path, name: str, write: Any, tmp_path: Path) -> None:
    written = tmp_path / name
    written.parent.mkdir(parents=True, exist_ok=True)
    written.write_text(write(parse_proto((root / name).read_text())))
    assert _sorted(_compiled(tmp_path, name, tmp_path)) == _sorted(_compiled(root, name, tmp_path))


def _sorted(file: Descriptor) -> Descriptor:
    """With imports, fields and messages in order, which the canonical text or the normalized one changes."""
    kinds = dict.fromkeys(file.public_dependency, "public") | dict.fromkeys(file.weak_dependency, "weak")
    imports = sorted((kinds.get(index, ""), each) for index, each in enumerate(file.dependency))
    file.ClearField("public_dependency")
    file.ClearField("weak_dependency")
    file.dependency[:] = [f"{kind} {each}" for kind, each in imports]
    for message in _messages(file.message_type):
        message.field.sort(key=lambda each: each.number)
        message.nested_type.sort(key=lambda each: each.name)
    return file
