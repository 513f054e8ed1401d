"""Finds the line of each key of a TOML file, for error messages. Pure.

`tomllib` reports no positions. This scanner runs over a text that `tomllib` has already accepted, so it only needs to
know where keys and strings begin and end, and does not validate anything.
"""

import re
from dataclasses import dataclass

Path = tuple[str | int, ...]
"""`("sources", "orders", "topic")`; a table of an array has its number: `("steps", 0, "sql")`."""

_KEY = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*""")
_SKIPPED = re.compile(r"(?:\s+|#[^\n]*)+")
_STRINGS = (
    re.compile(r'"""(?:[^\\]|\\.)*?"{3,5}', re.DOTALL),
    re.compile(r"'''.*?'{3,5}", re.DOTALL),
    re.compile(r'"(?:[^"\\\n]|\\.)*"'),
    re.compile(r"'[^'\n]*'"),
)
_PLAIN = re.compile(r"[^\s,\]}#]+")


@dataclass(frozen=True, slots=True)
class KeyLine:
    """The line of a key, and the line on which its value begins if that is a string."""

    line: int
    text_line: int


def find_places(text: str) -> dict[Path, KeyLine]:
    """The lines of every key and every table header."""
    return _LineWalk(text.replace("\r\n", "\n")).places()


def line_of(places: dict[Path, KeyLine], path: Path) -> int | None:
    """The line of `path`, or of the nearest enclosing table that the file has."""
    for length in range(len(path), 0, -1):
        if (place := places.get(path[:length])) is not None:
            return place.line
    return None


class _LineWalk:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._places: dict[Path, KeyLine] = {}
        self._tables: dict[Path, int] = {}

    def places(self) -> dict[Path, KeyLine]:
        table: Path = ()
        while self._skip():
            if self._text.startswith("[", self._at):
                table = self._header()
            else:
                self._assignment(table)
        return self._places

    def _header(self) -> Path:
        is_array = self._text.startswith("[[", self._at)
        line = self._line()
        self._at += 2 if is_array else 1
        path = self._resolved(self._keys())
        self._at += 2 if is_array else 1
        if is_array:
            number = self._tables[path] = self._tables.get(path, -1) + 1
            path = (*path, number)
        self._places.setdefault(path, KeyLine(line, line))
        return path

    def _resolved(self, keys: list[str]) -> Path:
        """Resolve keys below an array of tables to its latest table."""
        path: Path = ()
        for at, key in enumerate(keys):
            path = (*path, key)
            if at < len(keys) - 1 and path in self._tables:
                path = (*path, self._tables[path])
        return path

    def _assignment(self, table: Path) -> None:
        line = self._line()
        path = (*table, *self._keys())
        self._at += 1  # the equals sign
        self._skip()
        self._value(path, line)

    def _keys(self) -> list[str]:
        keys: list[str] = []
        while True:
            found = _KEY.match(self._text, self._at)
            if found is None:
                return keys
            keys.append(next(part for part in found.groups() if part is not None))
            self._at = found.end()
            if not self._text.startswith(".", self._at):
                return keys
            self._at += 1

    def _value(self, path: Path, line: int) -> None:
        text_line = self._line()
        if any(self._text.startswith(quotes, self._at) for quotes in ('"""\n', "'''\n")):
            text_line += 1
        self._places[path] = KeyLine(line, text_line)
        start = self._text[self._at : self._at + 1]
        if start in ("[", "{"):
            self._nested(path, "]" if start == "[" else "}")
            return
        for pattern in (*_STRINGS, _PLAIN):
            if (found := pattern.match(self._text, self._at)) is not None:
                self._at = found.end()
                return
        self._at += 1

    def _nested(self, path: Path, end: str) -> None:
        self._at += 1
        number = 0
        while self._skip() and not self._text.startswith(end, self._at):
            if self._text.startswith(",", self._at):
                self._at += 1
            elif end == "}":
                self._assignment(path)
            else:
                self._value((*path, number), self._line())
                number += 1
        self._at += 1

    def _skip(self) -> bool:
        """Skip whitespace and comments; False at the end."""
        if (found := _SKIPPED.match(self._text, self._at)) is not None:
            self._at = found.end()
        return self._at < len(self._text)

    def _line(self) -> int:
        return self._text.count("\n", 0, self._at) + 1
