"""The schema of JSON messages, from a sample of them, as it is written in a pipeline's file. Pure.

A column has the narrowest type that all values of the sample fit: `BOOLEAN`, `BIGINT`, `DOUBLE`, `DATE`, `TIMESTAMP`,
`ARRAY<…>`, `STRUCT<…>`. Values that do not go together are `STRING`: Spark gives numbers, lists and objects as text.
"""

import json
import re
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

Kind = str | tuple[str, Any]
"""`BIGINT`, or `("ARRAY", kind)`, or `("STRUCT", {name: kind})`; empty if only nulls were seen."""


@dataclass(frozen=True, slots=True)
class Inferred:
    """What a sample of messages looks like."""

    looked_at: int
    format: str
    """`json`, else `text` or `raw`."""
    columns: dict[str, str]
    """By name, the type in SQL; for JSON only."""
    misfits: int = 0
    """Messages that are not as the others: no JSON objects."""

    @property
    def schema(self) -> str:
        return ", ".join(f"{quoted(name)} {kind}" for name, kind in self.columns.items())


def infer(payloads: Iterable[bytes | None]) -> Inferred:
    """Tombstones are looked past. Where no message is a JSON object, the messages are text, or else raw bytes."""
    values = [payload for payload in payloads if payload is not None]
    objects = [found for payload in values if (found := _object(payload)) is not None]
    if objects:
        merged: Kind = ""
        for each in objects:
            merged = _merged(merged, _kind(each, 0))
        fields = merged[1] if isinstance(merged, tuple) else {}
        return Inferred(len(values), "json", {n: _sql(k) for n, k in fields.items()}, len(values) - len(objects))
    return Inferred(len(values), "text" if all(map(_is_text, values)) else "raw", {})


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


def _kind(value: Any, depth: int) -> Kind:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, int):
        return "BIGINT" if -_BIGINT_MAX <= value < _BIGINT_MAX else "DOUBLE"
    if isinstance(value, float):
        return "DOUBLE"
    if isinstance(value, str):
        return _kind_of_text(value)
    if depth == _MAX_DEPTH:
        return "STRING"
    if isinstance(value, list):
        inner: Kind = ""
        for each in value:
            inner = _merged(inner, _kind(each, depth + 1))
        return ("ARRAY", inner)
    fields = {name: _kind(each, depth + 1) for name, each in [*value.items()][:_MAX_FIELDS]}
    return ("STRUCT", fields) if fields else "STRING"


def _kind_of_text(text: str) -> Kind:
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


def _merged(one: Kind, other: Kind) -> Kind:
    """The narrowest that both fit."""
    if one == other or other == "":
        return one
    if one == "":
        return other
    if isinstance(one, tuple) and isinstance(other, tuple) and one[0] == other[0]:
        if one[0] == "ARRAY":
            return ("ARRAY", _merged(one[1], other[1]))
        names = [*dict.fromkeys([*one[1], *other[1]])][:_MAX_FIELDS]
        return ("STRUCT", {name: _merged(one[1].get(name, ""), other[1].get(name, "")) for name in names})
    both = {one, other} if isinstance(one, str) and isinstance(other, str) else set()
    if both == {"BIGINT", "DOUBLE"}:
        return "DOUBLE"
    return "TIMESTAMP" if both == {"DATE", "TIMESTAMP"} else "STRING"


def _sql(kind: Kind) -> str:
    if isinstance(kind, str):
        return kind or "STRING"
    if kind[0] == "ARRAY":
        return f"ARRAY<{_sql(kind[1])}>"
    return f"STRUCT<{', '.join(f'{quoted(name)}: {_sql(each)}' for name, each in kind[1].items())}>"
