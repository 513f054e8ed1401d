"""Finds the messages and enums that the fields of .proto files name, in the scopes of Protobuf. Pure."""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field

from headrace.schemas.errors import InvalidSchema
from headrace.schemas.protobuf.syntax import SCALARS, ProtoEnum, ProtoField, ProtoFile, ProtoMessage

PROVIDED = ("google/protobuf/", "google/type/", "confluent/")
"""Files that every Protobuf library or Confluent's registry brings: their types are known by name only."""
_PROVIDED_ENUMS = frozenset(
    {"google.protobuf.NullValue", "google.protobuf.Syntax"}
    | {"google.type.CalendarPeriod", "google.type.DayOfWeek", "google.type.Month"}
)


@dataclass(frozen=True, slots=True)
class ProtobufSchema:
    """A file with the files that it imports."""

    file: ProtoFile
    imported: Mapping[str, ProtoFile] = field(default_factory=dict)
    """Those that it imports, directly or through others, by the name that they are imported by."""
    types: Mapping[str, ProtoMessage | ProtoEnum] = field(default_factory=dict)
    """By full name, those of imported files included."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """The package of each type, by its full name."""

    def find(self, name: str, scope: str) -> str | None:
        """The full name of a type as `scope`, the full name of a message, sees it; None if it is not defined here."""
        if name.startswith("."):
            return name[1:] if name[1:] in self.types else None
        while True:
            full = f"{scope}.{name}" if scope else name
            if full in self.types:
                return full
            if not scope:
                return None
            scope = scope.rpartition(".")[0]


def resolve_proto(file: ProtoFile, references: Mapping[str, ProtoFile]) -> ProtobufSchema:
    """Check that all imports and types exist; `references` are the imported files by name. Raises `InvalidSchema`."""
    imported, has_provided = _imported(file, references)
    types: dict[str, ProtoMessage | ProtoEnum] = {}
    packages: dict[str, str] = {}
    for each in (*imported.values(), file):
        for name, type_ in each.types():
            if name in types:
                raise InvalidSchema(f"{name} is defined twice")
            types[name], packages[name] = type_, each.package
    schema = ProtobufSchema(file, imported, types, packages)
    for name, type_ in file.types():
        if isinstance(type_, ProtoMessage):
            for each_field in type_.fields:
                _check_field(schema, each_field, name, has_provided)
    return schema


def with_full_names(schema: ProtobufSchema) -> ProtoFile:
    """A copy of the file in which types are named in full, as in a compiled one."""
    file = deepcopy(schema.file)

    def full(name: str, scope: str) -> str:
        found = schema.find(name, scope)
        return f".{found}" if found else name

    def rename(fields: Iterable[ProtoField], scope: str) -> None:
        for each in fields:
            found = schema.types.get(full(each.type, scope)[1:])
            if each.type not in SCALARS and not (isinstance(found, ProtoMessage) and found.is_group):
                each.type = full(each.type, scope)

    for scope, holder in ((file.package, file), *file.types()):
        if isinstance(holder, ProtoMessage):
            rename(holder.fields, scope)
        if not isinstance(holder, ProtoEnum):
            for extend in holder.extends:
                extend.message = full(extend.message, scope)
                rename(extend.fields, scope)
    for service in file.services:
        for method in service.methods:
            method.request, method.response = full(method.request, file.package), full(method.response, file.package)
    return file


def is_enum(schema: ProtobufSchema, name: str, scope: str) -> bool:
    full = schema.find(name, scope)
    return isinstance(schema.types[full], ProtoEnum) if full else name.lstrip(".") in _PROVIDED_ENUMS


def _imported(file: ProtoFile, references: Mapping[str, ProtoFile]) -> tuple[dict[str, ProtoFile], bool]:
    """The files that a file imports, directly or through others, and whether it imports a provided one."""
    found: dict[str, ProtoFile] = {}
    pending, has_provided = [name for _, name in file.imports], False
    while pending:
        name = pending.pop()
        if name in found:
            continue
        if name in references:
            found[name] = references[name]
            pending += [each for _, each in references[name].imports]
        elif name.startswith(PROVIDED):
            has_provided = True
        else:
            raise InvalidSchema(f"the import {name[:200]!r} is none of the references")
    return found, has_provided


def _check_field(schema: ProtobufSchema, field_: ProtoField, scope: str, has_provided: bool) -> None:
    name = field_.type
    if name in SCALARS or schema.find(name, scope) is not None:
        return
    if has_provided and (name.lstrip(".").startswith(("google.", "confluent.")) or schema.file.package[:6] == "google"):
        return
    raise InvalidSchema(f"the type {name[:200]} of the field {field_.name} of {scope} is not defined")
