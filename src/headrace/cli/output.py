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
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def rate(messages: int, size_bytes: int, seconds: float) -> str:
    seconds = max(seconds, 1e-9)
    return f"{messages / seconds:,.0f} messages/s, {human_bytes(size_bytes / seconds)}/s"


def table(title: str | None, columns: list[tuple[str, str]], rows: list[tuple[Any, ...]]) -> None:
    """Print rows under `columns`, each a head and `left` or `right`. Piped output is as wide as it needs to be."""
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else 200).print(table_of(columns, rows, title))


def table_of(columns: list[tuple[str, str]], rows: Sequence[tuple[Any, ...]], title: str | None = None) -> "Table":
    """The same to be printed together with other things; a cell may be rich's `Text`."""
    from rich.table import Table
    from rich.text import Text

    made = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for head, justify in columns:
        made.add_column(head, justify="right" if justify == "right" else "left", overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else str(cell) for cell in row))
    return made
