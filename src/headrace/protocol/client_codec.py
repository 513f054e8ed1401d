"""The client side of the codec: encodes requests and decodes responses, through kio.

A response is trusted no more than a request: its lengths are checked before kio decodes it.
"""

from functools import cache
from io import BytesIO
from struct import Struct
from struct import error as StructError
from types import ModuleType
from typing import Any

from kio.index import load_payload_module, load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.constants import EntityType

from headrace.model.errors import ProtocolError
from headrace.protocol.bounds import check_response_lengths
from headrace.protocol.codec import API_VERSIONS_KEY, api_name, is_flexible
from headrace.protocol.tags import without_unknown_tags

Buffer = bytes | memoryview

_HEADER = Struct(">hhih")
_CORRELATION = Struct(">i")


@cache
def request_schema(api_key: int, api_version: int) -> ModuleType:
    """The module with the request class of this version and the classes nested in it."""
    return load_payload_module(api_key, api_version, EntityType.request)


@cache
def _writer(api_key: int, api_version: int) -> Any:
    return entity_writer(load_request_schema(api_key, api_version))


@cache
def _reader(api_key: int, api_version: int) -> Any:
    return entity_reader(load_response_schema(api_key, api_version))


def request_header(api_key: int, api_version: int, correlation_id: int, client_id: str) -> bytes:
    """The header of a request, with the empty tagged fields that flexible versions have."""
    name = client_id.encode()
    head = _HEADER.pack(api_key, api_version, correlation_id, len(name)) + name
    return head + b"\x00" if is_flexible(api_key, api_version) else head


def write_request(request: Any, correlation_id: int, client_id: str) -> bytes:
    """Encode a request with its header, without the frame length."""
    key, version = request.__api_key__, request.__version__
    buffer = BytesIO()
    buffer.write(request_header(key, version, correlation_id, client_id))
    _writer(key, version)(buffer, request)
    return buffer.getvalue()


def read_response_header(api_key: int, api_version: int, frame: Buffer) -> tuple[int, int]:
    """The correlation id, and the position of the body."""
    try:
        (correlation_id,) = _CORRELATION.unpack_from(frame, 0)
        if api_key == API_VERSIONS_KEY or not is_flexible(api_key, api_version):
            return correlation_id, 4
        if frame[4] == 0:
            return correlation_id, 5
    except (StructError, IndexError):
        raise ProtocolError(f"a response of {len(frame)} bytes is shorter than its header") from None
    raise ProtocolError("the header of a response has unknown tagged fields")


def read_response(api_key: int, api_version: int, frame: Buffer, body_at: int) -> Any:
    """The response in `frame` as kio's entity, or `ProtocolError`. Trailing bytes are ignored."""
    try:
        if check_response_lengths(api_key, api_version, frame, body_at):
            schema = load_response_schema(api_key, api_version)
            frame, body_at = without_unknown_tags(schema, frame, body_at), 0
        response, _ = _reader(api_key, api_version)(frame, body_at)
    except (SerialError, ValueError, KeyError, OverflowError, IndexError, ProtocolError) as error:
        raise ProtocolError(f"the answer to {api_name(api_key)} v{api_version}: {error}") from error
    return response
