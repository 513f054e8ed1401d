"""Filters of messages: conditions that are data, all of which must hold. Pure.

key_contains, value_contains   a part of the key or value, in UTF-8, upper and lower case apart
header                         NAME, or NAME:VALUE with exactly that value
json_path, json_equals         a place in the value as `$.order.items[0].sku`, and what must be there: JSON, or
                               plain text for a string; without `json_equals` the place must exist
"""

import re
from dataclasses import dataclass
from typing import Any

import msgspec

from headrace.admin.errors import AdminError
from headrace.admin.payloads import without_prefix
from headrace.records.reader import Record

_STEP = re.compile(r"""\.([^.\[\]'"\s]+)|\[(\d{1,9})\]|\['([^']*)'\]|\["([^"]*)"\]""")
_MAX_STEPS = 32
_MISSING = object()

PathStep = str | int


@dataclass(frozen=True, slots=True)
class MessageFilter:
    key_part: bytes = b""
    value_part: bytes = b""
    header_name: str = ""
    header_value: bytes | None = None
    """None: the header must be there, with any value."""
    path: tuple[PathStep, ...] | None = None
    expected: Any = _MISSING
    """The decoded `json_equals`."""
    expected_text: str = ""

    def matches(self, record: Record) -> bool:
        if self.key_part and self.key_part not in (record.key or b""):
            return False
        if self.value_part and self.value_part not in (record.value or b""):
            return False
        if self.header_name and not any(self._is_wanted(name, value) for name, value in record.headers):
            return False
        return self.path is None or self._matches_json(record.value)

    def _is_wanted(self, name: str, value: bytes | None) -> bool:
        return name == self.header_name and self.header_value in (None, value)

    def _matches_json(self, value: bytes | None) -> bool:
        if value is None:
            return False
        try:
            document = msgspec.json.decode(without_prefix(value))
        except (msgspec.DecodeError, RecursionError):
            return False
        found = _at(document, self.path or ())
        if found is _MISSING:
            return False
        if self.expected is _MISSING:
            return True
        if isinstance(found, str):
            return found in (self.expected_text, self.expected)
        return _same_number(found, self.expected) or (type(found) is type(self.expected) and found == self.expected)


def message_filter(
    *,
    key_contains: str = "",
    value_contains: str = "",
    header: str = "",
    json_path: str = "",
    json_equals: str | None = None,
) -> MessageFilter:
    """The filter of a query. Raises `AdminError` for a path that is none."""
    name, colon, value = header.partition(":")
    return MessageFilter(
        key_contains.encode(),
        value_contains.encode(),
        name,
        value.encode() if colon else None,
        parse_path(json_path) if json_path else None,
        _MISSING if json_equals is None else _decoded(json_equals),
        json_equals or "",
    )


def parse_path(text: str) -> tuple[PathStep, ...]:
    """`$.a['b c'][0]` as its steps."""
    at = 1 if text.startswith("$") else 0
    if not at:
        text, at = f".{text}" if text[:1] not in ".[" else text, 0
    steps: list[PathStep] = []
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None or len(steps) == _MAX_STEPS:
            raise AdminError(400, "invalid_request", "json_path is not a path such as $.order.items[0].sku")
        name, index, single, double = found.groups()
        steps.append(
            int(index) if index is not None else next(each for each in (name, single, double) if each is not None)
        )
        at = found.end()
    return tuple(steps)


def _at(document: Any, path: tuple[PathStep, ...]) -> Any:
    for step in path:
        is_item = isinstance(step, int) and isinstance(document, list) and step < len(document)
        is_field = isinstance(step, str) and isinstance(document, dict) and step in document
        if not (is_item or is_field):
            return _MISSING
        document = document[step]
    return document


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def _same_number(one: Any, other: Any) -> bool:
    numbers = isinstance(one, int | float) and isinstance(other, int | float)
    return numbers and not isinstance(one, bool) and not isinstance(other, bool) and one == other
