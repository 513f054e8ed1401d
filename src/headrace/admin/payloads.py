"""Shows the bytes of a key or a value: as JSON, as text, or in base64. Pure.

The wire format of schema registries (a zero byte, then the id of the schema in four bytes) is recognised. A
`PayloadDecoder` turns payloads into JSON whose schema it knows; of others the bytes are shown.
"""

from base64 import b64encode
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple, Protocol

import msgspec

JSON, TEXT, BASE64 = "json", "text", "base64"
_PREFIX = Struct(">bi")
_LARGEST_SCHEMA_ID = 10_000_000
_INDENT = 2
_ALLOWED_CONTROLS = frozenset("\t\n\r")


class ShownPayload(NamedTuple):
    text: str | None
    encoding: str | None
    """json, text, base64, or the name that a decoder gives to its format; None for a payload that is null."""
    is_truncated: bool = False
    schema_id: int | None = None
    subject: str | None = None
    """The subject that the schema is a version of, if it was decoded."""
    version: int | None = None


Headers = Sequence[tuple[str, bytes | None]]


class DecodedPayload(NamedTuple):
    text: str
    """JSON, indented."""
    encoding: str
    """The name of the format."""
    schema_id: int
    subject: str
    version: int


class PayloadDecoder(Protocol):
    """Decodes payloads by their schema."""

    def decode(self, data: bytes, headers: Headers, *, is_key: bool) -> DecodedPayload | None:
        """None if the schema is not known, or does not fit. Raises nothing."""
        ...


def show(
    data: bytes | None,
    most_bytes: int,
    decoder: PayloadDecoder | None = None,
    headers: Headers = (),
    *,
    is_key: bool = False,
) -> ShownPayload:
    """A payload, of which at most `most_bytes` are shown; `headers` are those of its message."""
    if data is None:
        return ShownPayload(None, None)
    decoded = None if decoder is None else decoder.decode(data, headers, is_key=is_key)
    if decoded is not None:
        text = decoded.text
        return ShownPayload(text[:most_bytes], decoded.encoding, len(text) > most_bytes, *decoded[2:])
    schema_id = schema_id_of(data)
    if schema_id is not None:
        document = as_json(data[_PREFIX.size :], most_bytes)
        if document is not None:
            return ShownPayload(document, JSON, False, schema_id)
    else:
        document = as_json(data, most_bytes)
        if document is not None:
            return ShownPayload(document, JSON)
    is_truncated = len(data) > most_bytes
    part = data[:most_bytes]
    text_found = _as_text(part, is_cut=is_truncated)
    if text_found is not None:
        return ShownPayload(text_found, TEXT, is_truncated, schema_id)
    return ShownPayload(b64encode(part).decode(), BASE64, is_truncated, schema_id)


def schema_id_of(data: bytes) -> int | None:
    """The id of the schema in a registry's wire format; None if the payload is not in that format."""
    if len(data) <= _PREFIX.size:
        return None
    magic, schema_id = _PREFIX.unpack_from(data)
    return schema_id if magic == 0 and 0 < schema_id <= _LARGEST_SCHEMA_ID else None


def without_prefix(data: bytes) -> bytes:
    return data if schema_id_of(data) is None else data[_PREFIX.size :]


def as_json(data: bytes, most_bytes: int) -> str | None:
    """A JSON object or array, indented; numbers stay as they are written. None if it is none, or too long."""
    if len(data) > most_bytes or data.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        shown = msgspec.json.format(data, indent=_INDENT).decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return shown if len(shown) <= 2 * most_bytes + 16 else data.decode()


def _as_text(data: bytes, *, is_cut: bool) -> str | None:
    """Text without control characters; a character that is cut off at the end is left out."""
    for drop in range(4 if is_cut else 1):
        try:
            text = data[: len(data) - drop].decode()
        except UnicodeDecodeError:
            continue
        is_plain = all(each.isprintable() or each in _ALLOWED_CONTROLS for each in text)
        return text if is_plain else None
    return None
