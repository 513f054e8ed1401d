"""Infers the schema of JSON messages from a sample, in the syntax of a pipeline file. Pure.

A column has the narrowest type that fits all values of the sample: `BOOLEAN`, `BIGINT`, `DOUBLE`, `DATE`, `TIMESTAMP`,
`ARRAY<…>`, `STRUCT<…>`. A column of incompatible types is `STRING`: Spark reads numbers, lists and objects as text. If
at most one value in twenty differs, the column has the type of the others, and the outliers fail to decode.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_MAX_FIELDS = 200
_MAX_DEPTH = 8
_BIGINT_MAX = 2**63
_EXCEPTIONS_SHARE = 0.05
_FAMILIES = {"BIGINT": "number", "DOUBLE": "number", "DATE": "time", "TIMESTAMP": "time"}
"""Compatible types; every other type is compatible only with itself."""

Values = list[tuple[int, Any]]
"""Values, each with the number of its message in the sample."""


@dataclass(frozen=True, slots=True)
class ColumnOutliers:
    """A column in which a few messages have another type than the rest."""

    column: str
    """Its path: dots for fields of objects, `[]` for items of arrays."""
    kind: str
    """The type of the column, such as `BIGINT` or `ARRAY`."""
    other_kind: str
    """The type of the first outlier."""
    example: int
    """The message of the first outlier: its number in the sample, from 0."""
    count: int
    total: int
    """`count` is the number of outliers, `total` that of all values."""


@dataclass(frozen=True, slots=True)
class InferredSchema:
    """The format and schema of a sample of messages."""

    looked_at: int
    format: str
    """`json`, else `text` or `raw`."""
    columns: dict[str, str]
    """By name, the type in SQL; for JSON only."""
    misfits: int = 0
    """Messages that will fail to decode: those that are no JSON objects, and those with outliers."""
    exceptions: tuple[ColumnOutliers, ...] = ()

    @property
    def schema(self) -> str:
        return ", ".join(f"{quoted(name)} {kind}" for name, kind in self.columns.items())


def infer(payloads: Iterable[bytes | None]) -> InferredSchema:
    """Infer the schema, ignoring tombstones. If no message is a JSON object, the format is text, or raw bytes."""
    values = [(number, payload) for number, payload in enumerate(payloads) if payload is not None]
    objects = [(number, found) for number, payload in values if (found := _object(payload)) is not None]
    if objects:
        columns = _Columns()
        kinds = columns.fields("", objects, 0)
        misfits = len(values) - len(objects) + len(columns.misfits)
        return InferredSchema(len(values), "json", kinds, misfits, tuple(columns.exceptions))
    return InferredSchema(len(values), "text" if all(_is_text(payload) for _, payload in values) else "raw", {})


def quoted(name: str) -> str:
    return name if _NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _object(payload: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and found else None


def _is_text(payload: bytes) -> bool:
    try:
        return "\0" not in payload.decode()
    except UnicodeDecodeError:
        return False


class _Columns:
    """Infers the types of columns, and collects the outliers."""

    def __init__(self) -> None:
        self.exceptions: list[ColumnOutliers] = []
        self.misfits: set[int] = set()
        """The numbers of messages with outliers."""

    def fields(self, path: str, objects: Values, depth: int) -> dict[str, str]:
        """The SQL type of each field of these objects."""
        found: dict[str, Values] = {}
        for number, each in objects:
            for name, value in each.items():
                if name in found or len(found) < _MAX_FIELDS:
                    found.setdefault(name, []).append((number, value))
        prefix = f"{path}." if path else ""
        return {name: self._type(f"{prefix}{name}", values, depth + 1) for name, values in found.items()}

    def _type(self, path: str, values: Values, depth: int) -> str:
        kinds = [(_kind(value, depth), number, value) for number, value in values if value is not None]
        families = Counter(_family(kind) for kind, _, _ in kinds)
        family = families.most_common(1)[0][0] if families else "STRING"
        exceptions = [(number, kind) for kind, number, _ in kinds if _family(kind) != family]
        if family == "STRING" or len(exceptions) > _EXCEPTIONS_SHARE * len(kinds):
            return "STRING"
        regular = [each for each in kinds if _family(each[0]) == family]
        kind = _widest({kind for kind, _, _ in regular})
        if exceptions:
            number, other_kind = exceptions[0]
            self.exceptions.append(ColumnOutliers(path, kind, other_kind, number, len(exceptions), len(kinds)))
            self.misfits.update(number for number, _ in exceptions)
        return self._with_inner(kind, path, [(number, value) for _, number, value in regular], depth)

    def _with_inner(self, kind: str, path: str, values: Values, depth: int) -> str:
        if kind == "ARRAY":
            inner = [(number, each) for number, value in values for each in value]
            return f"ARRAY<{self._type(f'{path}[]', inner, depth + 1)}>"
        if kind == "STRUCT":
            fields = self.fields(path, values, depth)
            return f"STRUCT<{', '.join(f'{quoted(name)}: {each}' for name, each in fields.items())}>"
        return kind


def _family(kind: str) -> str:
    return _FAMILIES.get(kind, kind)


def _widest(kinds: set[str]) -> str:
    """The widest type of a family."""
    return next((each for each in ("DOUBLE", "TIMESTAMP") if each in kinds), min(kinds))


def _kind(value: Any, depth: int) -> str:
    """The type of a value that is not null, without the types of its parts."""
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, int):
        return "BIGINT" if -_BIGINT_MAX <= value < _BIGINT_MAX else "DOUBLE"
    if isinstance(value, float):
        return "DOUBLE"
    if isinstance(value, str):
        return _kind_of_text(value)
    if depth == _MAX_DEPTH or value == {}:
        return "STRING"
    return "ARRAY" if isinstance(value, list) else "STRUCT"


def _kind_of_text(text: str) -> str:
    for pattern, parse, kind in (
        (_TIMESTAMP, datetime.fromisoformat, "TIMESTAMP"),
        (_DATE, date.fromisoformat, "DATE"),
    ):
        if pattern.fullmatch(text):
            try:
                parse(text)
            except ValueError:
                return "STRING"
            return kind
    return "STRING"
