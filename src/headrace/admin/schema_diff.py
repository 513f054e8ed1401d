"""Texts of schemas for people: indented, and the difference of two versions line by line. Pure.

The difference is the shortest one (Myers), found within a number of steps: of texts that have too little in common,
everything that differs is shown as removed and added.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

_MAX_STEPS = 200_000
_MAX_EDITS = 400
_INDENT = 2
_MAX_FORMATTED_BYTES = 512 * 1024

Change = Literal["same", "removed", "added"]


class DiffLine(msgspec.Struct, frozen=True):
    change: Change
    text: str
    before: int | None
    """The number of the line in the earlier text; null if it is added."""
    after: int | None
    """The number of the line in the later text; null if it is removed."""


def pretty(schema_type: str, text: str) -> str:
    """A schema as people write it: JSON is indented."""
    if schema_type == "PROTOBUF" or len(text) > _MAX_FORMATTED_BYTES:
        return text
    try:
        shown = msgspec.json.format(text, indent=_INDENT)
    except (msgspec.DecodeError, RecursionError):
        return text
    return shown if len(shown) <= 2 * _MAX_FORMATTED_BYTES else text


def line_diff(before: Sequence[str], after: Sequence[str]) -> list[DiffLine]:
    """All lines of both texts, in order."""
    head = _common(before, after)
    tail = _common(before[head:][::-1], after[head:][::-1])
    middle = _edits(before[head : len(before) - tail], after[head : len(after) - tail])
    changes: list[Change] = ["same"] * head
    changes += middle
    changes += ["same"] * tail
    return [*_numbered(changes, before, after)]


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines are the same at the beginning."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def _numbered(changes: Sequence[Change], before: Sequence[str], after: Sequence[str]) -> Iterator[DiffLine]:
    old = new = 0
    for change in changes:
        text = after[new] if change == "added" else before[old]
        old += change != "added"
        new += change != "removed"
        yield DiffLine(change, text, None if change == "added" else old, None if change == "removed" else new)


def _edits(before: Sequence[str], after: Sequence[str]) -> list[Change]:
    found: list[Change] = []
    trace = _furthest(before, after)
    if trace is None:
        found += ["removed"] * len(before)
        found += ["added"] * len(after)
        return found
    x, y = len(before), len(after)
    for edits in range(len(trace) - 1, -1, -1):
        reached, diagonal = trace[edits], x - y
        is_added = diagonal == -edits or (diagonal != edits and reached[diagonal - 1] < reached[diagonal + 1])
        earlier = diagonal + 1 if is_added else diagonal - 1
        from_x = reached[earlier] if edits else 0
        from_y = from_x - earlier if edits else 0
        while x > max(from_x, 0) and y > max(from_y, 0):
            found.append("same")
            x, y = x - 1, y - 1
        if edits:
            found.append("added" if is_added else "removed")
            x, y = from_x, from_y
    found.reverse()
    return found


def _furthest(before: Sequence[str], after: Sequence[str]) -> list[dict[int, int]] | None:
    """For each number of edits, how far each diagonal was reached before; None if it takes too many steps."""
    reached, trace, steps = {1: 0}, [], 0
    for edits in range(min(_MAX_EDITS, len(before) + len(after)) + 1):
        trace.append(dict(reached))
        for diagonal in range(-edits, edits + 1, 2):
            is_added = diagonal == -edits or (diagonal != edits and reached[diagonal - 1] < reached[diagonal + 1])
            x = reached[diagonal + 1] if is_added else reached[diagonal - 1] + 1
            y = x - diagonal
            while x < len(before) and y < len(after) and before[x] == after[y]:
                x, y, steps = x + 1, y + 1, steps + 1
            reached[diagonal] = x
            if x >= len(before) and y >= len(after):
                return trace
        steps += edits
        if steps > _MAX_STEPS:
            return None
    return None
