"""The message classes of a parsed .proto file, made by `google.protobuf`. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any, Final

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool

from headrace.schemas.errors import InvalidSchema
from headrace.schemas.payload.errors import InvalidPayload
from headrace.schemas.payload.frames import MessageIndexes
from headrace.schemas.payload.protobuf_provided import provided_files
from headrace.schemas.protobuf.descriptor_writer import compiled_proto
from headrace.schemas.protobuf.resolution import ProtobufSchema
from headrace.schemas.protobuf.syntax import ProtoFile, ProtoMessage

_OWN_NAME: Final = "headrace_schema.proto"
_PROVIDED: Final = ("any", "source_context", "type", "api", "descriptor", "duration", "empty", "field_mask")
_PROVIDED_TOO: Final = ("struct", "timestamp", "wrappers")


class MessageClasses:
    """The message classes of a file, by their place in it or by name."""

    def __init__(self, schema: ProtobufSchema) -> None:
        self._names = dict(_places(schema.file))
        self._places = {name: place for place, name in self._names.items()}
        self._pool = _pool(schema)
        self._classes: dict[MessageIndexes, Any] = {}

    def at(self, indexes: MessageIndexes) -> Any:
        """The class of the message at a place in its file. Raises `InvalidPayload`."""
        found = self._classes.get(indexes)
        if found is None:
            name = self._names.get(indexes)
            if name is None:
                raise InvalidPayload(f"the schema has no message at {list(indexes)}")
            found = message_factory.GetMessageClass(self._pool.FindMessageTypeByName(name))
            self._classes[indexes] = found
        return found

    def place(self, name: str) -> MessageIndexes:
        """The place of a message, by its full name or the part after the package. Raises `InvalidPayload`."""
        for full, place in self._places.items():
            if full == name or full.endswith(f".{name}"):
                return place
        raise InvalidPayload(f"the schema has no message {name[:200]}: it has {', '.join(list(self._places)[:20])}")


def _places(file: ProtoFile) -> Iterator[tuple[MessageIndexes, str]]:
    pending: list[tuple[MessageIndexes, str, ProtoMessage]] = []
    prefix = f"{file.package}." if file.package else ""
    pending.extend(((index,), prefix + each.name, each) for index, each in enumerate(file.messages))
    for place, name, message in pending:
        yield place, name
        pending.extend(((*place, index), f"{name}.{each.name}", each) for index, each in enumerate(message.messages))


def _pool(schema: ProtobufSchema) -> DescriptorPool:
    pool = DescriptorPool()
    known: set[str] = set()
    try:
        for name in (*_PROVIDED, *_PROVIDED_TOO):
            module = import_module(f"google.protobuf.{name}_pb2")
            pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
            known.add(module.DESCRIPTOR.name)
        files = {**schema.imported, _OWN_NAME: schema.file}
        own = {name: replace(schema, file=file) for name, file in _in_order(files)}
        for name, each in (provided_files(files.values()) | own).items():
            compiled = descriptor_pb2.FileDescriptorProto.FromString(compiled_proto(each, name))
            # All that came before, so that it does not matter which import is public.
            del compiled.dependency[:], compiled.public_dependency[:]
            compiled.dependency.extend(sorted(known))
            pool.Add(compiled)
            known.add(name)
        pool.FindFileByName(_OWN_NAME)
    except (TypeError, KeyError, ValueError) as error:
        raise InvalidSchema(f"messages of this schema cannot be read: {str(error)[:300]}") from error
    return pool


def _in_order(files: Mapping[str, ProtoFile]) -> Iterator[tuple[str, ProtoFile]]:
    """The files, each after those that it imports. Raises `InvalidSchema` for a cycle."""
    left = dict(files)
    while left:
        ready = [name for name, each in left.items() if not any(other in left for _, other in each.imports)]
        if not ready:
            raise InvalidSchema(f"the files {', '.join(list(left)[:5])} import each other")
        for name in ready:
            yield name, left.pop(name)
