"""Splits the text of a .proto file into tokens. Pure."""

import re
from typing import NamedTuple

from headrace.schemas.errors import InvalidSchema

MAX_TOKENS = 500_000
MAX_NAME_CHARS = 1_000
"""A name is looked up in each of the scopes around it, part by part."""

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
        if kind == "name" and len(piece) > MAX_NAME_CHARS:
            raise InvalidSchema(f"line {line}: a name is longer than {MAX_NAME_CHARS} characters")
        if kind != "space":
            found.append(ProtoToken(kind, piece, line))
            if len(found) > MAX_TOKENS:
                raise InvalidSchema(f"the file has more than {MAX_TOKENS} tokens")
        line += piece.count("\n")
        at = match.end()
    found.append(ProtoToken("end", "", line))
    return found


_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_LETTERS = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


def unquoted(text: str) -> bytes:
    """The value of a string token, which need not be UTF-8. Raises `InvalidSchema`."""

    def replaced(match: re.Match[bytes]) -> bytes:
        octal, hexadecimal, short, long, letter = match.groups()
        if octal is not None:
            return bytes((int(octal, 8) & 0xFF,))
        if hexadecimal is not None:
            return bytes((int(hexadecimal, 16),))
        if letter is None:
            return _character(int(short or long, 16))
        return _LETTERS.get(letter, letter)

    return _ESCAPE.sub(replaced, text[1:-1].encode())


def _character(number: int) -> bytes:
    try:
        return chr(number).encode()
    except (ValueError, UnicodeEncodeError):
        raise InvalidSchema(f"a string has the escape of {number:#x}, which is no character") from None
