"""Bytes of messages inside JSON: objects and arrays as JSON, other text as a string, the rest as base64.

Only objects and arrays are shown as JSON. A message `42` or `null` is the string "42" or "null", as text is: the type
of a field does not change from message to message, and a tombstone is never mixed up with the word.
"""

import base64
import json
import math
import re
from collections.abc import Mapping
from typing import Any

_WHITESPACE = " \t\r\n"
_LINE_BREAK = re.compile(r"[ \t]*[\r\n]+[ \t\r\n]*")
_DECODER = json.JSONDecoder()
_AFTER_SPACE = re.compile(f"[{_WHITESPACE}]*")


class JsonText(str):
    """An object or an array as it was written, on one line."""

    __slots__ = ()


def text_or_base64(data: bytes | None) -> str | dict[str, str] | None:
    """Bytes as a string where they are text."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def json_or_text(data: bytes | None) -> JsonText | str | dict[str, str] | None:
    """Bytes as they are put into a line of JSON by `line`."""
    text = text_or_base64(data)
    if isinstance(text, str) and _parsed(text) is not None:
        return JsonText(_LINE_BREAK.sub(" ", text.strip(_WHITESPACE)))
    return text


def json_value(data: bytes | None) -> Any:
    """Bytes as they are put into a larger JSON document: objects and arrays are parsed."""
    text = text_or_base64(data)
    found = _parsed(text) if isinstance(text, str) else None
    return text if found is None else found


def _parsed(text: str) -> dict[str, Any] | list[Any] | None:
    """An object or an array; None for all other text, and for what `produce --json` would take for base64."""
    if not text.lstrip(_WHITESPACE).startswith(("{", "[")):
        return None
    try:
        found = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        return None
    if isinstance(found, dict) and found.keys() == {"base64"}:
        return None
    return found if isinstance(found, dict | list) else None


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is larger than what programs can read")
    return number


def line(document: Mapping[str, Any]) -> str:
    """A document on one line, with each `JsonText` in it as it is."""
    return "{" + ",".join(f"{_compact(name)}:{_compact(value)}" for name, value in document.items()) + "}"


def _compact(value: Any) -> str:
    if isinstance(value, JsonText):
        return str(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def texts_of(document: str) -> dict[str, str]:
    """The members of a valid JSON object, each as it was written."""
    found: dict[str, str] = {}
    at = _skip(document, document.index("{") + 1)
    while document[at] != "}":
        name, at = _DECODER.raw_decode(document, at)
        start = _skip(document, document.index(":", at) + 1)
        _, at = _DECODER.raw_decode(document, start)
        found[name] = document[start:at]
        at = _skip(document, at)
        if document[at] == ",":
            at = _skip(document, at + 1)
    return found


def _skip(document: str, at: int) -> int:
    """Behind the white space that begins here."""
    match = _AFTER_SPACE.match(document, at)
    return at if match is None else match.end()
