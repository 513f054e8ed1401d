"""Whether data written with one Avro schema can be read with another: Avro's schema resolution. Pure.

The rules and their names are those of Avro for Java, which Confluent's registry uses: names are compared without their
namespaces, and a reader's aliases count.
"""

from headrace.schemas.avro.types import AvroSchema, AvroSchemaField, AvroSchemaType
from headrace.schemas.incompatibility import Incompatibility
from headrace.schemas.steps import StepLimit

_PROMOTED_FROM = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}
MAX_FINDINGS = 100
"""More are not listed: one is enough to refuse a schema, and those of nested types would double at every level."""


def avro_incompatibilities(reader: AvroSchema, writer: AvroSchema) -> list[Incompatibility]:
    """What keeps data of `writer` from being read with `reader`; empty if nothing does."""
    return _AvroComparison().compare(reader.root, writer.root, "", 0)


class _AvroComparison:
    def __init__(self) -> None:
        self._steps = StepLimit()
        self._known: dict[tuple[int, int], list[Incompatibility]] = {}
        """The findings of pairs of types; empty while a pair is being compared, which makes recursion end."""

    def compare(self, reader: AvroSchemaType, writer: AvroSchemaType, path: str, depth: int) -> list[Incompatibility]:
        self._steps.step(depth)
        pair = (id(reader), id(writer))
        known = self._known.get(pair)
        if known is None:
            self._known[pair] = []
            known = self._known[pair] = self._findings(reader, writer, path, depth)[:MAX_FINDINGS]
        return known

    def _findings(self, reader: AvroSchemaType, writer: AvroSchemaType, path: str, depth: int) -> list[Incompatibility]:
        if writer.kind == "union":
            return self._from_union(reader, writer, path, depth)
        if reader.kind == "union":
            return self._to_union(reader, writer, path, depth)
        if _family(reader) != _family(writer):
            promoted = _PROMOTED_FROM.get(reader.kind, ())
            return [] if writer.kind in promoted else [_mismatch(reader, writer, path)]
        if reader.kind in ("array", "map"):
            assert reader.items is not None
            assert writer.items is not None
            within = f"{path}/{'items' if reader.kind == 'array' else 'values'}"
            return self.compare(reader.items, writer.items, within, depth + 1)
        if reader.name:
            return self._named(reader, writer, path, depth)
        return []

    def _from_union(
        self, reader: AvroSchemaType, writer: AvroSchemaType, path: str, depth: int
    ) -> list[Incompatibility]:
        found: list[Incompatibility] = []
        for place, branch in enumerate(writer.branches):
            if len(found) >= MAX_FINDINGS:
                break
            if reader.kind != "union":
                found += self.compare(reader, branch, path, depth + 1)
            elif self.compare(reader, branch, path, depth + 1):
                found.append(_missing_branch(branch, f"{path}/{place}"))
        return found

    def _to_union(self, reader: AvroSchemaType, writer: AvroSchemaType, path: str, depth: int) -> list[Incompatibility]:
        if any(not self.compare(branch, writer, path, depth + 1) for branch in reader.branches):
            return []
        return [_missing_branch(writer, path or "/")]

    def _named(self, reader: AvroSchemaType, writer: AvroSchemaType, path: str, depth: int) -> list[Incompatibility]:
        found = []
        if reader.short_name != writer.short_name and writer.name not in reader.aliases:
            where = f"{path}/name"
            text = f"{reader.name} at {where} was {writer.name} before, and has no alias of that name"
            found.append(Incompatibility("NAME_MISMATCH", where, text, f"expected: {writer.name}"))
        if reader.kind == "fixed":
            return found + _sizes(reader, writer, path)
        if reader.kind == "enum":
            return found + _symbols(reader, writer, path)
        written = _written_fields(reader, writer)
        for place, field in enumerate(reader.fields):
            if len(found) < MAX_FINDINGS:
                found += self._field(field, written.get(field.name), f"{path}/fields/{place}", depth)
        return found

    def _field(
        self, field: AvroSchemaField, written: AvroSchemaField | None, path: str, depth: int
    ) -> list[Incompatibility]:
        if written is not None:
            return self.compare(field.type, written.type, f"{path}/type", depth + 1)
        if field.has_default:
            return []
        text = f"the field {field.name} at {path} is not in the old schema, and has no default"
        return [Incompatibility("READER_FIELD_MISSING_DEFAULT_VALUE", path, text, field.name)]


def _family(type_: AvroSchemaType) -> str:
    return "record" if type_.kind == "error" else type_.kind


def _written_fields(reader: AvroSchemaType, writer: AvroSchemaType) -> dict[str, AvroSchemaField]:
    """By the reader's names: the writer's field of the same name, or of an alias that no field of the reader has.

    Avro for Java also takes one field of the writer for two of the reader, but cannot read data in that way.
    """
    left = {each.name: each for each in writer.fields}
    found = {each.name: left.pop(each.name) for each in reader.fields if each.name in left}
    for field in reader.fields:
        if field.name not in found:
            name = next((alias for alias in field.aliases if alias in left), None)
            if name is not None:
                found[field.name] = left.pop(name)
    return found


def _mismatch(reader: AvroSchemaType, writer: AvroSchemaType, path: str) -> Incompatibility:
    where = path or "/"
    text = f"{writer.label} cannot be read as {reader.label}, at {where}"
    detail = f"reader type: {reader.kind.upper()} not compatible with writer type: {writer.kind.upper()}"
    return Incompatibility("TYPE_MISMATCH", where, text, detail)


def _missing_branch(branch: AvroSchemaType, path: str) -> Incompatibility:
    text = f"the union at {path} has no type for {branch.label}, which the old schema allows"
    detail = f"reader union lacking writer type: {branch.kind.upper()}"
    return Incompatibility("MISSING_UNION_BRANCH", path, text, detail)


def _sizes(reader: AvroSchemaType, writer: AvroSchemaType, path: str) -> list[Incompatibility]:
    if reader.size == writer.size:
        return []
    where = f"{path}/size"
    text = f"{reader.name} at {where} has {reader.size} bytes, and had {writer.size}"
    return [Incompatibility("FIXED_SIZE_MISMATCH", where, text, f"expected: {writer.size}, found: {reader.size}")]


def _symbols(reader: AvroSchemaType, writer: AvroSchemaType, path: str) -> list[Incompatibility]:
    missing = [symbol for symbol in writer.symbols if symbol not in reader.symbol_set]
    if not missing or reader.default_symbol is not None:
        return []
    where = f"{path}/symbols"
    text = f"{reader.name} at {where} lacks symbols of the old schema, and has no default"
    return [Incompatibility("MISSING_ENUM_SYMBOLS", where, text, f"[{', '.join(missing[:MAX_FINDINGS])}]")]
