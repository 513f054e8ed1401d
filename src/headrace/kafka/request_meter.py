"""Counts and times the requests of Kafka clients by API, and the errors in their answers by code.

The errors of an answer are all that it has, for its topics and partitions, too: at most the first `_MAX_WALKED` parts
of an answer are looked at.
"""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, NamedTuple, get_args, get_type_hints

from kio.schema.errors import ErrorCode

from headrace.observe.request_metrics import KindMetrics, RequestMetrics
from headrace.protocol.codec import api_name

FETCH = 1
FOLLOWER_FETCH = "FetchFollower"
"""The fetches of brokers, which are apart from those of consumers as in Kafka."""
_MAX_WALKED = 1_000
_ERROR = "error_code"


class KafkaRequestMeter:
    def __init__(self) -> None:
        self.requests = RequestMetrics()
        self.follower_fetches = self.requests.kind(FOLLOWER_FETCH)
        self.by_key: dict[int, KindMetrics] = {}
        """The APIs that were used, by their key."""

    def api(self, key: int) -> KindMetrics:
        """The requests of an API that is served."""
        found = self.by_key.get(key)
        if found is None:
            found = self.by_key[key] = self.requests.kind(api_name(key))
        return found

    def failed(self, key: int, code: int) -> None:
        """Count an error of an answer that is encoded by hand."""
        self.api(key).failed(error_name(code))


def note_errors(kind: KindMetrics, answer: Any) -> None:
    """Count the errors of an answer that is an entity of kio."""
    shape = _SHAPES.get(type(answer)) or _shape(type(answer))
    if not shape.nested:
        if shape.has_code and answer.error_code:
            kind.failed(error_name(answer.error_code))
        return
    for code in _codes(answer, shape, [_MAX_WALKED]):
        kind.failed(error_name(code))


@cache
def error_name(code: int) -> str:
    """The name of an error as Kafka writes it."""
    try:
        return ErrorCode(code).name.upper()
    except ValueError:
        return f"CODE_{code}"


class _Shape(NamedTuple):
    """Where a class of answers has error codes."""

    has_code: bool
    nested: tuple[tuple[str, bool, "_Shape"], ...]
    """Fields with parts that have codes: their name, whether there are several parts, and the shape of a part."""


_SHAPES: dict[type, _Shape] = {}


def _shape(answer: type) -> _Shape:
    hints = get_type_hints(answer) if is_dataclass(answer) else {}
    nested = []
    for each in fields(answer) if is_dataclass(answer) else ():
        for kind in (hints[each.name], *get_args(hints[each.name])):
            if isinstance(kind, type) and is_dataclass(kind):
                inner = _shape(kind)
                if inner.has_code or inner.nested:
                    nested.append((each.name, kind is not hints[each.name], inner))
    found = _SHAPES[answer] = _Shape(_ERROR in hints, tuple(nested))
    return found


def _codes(part: Any, shape: _Shape, left: list[int]) -> Iterator[int]:
    """The error codes of a part and of the parts in it, without zeros."""
    left[0] -= 1
    if left[0] < 0:
        return
    if shape.has_code and part.error_code:
        yield part.error_code
    for name, is_several, inner in shape.nested:
        value = getattr(part, name)
        if value is None:
            continue
        for each in value if is_several and isinstance(value, tuple) else (value,):
            yield from _codes(each, inner, left)
