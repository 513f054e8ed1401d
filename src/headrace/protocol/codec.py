"""Decodes requests and encodes responses as typed kio entities: all but Produce and Fetch responses.

There is one entity class per version. Handlers need no version switches: `make` leaves out fields that a version does
not have, and handlers read fields of later versions by `getattr(request, field, default)`.
"""

from dataclasses import fields
from functools import cache
from io import BytesIO
from struct import Struct
from struct import error as StructError
from types import ModuleType
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

from kio.index import load_payload_module, load_request_schema, load_response_schema
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.constants import EntityType
from kio.static.primitive import i16

from headrace.model.errors import ProtocolError
from headrace.protocol.bounds import check_lengths, prepare_lengths, with_bounded_times
from headrace.protocol.fast import PRODUCE_FLEXIBLE_FROM
from headrace.protocol.metadata_response import KEY as METADATA_KEY
from headrace.protocol.metadata_response import write_metadata_response
from headrace.protocol.tags import without_unknown_tags
from headrace.runtime.varint import VarintTooLong, read_uvarint

Buffer = bytes | memoryview

_FIXED = Struct(">hhih")
_CORRELATION = Struct(">i")
PRODUCE_KEY, API_VERSIONS_KEY = 0, 18

E = TypeVar("E")


class Entity(Protocol):
    """A request or response of kio, of one version."""

    __version__: ClassVar[i16]
    __api_key__: ClassVar[i16]


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_at: int
    """The position of the body in the frame."""


@cache
def is_flexible(api_key: int, api_version: int) -> bool:
    """Whether this version uses compact encodings and tagged fields (request header v2)."""
    if api_key == PRODUCE_KEY:
        # Read and written by hand: kio's classes, which take 6 ms to load, are not needed.
        return api_version >= PRODUCE_FLEXIBLE_FROM
    return bool(load_request_schema(api_key, api_version).__flexible__)


def peek_api(frame: Buffer) -> tuple[int, int, int]:
    """API key, version and correlation id: the part of a header that every version shares."""
    try:
        key, version, correlation_id, _ = _FIXED.unpack_from(frame, 0)
    except StructError:
        raise ProtocolError(f"a request header needs {_FIXED.size} bytes, the frame has {len(frame)}") from None
    return key, version, correlation_id


def read_request_header(frame: Buffer, *, flexible: bool) -> RequestHeader:
    """The header of a request; `flexible` says whether tagged fields follow the client id."""
    try:
        key, version, correlation_id, length = _FIXED.unpack_from(frame, 0)
    except StructError:
        raise ProtocolError(f"a request header needs {_FIXED.size} bytes, the frame has {len(frame)}") from None
    at = _FIXED.size
    client_id: str | None = None
    if length >= 0:
        if length > len(frame) - at:
            raise ProtocolError(f"a client id of {length} bytes does not fit a frame of {len(frame)}")
        try:
            client_id = str(frame[at : at + length], "utf-8")
        except UnicodeDecodeError:
            raise ProtocolError("a client id is not valid UTF-8") from None
        at += length
    elif length != -1:
        raise ProtocolError(f"a client id has the negative length {length}")
    if flexible:
        try:
            at = _skip_tagged_fields(frame, at)
        except IndexError:
            raise ProtocolError("a variable-length number runs past the end of its frame") from None
        except VarintTooLong as error:
            raise ProtocolError(str(error)) from None
    return RequestHeader(key, version, correlation_id, client_id, at)


def _skip_tagged_fields(frame: Buffer, at: int) -> int:
    if at < len(frame) and frame[at] == 0:
        return at + 1
    count, at = read_uvarint(frame, at)
    for _ in range(count):
        _, at = read_uvarint(frame, at)
        size, at = read_uvarint(frame, at)
        if size > len(frame) - at:
            raise ProtocolError(f"a tagged field of {size} bytes runs past the end of its frame")
        at += size
    return at


@cache
def _reader(api_key: int, api_version: int) -> Any:
    return entity_reader(load_request_schema(api_key, api_version))


@cache
def _writer(api_key: int, api_version: int) -> Any:
    if api_key == METADATA_KEY:
        return write_metadata_response(api_version)
    return entity_writer(load_response_schema(api_key, api_version))


@cache
def response_schema(api_key: int, api_version: int) -> ModuleType:
    """The module with the response class of this version and the classes nested in it."""
    return load_payload_module(api_key, api_version, EntityType.response)


def prepare(api_key: int, api_version: int) -> None:
    """Load the reader and the writer of this version, some milliseconds the first time. Thread-safe."""
    is_flexible(api_key, api_version)
    _reader(api_key, api_version)
    _writer(api_key, api_version)
    response_schema(api_key, api_version)
    prepare_lengths(api_key, api_version)


def read_request(frame: Buffer, header: RequestHeader) -> Any:
    """The request in `frame` as kio's entity, or `ProtocolError`.

    Trailing bytes are ignored, as Kafka does: librdkafka 2.16 sends three of them in a Metadata v13 for all topics.
    """
    key, version, at = header.api_key, header.api_version, header.body_at
    try:
        if check_lengths(key, version, frame, at):
            frame, at = without_unknown_tags(load_request_schema(key, version), frame, at), 0
        try:
            request, _ = _reader(key, version)(frame, at)
        except ValueError:
            bounded = with_bounded_times(key, version, frame, at)
            if bounded == frame:
                raise
            request, _ = _reader(key, version)(bounded, at)
    except (SerialError, ValueError, KeyError, OverflowError, ProtocolError) as error:
        raise ProtocolError(f"{api_name(key)} v{version}: {error}") from error
    return request


def response_header(header: RequestHeader) -> bytes:
    """Correlation id, and the empty tagged fields of response header v1 where the version is flexible."""
    head = _CORRELATION.pack(header.correlation_id)
    if header.api_key != API_VERSIONS_KEY and is_flexible(header.api_key, header.api_version):
        return head + b"\x00"
    return head


def write_response(header: RequestHeader, response: Entity) -> bytes:
    """Encode a response with its header, without the frame length."""
    buffer = BytesIO()
    buffer.write(response_header(header))
    _writer(header.api_key, response.__version__)(buffer, response)
    return buffer.getvalue()


@cache
def _field_names(entity: type) -> frozenset[str]:
    return frozenset(field.name for field in fields(entity))


def make(entity: Any, /, **values: Any) -> E:  # type: ignore[type-var]
    """Build an entity from the `values` that its version has; `TypeError` if a required field is missing.

    The static type is the one that the caller expects: the class of the newest version stands for all of them.
    """
    names = _field_names(entity)
    made: E = entity(**{name: value for name, value in values.items() if name in names})
    return made


def api_name(api_key: int) -> str:
    name: str | None = api_key_map.get(api_key)
    return f"API {api_key}" if name is None else "".join(part.capitalize() for part in name.split("_"))
