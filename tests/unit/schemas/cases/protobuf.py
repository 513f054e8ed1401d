"""Protobuf: "Updating A Message Type" of its language guide, and the rules that Confluent documents."""

from itertools import combinations

from tests.unit.schemas.cases.table import CompatibilityCase

_KIND, _SCALAR, _LABEL = "FIELD_KIND_CHANGED", "FIELD_SCALAR_KIND_CHANGED", "FIELD_NUMERIC_LABEL_CHANGED"
_MESSAGE, _PACKAGE, _NAMED = "MESSAGE_REMOVED", "PACKAGE_CHANGED", "FIELD_NAMED_TYPE_CHANGED"
_ADDED, _REMOVED = "REQUIRED_FIELD_ADDED", "REQUIRED_FIELD_REMOVED"
_ONEOF, _MANY, _EXISTING = "ONEOF_FIELD_REMOVED", "MULTIPLE_FIELDS_MOVED_TO_ONEOF", "FIELD_MOVED_TO_EXISTING_ONEOF"

_FAMILIES = (
    ("int32", "int64", "uint32", "uint64", "bool", "E"),
    ("sint32", "sint64"),
    ("fixed32", "sfixed32"),
    ("fixed64", "sfixed64"),
    ("string", "bytes"),
    ("float",),
    ("double",),
)
_ENUM = "enum E { NONE = 0; ONE = 1; }"


def _case(reason: str, old: str, new: str, backward: str = "", forward: str = "") -> CompatibilityCase:
    """The bodies of a message M; definitions beside it follow after `||`."""
    return CompatibilityCase(reason, _file(old), _file(new), backward, forward)


def _file(body: str, syntax: str = "proto3") -> str:
    inner, _, beside = body.partition("||")
    return f'syntax = "{syntax}"; package p; message M {{ {inner} }} {beside}'


def _proto2(reason: str, old: str, new: str, backward: str = "", forward: str = "") -> CompatibilityCase:
    return CompatibilityCase(reason, _file(old, "proto2"), _file(new, "proto2"), backward, forward)


def _files(reason: str, old: str, new: str, backward: str = "", forward: str = "") -> CompatibilityCase:
    head = 'syntax = "proto3"; '
    return CompatibilityCase(reason, head + old, head + new, backward, forward)


def _within_families() -> list[CompatibilityCase]:
    found = []
    for family in _FAMILIES:
        for old, new in combinations(family, 2):
            reason = f"{old} and {new} have the same encoding: one can be changed to the other"
            found.append(_case(reason, f"{old} a = 1; {_ENUM}", f"{new} a = 1; {_ENUM}"))
    return found


def _between_families() -> list[CompatibilityCase]:
    found = []
    for first, second in combinations(_FAMILIES, 2):
        old, new = first[0], second[0]
        reason = f"{old} and {new} have different encodings"
        found.append(_case(reason, f"{old} a = 1;", f"{new} a = 1;", _SCALAR, _SCALAR))
    return found


_FIELDS = [
    _case("the same message", "string a = 1;", "string a = 1;"),
    _case(
        "a field is added: old data has its default; old readers skip it",
        "string a = 1;",
        "string a = 1; string b = 2;",
    ),
    _case("a field is removed", "string a = 1; int32 b = 2;", "string a = 1;"),
    _case("a field is renamed: the number is what is encoded", "string a = 1;", "string b = 1;"),
    _case("a field gets another number: one is removed, one is added", "string a = 1;", "string a = 2;"),
    _case(
        "the order of fields in the file does not matter", "string a = 1; string b = 2;", "string b = 2; string a = 1;"
    ),
    _case(
        "the number of a removed field is reserved",
        "string a = 1; string b = 2;",
        'string a = 1; reserved 2; reserved "b";',
    ),
    _case(
        "two fields swap their numbers, with the same encoding",
        "string a = 1; string b = 2;",
        "string b = 1; string a = 2;",
    ),
    _case(
        "two fields swap their numbers, with different encodings",
        "string a = 1; int32 b = 2;",
        "int32 b = 1; string a = 2;",
        _SCALAR,
        _SCALAR,
    ),
    _case("all fields are removed", "string a = 1; string b = 2;", ""),
    _case("options of fields do not matter", "string a = 1;", "string a = 1 [deprecated = true];"),
    _case("json_name does not matter to the encoding", "string a = 1;", 'string a = 1 [json_name = "x"];'),
    _case("packed and unpacked are both read", "repeated int32 a = 1;", "repeated int32 a = 1 [packed = false];"),
    _case("comments do not matter", "string a = 1;", "/* A comment. */ string a = 1; /* Another one. */"),
]

_LABELS = [
    _case("explicit presence is the same encoding", "string a = 1;", "optional string a = 1;"),
    _case("explicit presence of a number", "int32 a = 1;", "optional int32 a = 1;"),
    _case(
        "a number becomes repeated from optional: repeated numbers are packed",
        "optional int32 a = 1;",
        "repeated int32 a = 1;",
        _LABEL,
        _LABEL,
    ),
    _case("a float becomes repeated", "optional float a = 1;", "repeated float a = 1;", _LABEL, _LABEL),
    _case("a double becomes repeated", "optional double a = 1;", "repeated double a = 1;", _LABEL, _LABEL),
    _case("a sint becomes repeated", "optional sint64 a = 1;", "repeated sint64 a = 1;", _LABEL, _LABEL),
    _case("a fixed32 becomes repeated", "optional fixed32 a = 1;", "repeated fixed32 a = 1;", _LABEL, _LABEL),
    _case("a fixed64 becomes repeated", "optional fixed64 a = 1;", "repeated fixed64 a = 1;", _LABEL, _LABEL),
    _case("a bool becomes repeated", "optional bool a = 1;", "repeated bool a = 1;", _LABEL, _LABEL),
    _case("an enum becomes repeated", f"optional E a = 1; {_ENUM}", f"repeated E a = 1; {_ENUM}", _LABEL, _LABEL),
    _case("a string becomes repeated: a reader takes the last one", "optional string a = 1;", "repeated string a = 1;"),
    _case("bytes become repeated", "optional bytes a = 1;", "repeated bytes a = 1;"),
    _case(
        "a message becomes repeated: a reader merges them",
        "optional N a = 1; || message N { }",
        "repeated N a = 1; || message N { }",
    ),
    _proto2("a required number becomes optional", "required int32 a = 1;", "optional int32 a = 1;", _LABEL, _LABEL),
    _proto2("a required string becomes optional", "required string a = 1;", "optional string a = 1;"),
    _proto2(
        "a required message becomes optional", "required N a = 1; message N { }", "optional N a = 1; message N { }"
    ),
]

_REQUIRED = [
    _proto2(
        "a required field is added: old data lacks it",
        "optional string a = 1;",
        "optional string a = 1; required string b = 2;",
        _ADDED,
        _REMOVED,
    ),
    _proto2("a required field is removed: old readers need it", "required string a = 1;", "", _REMOVED, _ADDED),
    _proto2("an optional field is added", "required string a = 1;", "required string a = 1; optional string b = 2;"),
    _proto2("an optional field is removed", "required string a = 1; optional string b = 2;", "required string a = 1;"),
    _proto2("a required field is renamed", "required string a = 1;", "required string b = 1;"),
    _proto2("a required field gets another number", "required string a = 1;", "required string a = 2;", _ADDED, _ADDED),
    _proto2(
        "a required field in a nested message",
        "optional N n = 1; message N { }",
        "optional N n = 1; message N { required int32 a = 1; }",
        _ADDED,
        _REMOVED,
    ),
    _proto2(
        "a default changes: it is never sent",
        "optional int32 a = 1 [default = 1];",
        "optional int32 a = 1 [default = 2];",
    ),
    _proto2("a range of extensions is added", "optional int32 a = 1;", "optional int32 a = 1; extensions 100 to 199;"),
    _proto2(
        "a group gains a field",
        "optional group G = 1 { optional int32 a = 2; }",
        "optional group G = 1 { optional int32 a = 2; optional int32 b = 3; }",
    ),
    _proto2(
        "a field of a group changes its type",
        "optional group G = 1 { optional int32 a = 2; }",
        "optional group G = 1 { optional string a = 2; }",
        _SCALAR,
        _SCALAR,
    ),
]

_KINDS = [
    _case("a scalar becomes a message", "string a = 1; message N { }", "N a = 1; message N { }", _KIND, _KIND),
    _case(
        "bytes become a message, which Confluent's rules do not allow",
        "bytes a = 1; message N { }",
        "N a = 1; message N { }",
        _KIND,
        _KIND,
    ),
    _case("a number becomes a message", "int32 a = 1; message N { }", "N a = 1; message N { }", _KIND, _KIND),
    _case(
        "an enum becomes a message",
        f"E a = 1; {_ENUM} message N {{ }}",
        f"N a = 1; {_ENUM} message N {{ }}",
        _KIND,
        _KIND,
    ),
    _case("an enum becomes a string", f"E a = 1; {_ENUM}", f"string a = 1; {_ENUM}", _SCALAR, _SCALAR),
    _case("an enum becomes a sint32", f"E a = 1; {_ENUM}", f"sint32 a = 1; {_ENUM}", _SCALAR, _SCALAR),
    _case("a scalar becomes a map", "string a = 1;", "map<string, string> a = 1;", _KIND, _KIND),
    _case(
        "a message becomes a map", "N a = 1; message N { }", "map<string, string> a = 1; message N { }", _KIND, _KIND
    ),
    _case("int32 is not fixed32", "int32 a = 1;", "fixed32 a = 1;", _SCALAR, _SCALAR),
    _case("int64 is not sint64", "int64 a = 1;", "sint64 a = 1;", _SCALAR, _SCALAR),
    _case("fixed32 is not float", "fixed32 a = 1;", "float a = 1;", _SCALAR, _SCALAR),
    _case("bool is not string", "bool a = 1;", "string a = 1;", _SCALAR, _SCALAR),
]

_MAPS = [
    _case("the same map", "map<string, int32> a = 1;", "map<string, int32> a = 1;"),
    _case("a value within its family", "map<string, int32> a = 1;", "map<string, int64> a = 1;"),
    _case("a value outside of its family", "map<string, int32> a = 1;", "map<string, string> a = 1;", _SCALAR, _SCALAR),
    _case("a key within its family", "map<int32, string> a = 1;", "map<uint64, string> a = 1;"),
    _case("a key outside of its family", "map<int32, string> a = 1;", "map<string, string> a = 1;", _SCALAR, _SCALAR),
    _case(
        "a value becomes a message",
        "map<string, int32> a = 1; message N { }",
        "map<string, N> a = 1; message N { }",
        _KIND,
        _KIND,
    ),
    _case(
        "a message in a map changes",
        "map<string, N> a = 1; message N { int32 x = 1; }",
        "map<string, N> a = 1; message N { string x = 1; }",
        _SCALAR,
        _SCALAR,
    ),
    _case(
        "a message in a map gains a field",
        "map<string, N> a = 1; message N { }",
        "map<string, N> a = 1; message N { string x = 1; }",
    ),
    _case("a value of an enum and of an int32", f"map<string, E> a = 1; {_ENUM}", f"map<string, int32> a = 1; {_ENUM}"),
    _case("a map is removed", "map<string, int32> a = 1;", ""),
    _case("a map is added", "", "map<string, int32> a = 1;"),
    _case("a map is renamed", "map<string, int32> a = 1;", "map<string, int32> b = 1;"),
]

_ENUMS = [
    _case("a constant is added", f"E e = 1; {_ENUM}", "E e = 1; enum E { NONE = 0; ONE = 1; TWO = 2; }"),
    _case(
        "a constant is renamed: the number is what is encoded",
        f"E e = 1; {_ENUM}",
        "E e = 1; enum E { NONE = 0; UNO = 1; }",
    ),
    _case("an enum is added", "string a = 1;", f"string a = 1; {_ENUM}"),
    _case("an enum that no field uses is removed", f"string a = 1; {_ENUM}", "string a = 1;"),
    _case(
        "an enum is replaced by another one",
        f"E e = 1; {_ENUM} enum F {{ X = 0; }}",
        f"F e = 1; {_ENUM} enum F {{ X = 0; }}",
    ),
    _case(
        "an alias is added",
        f"E e = 1; {_ENUM}",
        "E e = 1; enum E { option allow_alias = true; NONE = 0; ONE = 1; UNO = 1; }",
    ),
    _case(
        "the order of constants does not matter",
        "E e = 1; enum E { A = 0; B = 1; C = 2; }",
        "E e = 1; enum E { A = 0; C = 2; B = 1; }",
    ),
    _case("an enum moves into the message", "E e = 1; || enum E { A = 0; }", "E e = 1; enum E { A = 0; }"),
]

_MESSAGES = [
    _case("a message is added", "string a = 1;", "string a = 1; || message N { }", "", _MESSAGE),
    _case("a nested message is added", "string a = 1;", "string a = 1; message N { }", "", _MESSAGE),
    _case("a nested message is removed", "message N { }", "", _MESSAGE, ""),
    _case("a message in a nested one is removed", "message N { message O { } }", "message N { }", _MESSAGE, ""),
    _case("a nested message gains a field", "N n = 1; message N { }", "N n = 1; message N { string a = 1; }"),
    _case(
        "a field of a nested message changes its type",
        "N n = 1; message N { int32 a = 1; }",
        "N n = 1; message N { string a = 1; }",
        _SCALAR,
        _SCALAR,
    ),
    _case(
        "a field gets another message",
        "N n = 1; message N { } message O { }",
        "O n = 1; message N { } message O { }",
        _NAMED,
        _NAMED,
    ),
    _case(
        "the messages of a file change their order",
        "N n = 1; || message N { } message O { }",
        "N n = 1; || message O { } message N { }",
    ),
    _case(
        "a message beside changes",
        "string a = 1; || message N { int32 x = 1; }",
        "string a = 1; || message N { string x = 1; }",
        _SCALAR,
        _SCALAR,
    ),
    _case("a name is relative or full", "N n = 1; || message N { }", ".p.N n = 1; || message N { }"),
    _case("a message that refers to itself", "M m = 1; string a = 2;", "M m = 1; string a = 2; string b = 3;"),
    _case(
        "a message that refers to itself changes", "M m = 1; string a = 2;", "M m = 1; int32 a = 2;", _SCALAR, _SCALAR
    ),
    _case(
        "messages that refer to each other",
        "N n = 1; || message N { M m = 1; }",
        "N n = 1; || message N { M m = 1; string a = 2; }",
    ),
    _case("a service is no part of the data", "", "|| service S { rpc Get (M) returns (M); }"),
    _files(
        "a field of a well-known type is renamed",
        'import "google/protobuf/timestamp.proto"; message M { google.protobuf.Timestamp a = 1; }',
        'import "google/protobuf/timestamp.proto"; message M { google.protobuf.Timestamp b = 1; }',
    ),
    _files(
        "another well-known type",
        'import "google/protobuf/wrappers.proto"; message M { google.protobuf.Int32Value a = 1; }',
        'import "google/protobuf/wrappers.proto"; message M { google.protobuf.StringValue a = 1; }',
        _NAMED,
        _NAMED,
    ),
]

_FILES = [
    _files("the package changes", "package a; message M { }", "package b; message M { }", _PACKAGE, _PACKAGE),
    _files("a package is added", "message M { }", "package b; message M { }", _PACKAGE, _PACKAGE),
    _files("options of the file do not matter", "message M { }", 'option java_package = "x"; message M { }'),
    _files("a message is renamed: one is removed", "message M { }", "message N { }", _MESSAGE, _MESSAGE),
    _files("a file without messages gains one", "", "message M { }", "", _MESSAGE),
    _files(
        "an unused import of a well-known file", "message M { }", 'import "google/protobuf/any.proto"; message M { }'
    ),
    CompatibilityCase(
        "the syntax changes, the encoding does not",
        'syntax = "proto2"; message M { optional string a = 1; }',
        'syntax = "proto3"; message M { string a = 1; }',
    ),
    CompatibilityCase(
        "a file without a syntax is proto2",
        "message M { optional string a = 1; }",
        'syntax = "proto2"; message M { optional string a = 1; }',
    ),
]

_ONEOFS = [
    _case("a oneof is added", "string a = 1;", "string a = 1; oneof o { string b = 2; string c = 3; }"),
    _case("a whole oneof is removed", "string a = 1; oneof o { string b = 2; string c = 3; }", "string a = 1;"),
    _case("a member is added", "oneof o { string a = 1; }", "oneof o { string a = 1; string b = 2; }", "", _ONEOF),
    _case(
        "a member is removed: what was set is lost",
        "oneof o { string a = 1; string b = 2; }",
        "oneof o { string a = 1; }",
        _ONEOF,
        "",
    ),
    _case("a single field moves into a new oneof", "string a = 1;", "oneof o { string a = 1; }"),
    _case(
        "a single field moves into a new oneof with a new one",
        "string a = 1;",
        "oneof o { string a = 1; string b = 2; }",
        "",
        _ONEOF,
    ),
    _case(
        "two fields that could be set together move into a oneof",
        "string a = 1; string b = 2;",
        "oneof o { string a = 1; string b = 2; }",
        _MANY,
        "",
    ),
    _case(
        "three fields move into a oneof",
        "string a = 1; string b = 2; string c = 3;",
        "oneof o { string a = 1; string b = 2; string c = 3; }",
        _MANY,
        "",
    ),
    _case(
        "a field moves into a oneof that has others",
        "string a = 1; oneof o { string b = 2; }",
        "oneof o { string b = 2; string a = 1; }",
        _EXISTING,
        "",
    ),
    _case(
        "two oneofs become one",
        "oneof o { string a = 1; } oneof q { string b = 2; }",
        "oneof o { string a = 1; string b = 2; }",
        _EXISTING,
        "",
    ),
    _case(
        "a oneof is split into two",
        "oneof o { string a = 1; string b = 2; }",
        "oneof o { string a = 1; } oneof q { string b = 2; }",
        "",
        _EXISTING,
    ),
    _case(
        "a member moves out of its oneof",
        "oneof o { string a = 1; string b = 2; }",
        "oneof o { string a = 1; } string b = 2;",
        "",
        _EXISTING,
    ),
    _case("a oneof is renamed", "oneof o { string a = 1; string b = 2; }", "oneof q { string a = 1; string b = 2; }"),
    _case("a member is renamed", "oneof o { string a = 1; }", "oneof o { string b = 1; }"),
    _case("a member changes within its family", "oneof o { int32 a = 1; }", "oneof o { int64 a = 1; }"),
    _case("a member changes its encoding", "oneof o { int32 a = 1; }", "oneof o { string a = 1; }", _SCALAR, _SCALAR),
    _case(
        "a member that moves out changes its encoding", "oneof o { int32 a = 1; }", "string a = 1;", _SCALAR, _SCALAR
    ),
    _case(
        "a oneof is renamed and loses a member",
        "oneof o { string a = 1; string b = 2; }",
        "oneof q { string a = 1; }",
        _ONEOF,
        "",
    ),
    _case(
        "a message in a oneof changes",
        "oneof o { N n = 1; } message N { int32 a = 1; }",
        "oneof o { N n = 1; } message N { string a = 1; }",
        _SCALAR,
        _SCALAR,
    ),
    _case("a oneof of one member becomes a field", "oneof o { string a = 1; }", "string a = 1;"),
]

CASES = [
    *_within_families(),
    *_between_families(),
    *_FIELDS,
    *_LABELS,
    *_REQUIRED,
    *_KINDS,
    *_MAPS,
    *_ENUMS,
    *_MESSAGES,
    *_FILES,
    *_ONEOFS,
]
