"""Messages as lines: what `headrace produce` reads and `headrace consume` writes.

As JSON a message is one object on one line:

    {"partition": 0, "offset": 7, "timestamp": 1700000000000, "key": "k", "value": "v", "headers": [["name", "text"]]}

A key or value that is a JSON object or array is written as it is, other text as a string, and what is not text as
`{"base64": "…"}`. What `consume --json` writes, `produce --json` reads back byte for byte; only line breaks in JSON of
several lines become spaces. A number, an object or a list given as key or value is sent as its JSON text, as written.
"""

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.cli.errors import CommandFailed
from headrace.cli.json_text import json_or_text, text_or_base64, texts_of
from headrace.cli.json_text import line as json_line

Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True)
class LineMessage:
    value: bytes | None
    key: bytes | None = None
    headers: Sequence[Header] = field(default_factory=tuple)
    partition: int | None = None
    timestamp_ms: int | None = None

    @property
    def size_bytes(self) -> int:
        return len(self.value or b"") + len(self.key or b"")


def parse_text(line: bytes, key_separator: bytes | None) -> LineMessage:
    """A line as a message: the value, or key and value around the first separator. No separator means no key."""
    if key_separator is not None:
        key, found, value = line.partition(key_separator)
        if found:
            return LineMessage(value, key)
    return LineMessage(line)


_IGNORED = frozenset({"offset", "topic", "schema", "error"})
_FIELDS = frozenset({"key", "value", "headers", "partition", "timestamp"}) | _IGNORED


def parse_json(line: bytes) -> LineMessage:
    """A JSON line as a message; `CommandFailed` says what is wrong with it. What only `consume` knows, such as the
    offset, is ignored."""
    try:
        document = json.loads(text := line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise CommandFailed("not JSON: not text in UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise CommandFailed(f"not JSON: {error}") from None
    if not isinstance(document, dict) or not document.keys() <= _FIELDS:
        raise CommandFailed("not an object with the fields key, value, headers, partition and timestamp")
    headers = document.get("headers") or []
    pairs = list(headers.items()) if isinstance(headers, dict) else headers
    if not isinstance(pairs, list) or not all(_is_pair(pair) for pair in pairs):
        raise CommandFailed('headers must be {"name": "text"} or [["name", "text"]]')
    as_written = {} if _is_text(document) else texts_of(text)
    return LineMessage(
        value=_to_bytes(document.get("value"), as_written.get("value")),
        key=_to_bytes(document.get("key"), as_written.get("key")),
        headers=[(name, _to_bytes(value)) for name, value in pairs],
        partition=_whole_number(document, "partition"),
        timestamp_ms=_whole_number(document, "timestamp"),
    )


def json_of_value(line: bytes) -> bytes | None:
    """The value of a valid JSON line as JSON; None if it has none."""
    value = texts_of(line.decode("utf-8-sig")).get("value")
    return None if value in (None, "null") else value.encode()


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str)


def _whole_number(document: dict[str, Any], name: str) -> int | None:
    value = document.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise CommandFailed(f"{name} must be a whole number from 0")
    return value


def _is_text(document: dict[str, Any]) -> bool:
    """Whether key and value are strings or nothing, as most are: how they were written does not matter then."""
    return all(isinstance(document.get(name), str | None) for name in ("key", "value"))


def _to_bytes(value: Any, as_written: str | None = None) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except binascii.Error as error:
            raise CommandFailed(f"not base64: {error}") from None
    if as_written is not None:
        return as_written.encode()
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def render_json(offset: int, message: LineMessage, **more: Any) -> bytes:
    document = {
        "partition": message.partition,
        "offset": offset,
        "timestamp": message.timestamp_ms,
        "key": json_or_text(message.key),
        "value": json_or_text(message.value),
        "headers": [[name, text_or_base64(value)] for name, value in message.headers],
        **more,
    }
    return json_line(document).encode() + b"\n"


def render_text(message: LineMessage, key_separator: bytes | None) -> bytes:
    """The value on a line, after key and separator if there is one. Bytes pass as they are; null is empty."""
    value = message.value or b""
    if key_separator is None:
        return value + b"\n"
    return (message.key or b"") + key_separator + value + b"\n"
