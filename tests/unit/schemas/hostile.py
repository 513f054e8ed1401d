"""Schemas that are made to take long: pairs of an old and a new one, by name, of about a given size."""

import json
from collections.abc import Callable
from typing import NamedTuple


class HostilePair(NamedTuple):
    kind: str
    old: str
    new: str


def _json(old: object, new: object | None = None, kind: str = "JSON") -> HostilePair:
    first = json.dumps(old, separators=(",", ":"))
    return HostilePair(kind, first, first if new is None else json.dumps(new, separators=(",", ":")))


def _avro(old: object, new: object | None = None) -> HostilePair:
    return _json(old, new, "AVRO")


def _proto(old: str, new: str | None = None) -> HostilePair:
    return HostilePair("PROTOBUF", old, old if new is None else new)


def _nested_avro(size: int) -> HostilePair:
    depth = size // 30
    return HostilePair("AVRO", "", '{"type":"array","items":' * depth + '"int"' + "}" * depth)


def _nested_json(size: int) -> HostilePair:
    depth = size // 12
    return HostilePair("JSON", "", '{"items":' * depth + "{}" + "}" * depth)


def _nested_lists(size: int) -> HostilePair:
    return HostilePair("JSON", "", '{"enum":' + "[" * (size // 2) + "]" * (size // 2) + "}")


def _nested_proto(size: int) -> HostilePair:
    return _proto("", "message M {" * (size // 12) + "}" * (size // 12))


def _huge_avro_enum(size: int) -> HostilePair:
    count = size // 11
    old = {"type": "enum", "name": "E", "symbols": [f"S{place}" for place in range(count)]}
    return _avro(old, {**old, "symbols": [f"T{place}" for place in range(count)]})


def _avro_defaults_of_enum(size: int) -> HostilePair:
    count = size // 60
    symbols = [f"S{place}" for place in range(count)]
    enum = {"type": "enum", "name": "E", "symbols": symbols}
    fields: list[dict[str, object]] = [{"name": "first", "type": enum}]
    fields += [{"name": f"f{place}", "type": "E", "default": symbols[-1]} for place in range(count)]
    return _avro({"type": "record", "name": "R", "fields": fields})


def _avro_unions(size: int) -> HostilePair:
    count = size // 45

    def union(prefix: str) -> object:
        return [{"type": "record", "name": f"{prefix}{place}", "fields": []} for place in range(count)]

    return _avro(union("A"), union("B"))


def _avro_types_in_pairs(size: int) -> HostilePair:
    """Each record refers to the next two ones, in another order on the other side: every pair is compared."""
    count = max(3, size // 90)

    def chain(step: int) -> object:
        inner: object = {"type": "record", "name": "R0", "fields": []}
        for place in range(1, min(count, 60)):
            fields = [{"name": "a", "type": inner}, {"name": "b", "type": f"R{max(0, place - step)}"}]
            inner = {"type": "record", "name": f"R{place}", "fields": fields}
        return inner

    return _avro(chain(1), chain(2))


def _definition(number: int) -> str:
    return f"#/definitions/d{number}"


def _json_references_that_double(size: int) -> HostilePair:
    levels = size // 100
    definitions: dict[str, object] = {
        f"d{level}": {
            "anyOf": [{"$ref": f"#/definitions/d{level + 1}"}, {"not": {"$ref": f"#/definitions/d{level + 1}"}}]
        }
        for level in range(levels)
    }
    definitions[f"d{levels}"] = {"type": "string"}
    other = {**definitions, f"d{levels}": {"type": "number"}}
    return _json(
        {"$ref": "#/definitions/d0", "definitions": definitions}, {"$ref": "#/definitions/d0", "definitions": other}
    )


def _json_cycles(size: int) -> HostilePair:
    count = size // 60

    def ring(step: int) -> object:
        definitions = {
            f"d{place}": {"properties": {"a": {"$ref": f"#/definitions/d{(place + step) % count}"}}}
            for place in range(count)
        }
        return {"$ref": "#/definitions/d0", "definitions": definitions}

    return _json(ring(1), ring(3))


def _json_alternatives(size: int) -> HostilePair:
    count = size // 55

    def wide(prefix: str) -> object:
        return {"anyOf": [{"type": "object", "properties": {f"{prefix}{n}": {"type": "string"}}} for n in range(count)]}

    return _json(wide("p"), wide("q"))


def _json_matching(size: int) -> HostilePair:
    """Alternatives that all fit all others, but one: the matching is tried again and again."""
    count = size // 40
    old = [{"type": "string", "maxLength": n + 10} for n in range(count)]
    new = [{"type": "string", "maxLength": count + 20 + n} for n in range(count - 1)] + [{"type": "null"}]
    return _json({"oneOf": old}, {"oneOf": new})


def _json_nested_combinations(size: int) -> HostilePair:
    def nest(depth: int, leaf: str) -> object:
        inner: object = {"type": leaf}
        for level in range(depth):
            inner = {("oneOf", "anyOf", "allOf")[level % 3]: [inner, {"type": "object", "title": f"t{level}"}]}
        return inner

    depth = min(150, size // 60)
    return _json(nest(depth, "string"), nest(depth, "number"))


def _json_enum_of_everything(size: int) -> HostilePair:
    """Values of mixed types, which cannot be sorted."""
    values = [{"a": n} if n % 2 else [n] for n in range(size // 8)]
    return _json({"enum": values}, {"enum": values[::-1]})


def _json_patterns(size: int) -> HostilePair:
    count = size // 60
    patterns = {f"^x{n}(a|b)*(a|b)*c$": {"type": "string"} for n in range(count)}
    old = {"type": "object", "patternProperties": patterns, "additionalProperties": False}
    new = {**old, "properties": {f"y{n}": {"type": "string"} for n in range(count)}}
    return _json(old, new)


def _json_regex_bombs(size: int) -> HostilePair:
    bombs = ["(a+)+$", "((a{1,100}){1,100}){1,100}", "(x+x+)+y", "(?=a)" * 50, "[" * 100, "(.*)" * 30 + "z"]
    patterns = {bomb: {"type": "string", "pattern": bomb} for bomb in bombs if bomb.count("[") < 50}
    old = {"type": "object", "patternProperties": patterns, "additionalProperties": False}
    new = {**old, "properties": {"a" * 30 + f"!{n}": {"type": "string"} for n in range(size // 60)}}
    return _json(old, new)


def _json_many_schemas(size: int, draft: str) -> HostilePair:
    properties = {f"p{n}": {"type": "string"} for n in range(size // 25)}
    return _json({"$schema": draft, "type": "object", "properties": properties})


def _json_multiples(_: int) -> HostilePair:
    return _json({"type": "number", "multipleOf": 1e300}, {"type": "number", "multipleOf": 1e-300, "maximum": 10**1000})


def _proto_oneofs(size: int) -> HostilePair:
    oneofs = " ".join(f"oneof o{n} {{ int32 f{n} = {n + 1}; }}" for n in range(min(18_000, size // 35)))
    return _proto(f'syntax = "proto3"; message M {{ {oneofs} }}')


def _proto_reserved(size: int) -> HostilePair:
    count = min(18_000, size // 40)
    ranges = ", ".join(f"{30_000 + 2 * n}" for n in range(count))
    fields = " ".join(f"int32 f{n} = {n + 1};" for n in range(count))
    return _proto(f'syntax = "proto3"; message M {{ reserved {ranges}; {fields} }}')


def _proto_long_names(size: int) -> HostilePair:
    return _proto("", f'syntax = "proto3"; package {".".join("a" * (size // 2))}; message M {{ M m = 1; }}')


def _proto_fields(size: int) -> HostilePair:
    fields = " ".join(f"M f{n} = {n + 1};" for n in range(min(18_000, size // 15)))
    return _proto(f'syntax = "proto3"; message M {{ {fields} }}')


def _proto_enum(size: int) -> HostilePair:
    values = " ".join(f"V{n} = {n};" for n in range(size // 14))
    return _proto(f'syntax = "proto3"; enum E {{ {values} }}')


def _proto_comments(size: int) -> HostilePair:
    return _proto("", "/* " * (size // 3))


def _proto_aggregate(size: int) -> HostilePair:
    return _proto("", "option (x) = " + "{" * (size - 20))


HOSTILE: dict[str, Callable[[int], HostilePair]] = {
    "nested Avro": _nested_avro,
    "nested JSON Schema": _nested_json,
    "nested lists": _nested_lists,
    "nested messages": _nested_proto,
    "huge enum of Avro": _huge_avro_enum,
    "defaults of a huge enum": _avro_defaults_of_enum,
    "unions": _avro_unions,
    "records in pairs": _avro_types_in_pairs,
    "references that double": _json_references_that_double,
    "cycles of references": _json_cycles,
    "alternatives": _json_alternatives,
    "matching": _json_matching,
    "nested combinations": _json_nested_combinations,
    "enum of mixed values": _json_enum_of_everything,
    "patterns": _json_patterns,
    "regular expressions": _json_regex_bombs,
    "many properties": lambda size: _json_many_schemas(size, "http://json-schema.org/draft-07/schema#"),
    "many properties of 2020-12": lambda size: _json_many_schemas(size, "https://json-schema.org/draft/2020-12/schema"),
    "multiples": _json_multiples,
    "oneofs": _proto_oneofs,
    "reserved numbers": _proto_reserved,
    "long names": _proto_long_names,
    "fields": _proto_fields,
    "huge enum of Protobuf": _proto_enum,
    "comments that do not end": _proto_comments,
    "braces that do not end": _proto_aggregate,
}
