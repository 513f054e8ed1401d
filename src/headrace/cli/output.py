"""How results look: JSON for programs, tables for people, sizes and rates with units."""

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table


def print_json(value: Any) -> None:
    json.dump(value, sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


def say(text: str) -> None:
    """A word to the person, not part of the result: stderr, so that stdout stays clean for pipes."""
    print(text, file=sys.stderr)


def human_bytes(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        digits = 0 if unit == "B" else 1
        if abs(round(size, digits)) < 1024:
            return f"{size:.{digits}f} {unit}"
        size /= 1024
    return f"{size:,.1f} EiB"


def human_duration(seconds: float) -> str:
    """A time with one unit, as exact as people want it: `12 ms`, `4.5 s`, `3.1 years`."""
    for limit_s, unit_s, digits, unit in _DURATIONS:
        if round(seconds / unit_s, digits) * unit_s < limit_s:
            return f"{seconds / unit_s:,.{digits}f} {unit}"
    return f"{seconds / _YEAR_S:,.1f} years"


_MINUTE_S, _HOUR_S, _DAY_S, _YEAR_S = 60.0, 3600.0, 86_400.0, 31_557_600.0
_DURATIONS = (
    (1.0, 0.001, 0, "ms"),
    (10.0, 1.0, 1, "s"),
    (120.0, 1.0, 0, "s"),
    (120 * _MINUTE_S, _MINUTE_S, 0, "min"),
    (48 * _HOUR_S, _HOUR_S, 1, "h"),
    (730 * _DAY_S, _DAY_S, 0, "days"),
)
"""Up to which time which unit is used, its length, and the digits behind the point."""

_LONGEST_MEANT_S = 1000 * _YEAR_S
"""A setting beyond this stands for "no limit"."""


def setting_text(name: str, value: object) -> str:
    """The value of a setting as it is set, and what it amounts to where that is hard to see: `604800000 (7 days)`."""
    text = str(value)
    try:
        number = int(text)
    except ValueError:
        return text
    if name.endswith(".ms") and 1000 <= number < _LONGEST_MEANT_S * 1000:
        return f"{text} ({human_duration(number / 1000)})"
    if name.endswith(".bytes") and 1024 <= number < 2**62:
        return f"{text} ({human_bytes(number)})"
    return text


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def per_time(number: float, seconds: float, noun: str = "") -> str:
    """How many a second; a minute or an hour where that is less than one in ten seconds."""
    space = " " if noun else ""
    speed = number / max(seconds, 1e-9)
    for unit, length_s in (("s", 1), ("min", 60), ("h", 3600)):
        if speed * length_s >= 0.1 or unit == "h":
            digits = 0 if speed * length_s >= 10 else 1
            return f"{speed * length_s:,.{digits}f}{space}{noun}/{unit}"
    raise AssertionError


def rate(messages: int, size_bytes: int, seconds: float) -> str:
    """How fast several messages went."""
    speed = size_bytes / max(seconds, 1e-9)
    size = f", {human_bytes(speed)}/s" if speed >= 1 else ""
    return f"{per_time(messages, seconds, 'messages')}{size}"


def done_in(what: str, messages: int, size_bytes: int, seconds: float) -> str:
    """`3 messages in 0.5 s (6 messages/s, 18 B/s)`. A single one has no speed: that was the time to connect."""
    text = f"{count(messages, what)} in {human_duration(seconds)}"
    return text if messages < 2 else f"{text} ({rate(messages, size_bytes, seconds)})"


def table(title: str | None, columns: list[tuple[str, str]], rows: list[tuple[Any, ...]]) -> None:
    """Print rows under `columns`, each a head and `left` or `right`. Piped output is as wide as it needs to be."""
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else 200).print(table_of(columns, rows, title))


def table_of(columns: list[tuple[str, str]], rows: Sequence[tuple[Any, ...]], title: str | None = None) -> "Table":
    """The same to be printed together with other things; a cell may be rich's `Text`."""
    from rich.table import Table
    from rich.text import Text

    made = Table(
        title=title and Text(title),
        title_justify="left",
        box=None,
        pad_edge=False,
        header_style="bold",
        padding=(0, 2, 0, 0),
    )
    for head, justify in columns:
        made.add_column(head, justify="right" if justify == "right" else "left", overflow="fold")
    for row in rows:
        # As text: rich takes what is in brackets in a plain string for a style.
        made.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    return made
