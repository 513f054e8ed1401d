"""Whether data written with one Protobuf schema can be read with another. Pure.

Fields are compared by their number. The names of the changes, and which of them break readers, are those of Confluent's
registry: other names, moved and new messages and values are fine; types change within their encoding only.
"""

from collections.abc import Iterator
from itertools import islice

from headrace.schemas.incompatibility import Incompatibility
from headrace.schemas.protobuf.resolution import ProtobufSchema, is_enum
from headrace.schemas.protobuf.syntax import SCALARS, ProtoField, ProtoFile, ProtoMessage
from headrace.schemas.steps import StepLimit

MAX_FINDINGS = 100
_ENCODINGS = {
    **dict.fromkeys(("int32", "int64", "uint32", "uint64", "bool"), "varint"),
    **dict.fromkeys(("sint32", "sint64"), "zigzag"),
    **dict.fromkeys(("string", "bytes"), "bytes"),
    **dict.fromkeys(("fixed32", "sfixed32"), "fixed32"),
    **dict.fromkeys(("fixed64", "sfixed64"), "fixed64"),
    "float": "float",
    "double": "double",
}

_TEXTS = {
    "PACKAGE_CHANGED": "the package is another one than in the old schema",
    "MESSAGE_REMOVED": "the message {path} of the old schema is missing",
    "FIELD_KIND_CHANGED": "the field {path} was a scalar, a message or a map, and is another of these now",
    "FIELD_SCALAR_KIND_CHANGED": "the type of the field {path} has another encoding than in the old schema",
    "FIELD_NUMERIC_LABEL_CHANGED": "the number in the field {path} was single and is repeated, or the other way round",
    "FIELD_NAMED_TYPE_CHANGED": "the field {path} has a message of another type than in the old schema",
    "REQUIRED_FIELD_ADDED": "the required field {path} is missing in the old schema",
    "REQUIRED_FIELD_REMOVED": "the required field {path} of the old schema is missing",
    "ONEOF_FIELD_REMOVED": "the field {path} of a oneof of the old schema is missing",
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": "several fields of the old schema, which could be set together, are in {path}",
    "FIELD_MOVED_TO_EXISTING_ONEOF": "a field of the old schema was moved to the oneof {path}, which had others",
}


def proto_incompatibilities(reader: ProtobufSchema, writer: ProtobufSchema) -> list[Incompatibility]:
    """What keeps data of `writer` from being read with `reader`; empty if nothing does."""
    found = [*islice(_ProtoComparison(reader, writer).run(), MAX_FINDINGS)]
    return [
        Incompatibility(kind, path, _TEXTS[kind].format(path=path.removeprefix("#/").replace("/", ".")))
        for kind, path in found
    ]


class _ProtoComparison:
    def __init__(self, new: ProtobufSchema, old: ProtobufSchema) -> None:
        self._new, self._old = new, old
        self._steps = StepLimit()
        self._pending: list[tuple[str, str]] = []
        """Pairs of full names, old and new, of messages that fields refer to."""
        self._seen: set[tuple[str, str]] = set()

    def run(self) -> Iterator[tuple[str, str]]:
        old, new = self._old.file, self._new.file
        if old.package != new.package:
            yield "PACKAGE_CHANGED", "#/"
        yield from self._types(old, new, old.package, new.package, "#")
        while self._pending:
            self._steps.step()
            pair = self._pending.pop()
            if pair not in self._seen:
                self._seen.add(pair)
                old_type, new_type = self._old.types[pair[0]], self._new.types[pair[1]]
                if isinstance(old_type, ProtoMessage) and isinstance(new_type, ProtoMessage):
                    yield from self._messages(old_type, new_type, *pair, f"#/{new_type.name}")

    def _types(
        self, old: ProtoFile | ProtoMessage, new: ProtoFile | ProtoMessage, old_scope: str, new_scope: str, path: str
    ) -> Iterator[tuple[str, str]]:
        after = {each.name: each for each in new.messages}
        for message in old.messages:
            where = f"{path}/{message.name}"
            if message.name not in after:
                if not _is_map_entry(message):
                    yield "MESSAGE_REMOVED", where
                continue
            names = _joined(old_scope, message.name), _joined(new_scope, message.name)
            if names not in self._seen:
                self._seen.add(names)
                yield from self._messages(message, after[message.name], *names, where)

    def _messages(
        self, old: ProtoMessage, new: ProtoMessage, old_name: str, new_name: str, path: str
    ) -> Iterator[tuple[str, str]]:
        self._steps.step()
        before = {each.number: each for each in old.fields}
        after = {each.number: each for each in new.fields}
        yield from _oneofs(new, before, path)
        gone = set(old.oneofs) - set(new.oneofs) - {each.oneof for each in old.fields if each.number in after}
        for number in sorted(before.keys() | after.keys()):
            self._steps.step()
            was, is_now = before.get(number), after.get(number)
            if was is not None and is_now is not None:
                where = f"{path}/{is_now.oneof}/{number}" if is_now.oneof else f"{path}/{number}"
                yield from self._fields(was, is_now, old_name, new_name, where)
            elif was is not None:
                if was.oneof and was.oneof not in gone:
                    yield "ONEOF_FIELD_REMOVED", f"{path}/{was.oneof}/{number}"
                elif was.label == "required":
                    yield "REQUIRED_FIELD_REMOVED", f"{path}/{number}"
            elif is_now is not None and is_now.label == "required":
                yield "REQUIRED_FIELD_ADDED", f"{path}/{number}"
        yield from self._types(old, new, old_name, new_name, path)

    def _fields(
        self, old: ProtoField, new: ProtoField, old_scope: str, new_scope: str, path: str
    ) -> Iterator[tuple[str, str]]:
        old_entry, new_entry = _entry(self._old, old, old_scope), _entry(self._new, new, new_scope)
        if bool(old_entry) is not bool(new_entry):
            yield "FIELD_KIND_CHANGED", path
        elif old_entry and new_entry:
            for was, is_now in zip(old_entry, new_entry, strict=True):
                yield from self._single(was, is_now, "", "", old_scope, new_scope, path)
        else:
            yield from self._single(old.type, new.type, old.label, new.label, old_scope, new_scope, path)

    def _single(
        self, old: str, new: str, old_label: str, new_label: str, old_scope: str, new_scope: str, path: str
    ) -> Iterator[tuple[str, str]]:
        was, is_now = _encoding(self._old, old, old_scope), _encoding(self._new, new, new_scope)
        if bool(was) is not bool(is_now):
            yield "FIELD_KIND_CHANGED", path
        elif was != is_now:
            yield "FIELD_SCALAR_KIND_CHANGED", path
        elif not was:
            yield from self._named(old, new, old_scope, new_scope, path)
        elif was != "bytes" and old_label and new_label and old_label != new_label:
            yield "FIELD_NUMERIC_LABEL_CHANGED", path

    def _named(self, old: str, new: str, old_scope: str, new_scope: str, path: str) -> Iterator[tuple[str, str]]:
        was, is_now = self._old.find(old, old_scope), self._new.find(new, new_scope)
        if was is None or is_now is None:
            if (was or old).lstrip(".") != (is_now or new).lstrip("."):
                yield "FIELD_NAMED_TYPE_CHANGED", path
        elif _local(self._old, was) != _local(self._new, is_now):
            yield "FIELD_NAMED_TYPE_CHANGED", path
        else:
            self._pending.append((was, is_now))


def _joined(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


def _local(schema: ProtobufSchema, full: str) -> str:
    """The name within its package."""
    package = schema.packages[full]
    return full.removeprefix(f"{package}.") if package else full


def _is_map_entry(message: ProtoMessage) -> bool:
    return ("map_entry", "true") in message.options


def _entry(schema: ProtobufSchema, field: ProtoField, scope: str) -> tuple[str, str] | None:
    """The types of key and value of a map; a map may also be written as a repeated entry."""
    if field.is_map:
        return field.key, field.type
    full = schema.find(field.type, scope)
    message = schema.types.get(full) if full else None
    if isinstance(message, ProtoMessage) and _is_map_entry(message):
        types = {each.name: each.type for each in message.fields}
        return types.get("key", ""), types.get("value", "")
    return None


def _encoding(schema: ProtobufSchema, type_: str, scope: str) -> str:
    """How a scalar is encoded; empty for a message."""
    if type_ in SCALARS:
        return _ENCODINGS[type_]
    return "varint" if is_enum(schema, type_, scope) else ""


def _oneofs(new: ProtoMessage, before: dict[int, ProtoField], path: str) -> Iterator[tuple[str, str]]:
    """Fields that could be set together, and exclude each other now."""
    members: dict[str, list[ProtoField]] = {name: [] for name in new.oneofs}
    for field in new.fields:
        if field.oneof and field.number in before:
            members[field.oneof].append(before[field.number])
    for name, fields in members.items():
        origins = {was.oneof or f"#{was.number}" for was in fields}
        single = sum(not was.oneof for was in fields)
        if len(origins) > 1:
            yield (
                ("MULTIPLE_FIELDS_MOVED_TO_ONEOF" if single > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF"),
                f"{path}/{name}",
            )
