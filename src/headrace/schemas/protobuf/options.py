"""The options that Protobuf itself defines, between .proto files and compiled ones. Pure.

Others, which extensions define, and `features` of editions are part of the text only: generated code uses them.
"""

import re
import struct
from collections.abc import Iterable, Mapping
from typing import Final

from headrace.runtime.protobuf_wire import bytes_field, number_field, wire_fields
from headrace.schemas.protobuf.syntax import ProtoOption
from headrace.schemas.protobuf.tokens import unquoted

BOOL, TEXT = "bool", "text"
_DEPRECATED: Final = "deprecated"

OptionTable = Mapping[str, tuple[int, str | tuple[tuple[str, int], ...]]]
"""By name: the number, and the type; an enum is its names with their numbers."""

_SPEED = (("SPEED", 1), ("CODE_SIZE", 2), ("LITE_RUNTIME", 3))
_STRINGS = (("STRING", 0), ("CORD", 1), ("STRING_PIECE", 2))
_JS = (("JS_NORMAL", 0), ("JS_STRING", 1), ("JS_NUMBER", 2))
_IDEMPOTENCY = (("IDEMPOTENCY_UNKNOWN", 0), ("NO_SIDE_EFFECTS", 1), ("IDEMPOTENT", 2))

FILE_OPTIONS: Final[OptionTable] = {
    "java_package": (1, TEXT),
    "java_outer_classname": (8, TEXT),
    "optimize_for": (9, _SPEED),
    "java_multiple_files": (10, BOOL),
    "go_package": (11, TEXT),
    "cc_generic_services": (16, BOOL),
    "java_generic_services": (17, BOOL),
    "py_generic_services": (18, BOOL),
    "java_generate_equals_and_hash": (20, BOOL),
    _DEPRECATED: (23, BOOL),
    "java_string_check_utf8": (27, BOOL),
    "cc_enable_arenas": (31, BOOL),
    "objc_class_prefix": (36, TEXT),
    "csharp_namespace": (37, TEXT),
    "swift_prefix": (39, TEXT),
    "php_class_prefix": (40, TEXT),
    "php_namespace": (41, TEXT),
    "php_metadata_namespace": (44, TEXT),
    "ruby_package": (45, TEXT),
}
MESSAGE_OPTIONS: Final[OptionTable] = {
    "message_set_wire_format": (1, BOOL),
    "no_standard_descriptor_accessor": (2, BOOL),
    _DEPRECATED: (3, BOOL),
    "map_entry": (7, BOOL),
    "deprecated_legacy_json_field_conflicts": (11, BOOL),
}
FIELD_OPTIONS: Final[OptionTable] = {
    "ctype": (1, _STRINGS),
    "packed": (2, BOOL),
    _DEPRECATED: (3, BOOL),
    "lazy": (5, BOOL),
    "jstype": (6, _JS),
    "weak": (10, BOOL),
    "unverified_lazy": (15, BOOL),
    "debug_redact": (16, BOOL),
}
ENUM_OPTIONS: Final[OptionTable] = {
    "allow_alias": (2, BOOL),
    _DEPRECATED: (3, BOOL),
    "deprecated_legacy_json_field_conflicts": (6, BOOL),
}
VALUE_OPTIONS: Final[OptionTable] = {_DEPRECATED: (1, BOOL), "debug_redact": (3, BOOL)}
SERVICE_OPTIONS: Final[OptionTable] = {_DEPRECATED: (33, BOOL)}
METHOD_OPTIONS: Final[OptionTable] = {_DEPRECATED: (33, BOOL), "idempotency_level": (34, _IDEMPOTENCY)}


def written_options(options: Iterable[ProtoOption], table: OptionTable) -> bytes:
    """The options of the table, compiled."""
    parts = []
    for name, text in options:
        number, kind = table.get(name, (0, BOOL))
        if not number:
            continue
        if not isinstance(kind, str):
            parts.append(number_field(number, dict(kind).get(text, 0)))
        elif kind == TEXT:
            parts.append(bytes_field(number, unescaped(text)))
        else:
            parts.append(number_field(number, text == "true"))
    return b"".join(parts)


def read_options(data: bytes | memoryview, table: OptionTable) -> list[ProtoOption]:
    """The options of the table, as they are written in a .proto file."""
    names = {number: (name, kind) for name, (number, kind) in table.items()}
    found = []
    for number, _, value in wire_fields(data):
        name, kind = names.get(number, ("", BOOL))
        if not name:
            continue
        if isinstance(value, int):
            shown = "true" if value else "false"
            if not isinstance(kind, str):
                shown = next((each for each, place in kind if place == value), shown)
            found.append((name, shown))
        elif kind == TEXT:
            found.append((name, quoted(bytes(value))))
    return found


# -- defaults, which a compiled file has as text of its own


def compiled_default(text: str, type_: str) -> str:
    """The default of a field in a compiled file, from its text in a .proto file."""
    if type_ == "string":
        return unescaped(text).decode(errors="replace")
    if type_ == "bytes":
        return quoted(unescaped(text))[1:-1]
    if type_ in ("float", "double"):
        return _decimal(text, is_single=type_ == "float")
    if type_ == "bool" or not re.match(r"-?\d", text):
        return text
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    is_octal = digits.startswith("0") and digits.isdecimal()
    return f"{sign}{int(digits, 8) if is_octal else int(digits, 0)}"


def default_text(value: str, type_: str) -> str:
    """The reverse: how a .proto file writes it."""
    if type_ == "string":
        return quoted(value.encode())
    return f'"{value}"' if type_ == "bytes" else value


def _decimal(text: str, *, is_single: bool) -> str:
    """The shortest text of a number, as C writes it."""
    value = float(text.rstrip("fF") if text.lower().lstrip("-") not in ("inf", "nan") else text)
    if is_single:
        value = struct.unpack("<f", struct.pack("<f", value))[0]
    for digits in (6, 9) if is_single else (15, 17):
        shown = f"{value:.{digits}g}"
        again = float(shown)
        if is_single:
            again = struct.unpack("<f", struct.pack("<f", again))[0]
        if again == value:
            break
    return shown


# -- strings

_PIECE = re.compile(r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'""", re.DOTALL)
_ESCAPES = {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t", ord('"'): '\\"', ord("'"): "\\'", ord("\\"): "\\\\"}


def unescaped(text: str) -> bytes:
    """The bytes of one or several string tokens, one after the other."""
    return b"".join(unquoted(each) for each in _PIECE.findall(text))


def quoted(value: bytes) -> str:
    """A string token; what is not ASCII is escaped."""
    pieces = [_ESCAPES.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}") for byte in value]
    return f'"{"".join(pieces)}"'
