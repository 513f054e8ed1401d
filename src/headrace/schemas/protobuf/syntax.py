"""The parts of a .proto file. Pure."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

SCALARS: Final = frozenset(
    {"double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64"}
    | {"sfixed32", "sfixed64", "bool", "string", "bytes"}
)
MAX_FIELD_NUMBER: Final = 2**29 - 1

ProtoOption = tuple[str, str]
"""The name and the text of the value, as it is written."""
NumberRange = tuple[int, int]
"""The first and the last number."""


@dataclass(slots=True)
class ProtoField:
    name: str
    number: int
    type: str
    """A scalar, the name of a message or enum as it is written, or the value's type of a map."""
    label: str = ""
    """optional, required, repeated, or empty."""
    key: str = ""
    """The key's type of a map; empty for other fields."""
    oneof: str = ""
    options: list[ProtoOption] = field(default_factory=list)

    @property
    def is_map(self) -> bool:
        return bool(self.key)


@dataclass(slots=True)
class ProtoEnum:
    name: str
    values: list[tuple[str, int, list[ProtoOption]]] = field(default_factory=list)
    options: list[ProtoOption] = field(default_factory=list)
    reserved_ranges: list[NumberRange] = field(default_factory=list)
    reserved_names: list[str] = field(default_factory=list)

    @property
    def allows_aliases(self) -> bool:
        return ("allow_alias", "true") in self.options


@dataclass(slots=True)
class ProtoMessage:
    name: str
    fields: list[ProtoField] = field(default_factory=list)
    """All fields in the order of the file, those of oneofs included."""
    oneofs: list[str] = field(default_factory=list)
    messages: "list[ProtoMessage]" = field(default_factory=list)
    enums: list[ProtoEnum] = field(default_factory=list)
    options: list[ProtoOption] = field(default_factory=list)
    reserved_ranges: list[NumberRange] = field(default_factory=list)
    reserved_names: list[str] = field(default_factory=list)
    extension_ranges: list[NumberRange] = field(default_factory=list)
    extends: "list[ProtoExtend]" = field(default_factory=list)
    is_group: bool = False
    """Defined by a group field of proto2, and written with it."""


@dataclass(slots=True)
class ProtoExtend:
    """Fields that a file adds to a message of another one."""

    message: str
    fields: list[ProtoField] = field(default_factory=list)


@dataclass(slots=True)
class ProtoMethod:
    name: str
    request: str
    response: str
    streams_requests: bool = False
    streams_responses: bool = False
    options: list[ProtoOption] = field(default_factory=list)


@dataclass(slots=True)
class ProtoService:
    name: str
    methods: list[ProtoMethod] = field(default_factory=list)
    options: list[ProtoOption] = field(default_factory=list)


@dataclass(slots=True)
class ProtoFile:
    syntax: str = "proto2"
    """proto2, proto3, or an edition."""
    is_edition: bool = False
    package: str = ""
    imports: list[tuple[str, str]] = field(default_factory=list)
    """`public`, `weak` or nothing, and the name of the file."""
    options: list[ProtoOption] = field(default_factory=list)
    messages: list[ProtoMessage] = field(default_factory=list)
    enums: list[ProtoEnum] = field(default_factory=list)
    extends: list[ProtoExtend] = field(default_factory=list)
    services: list[ProtoService] = field(default_factory=list)

    def types(self) -> "Iterator[tuple[str, ProtoMessage | ProtoEnum]]":
        """Every message and enum with its full name, outer ones first."""
        prefix = f"{self.package}." if self.package else ""
        pending: deque[tuple[str, ProtoMessage | ProtoEnum]] = deque()
        pending.extend((prefix + each.name, each) for each in self.messages)
        pending.extend((prefix + each.name, each) for each in self.enums)
        while pending:
            name, type_ = pending.popleft()
            yield name, type_
            if isinstance(type_, ProtoMessage):
                pending.extend((f"{name}.{each.name}", each) for each in type_.messages)
                pending.extend((f"{name}.{each.name}", each) for each in type_.enums)
