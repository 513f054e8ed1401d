"""Protobuf schemas, schemas that were made of them by a few changes, and values of them."""

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

_SCALARS = ("int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64")
_OTHERS = ("bool", "float", "double", "string", "bytes", "E", "N")
_TYPES = (*_SCALARS, *_OTHERS)
_LABELS = ("", "optional", "repeated")
_NUMBERS = (1, 2, 3, 4)


@dataclass(frozen=True)
class DrawnField:
    number: int
    type: str
    label: str = ""
    is_map: bool = False
    oneof: bool = False
    name: str = "f"

    @property
    def text(self) -> str:
        name = f"{self.name}{self.number}"
        if self.is_map:
            return f"map<string, {self.type}> {name} = {self.number};"
        return f"{self.label} {self.type} {name} = {self.number};".lstrip()


@dataclass(frozen=True)
class DrawnMessage:
    """A file with a message M; N and E are others that its fields may have."""

    fields: tuple[DrawnField, ...]
    constants: int = 2
    inner: str = "int32"
    extra: tuple[str, ...] = field(default=())

    @property
    def text(self) -> str:
        plain = " ".join(each.text for each in self.fields if not each.oneof)
        chosen = " ".join(each.text for each in self.fields if each.oneof)
        oneof = f"oneof choice {{ {chosen} }}" if chosen else ""
        constants = " ".join(f"C{number} = {number};" for number in range(self.constants))
        others = " ".join(f"message {name} {{ }}" for name in self.extra)
        return (
            f'syntax = "proto3"; package p; message M {{ {plain} {oneof} }} '
            f"enum E {{ {constants} }} message N {{ {self.inner} a = 1; }} {others}"
        )


def _fields(number: int) -> st.SearchStrategy[DrawnField]:
    plain = st.builds(DrawnField, st.just(number), st.sampled_from(_TYPES), st.sampled_from(_LABELS))
    maps = st.builds(DrawnField, st.just(number), st.sampled_from(_TYPES), is_map=st.just(True))
    chosen = st.builds(DrawnField, st.just(number), st.sampled_from(_TYPES), oneof=st.just(True))
    return st.one_of(plain, plain, maps, chosen)


@st.composite
def proto_schemas(draw: Any) -> DrawnMessage:
    numbers = draw(st.lists(st.sampled_from(_NUMBERS), max_size=3, unique=True))
    fields = tuple(draw(_fields(number)) for number in numbers)
    return DrawnMessage(fields, draw(st.integers(1, 3)), draw(st.sampled_from(_SCALARS)))


@st.composite
def proto_pairs(draw: Any) -> tuple[DrawnMessage, DrawnMessage]:
    """A schema, and one that was made of it by up to three changes."""
    old = new = draw(proto_schemas())
    for _ in range(draw(st.integers(0, 3))):
        new = _changed(draw, new)
    return old, new


def _changed(draw: Any, message: DrawnMessage) -> DrawnMessage:
    fields = list(message.fields)
    match draw(st.sampled_from(("add", "remove", "type", "rename", "label", "oneof", "enum", "inner", "message"))):
        case "add":
            free = [number for number in _NUMBERS if number not in {each.number for each in fields}]
            fields += [draw(_fields(draw(st.sampled_from(free))))] if free else []
        case "enum":
            return replace(message, constants=draw(st.integers(1, 4)))
        case "inner":
            return replace(message, inner=draw(st.sampled_from(_SCALARS)))
        case "message":
            return replace(message, extra=() if message.extra else ("O",))
        case change if fields:
            place = draw(st.integers(0, len(fields) - 1))
            each = fields.pop(place)
            if change == "type":
                fields.insert(place, replace(each, type=draw(st.sampled_from(_TYPES))))
            elif change == "rename":
                fields.insert(place, replace(each, name="g"))
            elif change == "label" and not each.is_map and not each.oneof:
                fields.insert(place, replace(each, label=draw(st.sampled_from(_LABELS))))
            elif change == "oneof" and not each.is_map:
                fields.insert(place, replace(each, oneof=not each.oneof, label=""))
    return replace(message, fields=tuple(fields))


_VALUES: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), st.integers(-(2**31), 2**31 - 1)),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), st.integers(-(2**63), 2**63 - 1)),
    **dict.fromkeys(("uint32", "fixed32"), st.integers(0, 2**32 - 1)),
    **dict.fromkeys(("uint64", "fixed64"), st.integers(0, 2**64 - 1)),
    "bool": st.booleans(),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": st.text(max_size=3),
    # Protobuf refuses a string that is not UTF-8, also where bytes became a string.
    "bytes": st.text(max_size=3).map(str.encode),
}


def proto_values(message: DrawnMessage) -> st.SearchStrategy[dict[str, Any]]:
    """Values of M, as arguments of its class; one member of the oneof at most."""
    chosen = [each for each in message.fields if each.oneof]
    plain = [each for each in message.fields if not each.oneof]
    every = [*plain, *chosen[:1]]
    return st.fixed_dictionaries({}, optional={f"{each.name}{each.number}": _of(message, each) for each in every})


def _of(message: DrawnMessage, drawn: DrawnField) -> st.SearchStrategy[Any]:
    if drawn.type == "N":
        single: st.SearchStrategy[Any] = st.fixed_dictionaries({"a": _VALUES[message.inner]})
    elif drawn.type == "E":
        single = st.integers(0, message.constants - 1)
    else:
        single = _VALUES[drawn.type]
    if drawn.is_map:
        return st.dictionaries(st.text(max_size=2), single, max_size=2)
    return st.lists(single, max_size=2) if drawn.label == "repeated" else single
