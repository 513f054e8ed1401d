"""Splits the text of a .proto file into tokens. Pure."""

import re
from typing import NamedTuple

from headrace.schemas.errors import InvalidSchema

MAX_TOKENS = 500_000

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*|/\*.*?\*/)
  | (?P<name>\.?[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)
  | (?P<number>(?:0[xX][0-9A-Fa-f]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[fF]?)
  | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
  | (?P<mark>[{}\[\]()<>=;:,+/-])
    """,
    re.VERBOSE | re.DOTALL,
)


class ProtoToken(NamedTuple):
    kind: str
    """name, number, string, mark or end."""
    text: str
    line: int


def proto_tokens(text: str) -> list[ProtoToken]:
    """All tokens, without white space and comments, and one `end`. Raises `InvalidSchema`."""
    found: list[ProtoToken] = []
    at, line = 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise InvalidSchema(f"line {line}: {text[at : at + 20]!r} is not a part of a .proto file")
        kind, piece = str(match.lastgroup), match.group()
        if kind != "space":
            found.append(ProtoToken(kind, piece, line))
            if len(found) > MAX_TOKENS:
                raise InvalidSchema(f"the file has more than {MAX_TOKENS} tokens")
        line += piece.count("\n")
        at = match.end()
    found.append(ProtoToken("end", "", line))
    return found


_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|[xX]([0-9A-Fa-f]{1,2})|(.))", re.DOTALL)
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def unquoted(text: str) -> str:
    """The value of a string token."""

    def replaced(match: re.Match[str]) -> str:
        octal, hexadecimal, letter = match.groups()
        if octal is not None:
            return chr(int(octal, 8))
        return chr(int(hexadecimal, 16)) if hexadecimal is not None else _LETTERS.get(letter, letter)

    return _ESCAPE.sub(replaced, text[1:-1])
