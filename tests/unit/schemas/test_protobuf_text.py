"""The parser of .proto files, and its canonical text."""

import pytest

from headrace.schemas.errors import InvalidSchema
from headrace.schemas.protobuf.descriptor import read_descriptor
from headrace.schemas.protobuf.descriptor_writer import serialized_proto
from headrace.schemas.protobuf.parser import parse_proto
from headrace.schemas.protobuf.resolution import resolve_proto
from headrace.schemas.protobuf.text import canonical_proto

_FILE = """// A comment.
syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
option java_package = "org.example";
/* A block. */
message Order {
  reserved 8, 10 to 12;
  reserved "old";
  string id = 1;
  optional int32 count = 2 [deprecated = true];
  repeated Item items = 3;
  map<string, Kind> kinds = 4;
  oneof payment { string card = 5; Item voucher = 6; }
  google.protobuf.Timestamp at = 7;
  message Item { string name = 1; message Deep { bytes raw = 1; } Deep deep = 2; }
  enum Kind { NONE = 0; SOME = 1; }
}
service Orders { rpc Watch (Order) returns (stream Order) { option idempotency_level = NO_SIDE_EFFECTS; } }
"""


def test_the_canonical_text_has_no_comments_and_one_layout() -> None:
    text = canonical_proto(parse_proto(_FILE))
    assert text.startswith('syntax = "proto3";\npackage shop.v1;\n\nimport "google/protobuf/timestamp.proto";\n')
    assert "comment" not in text
    assert "  optional int32 count = 2 [deprecated = true];\n" in text
    assert "  map<string, Kind> kinds = 4;\n" in text
    assert "  oneof payment {\n    string card = 5;\n    Item voucher = 6;\n  }\n" in text
    assert "  reserved 8, 10 to 12;\n" in text
    assert canonical_proto(parse_proto(text)) == text


def test_a_compiled_file_is_the_same_schema() -> None:
    schema = resolve_proto(parse_proto(_FILE), {})
    compiled = read_descriptor(serialized_proto(schema))
    assert compiled is not None
    again = serialized_proto(resolve_proto(compiled, {}))
    assert again == serialized_proto(schema)


def test_names_of_types_may_be_keywords() -> None:
    file = parse_proto('syntax = "proto3"; message M { message message { string option = 1; } message reserved = 2; }')
    assert [each.name for each in file.messages[0].fields] == ["reserved"]
    assert file.messages[0].fields[0].type == "message"


def test_groups_of_proto2_are_messages() -> None:
    text = 'syntax = "proto2"; message M { repeated group Part = 1 { required string name = 2; } }'
    file = parse_proto(text)
    assert file.messages[0].fields[0].name == "part"
    assert canonical_proto(parse_proto(canonical_proto(file))) == canonical_proto(file)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("message M { string a = 0; }", "number 0"),
        ("message M { string a = 19000; }", "number 19000"),
        ("message M { string a = 1; string b = 1; }", "number 1 twice"),
        ("message M { string a = 1; string a = 2; }", "field a twice"),
        ("message M { reserved 1; string a = 1; }", "reserved"),
        ('syntax = "proto3"; message M { required string a = 1; }', "required"),
        ('syntax = "proto3"; enum E { A = 1; }', "is not 0"),
        ("enum E { A = 1; B = 1; }", "allow_alias"),
        ("enum E { }", "no value"),
        ("message M { string a = 1;", "ends in the middle"),
        ("message M { map<float, string> a = 1; }", "map with keys"),
        ('syntax = "proto9";', "neither proto2 nor proto3"),
        ("nonsense", "begins no definition"),
        ("message M { § }", "not a part of"),
    ],
)
def test_errors_name_the_line_and_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidSchema, match=r"line 1: .*") as error:
        parse_proto(text)
    assert reason in str(error.value)


def test_unknown_types_and_imports_are_refused() -> None:
    with pytest.raises(InvalidSchema, match="the type Missing of the field a of M is not defined"):
        resolve_proto(parse_proto("message M { optional Missing a = 1; }"), {})
    with pytest.raises(InvalidSchema, match=r"the import 'other\.proto' is none of the references"):
        resolve_proto(parse_proto('import "other.proto"; message M { }'), {})


def test_deep_nesting_is_refused() -> None:
    text = "message M {" * 500 + "}" * 500
    with pytest.raises(InvalidSchema, match="nested more than 64 deep"):
        parse_proto(text)
