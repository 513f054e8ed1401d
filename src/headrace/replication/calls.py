"""Calls between brokers: a call in an Envelope request (Kafka API 58), its answer in the response.

Calls and answers are msgpack arrays that begin with their name. An error is sent as its name and its message, and the
caller raises the same error.

Versions. Brokers of two releases call each other during a rolling upgrade. A call or an answer gets new fields only at
its end and with defaults, which either side may leave out or ignore; anything else is a call with a new name, and with
the feature level that it needs (`Call.level`).
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ClassVar, TypeVar, get_args

import msgspec
from kio.schema.errors import ErrorCode

from headrace.model import errors
from headrace.model.errors import FeatureUpdateRefused, HeadraceError, PeerUnavailable, ProtocolError, QueueUnavailable
from headrace.model.features import FIRST_LEVEL, needed
from headrace.model.ids import BrokerId
from headrace.protocol.client_codec import request_schema
from headrace.protocol.codec import make
from headrace.replication.peers import Peers

A = TypeVar("A")

ENVELOPE, VERSION = 58, 0


class Call(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """Base of all calls. The tag is the name of the class."""

    level: ClassVar[int] = FIRST_LEVEL
    """The feature level from which every broker knows this call."""


class CallResult(msgspec.Struct, array_like=True, frozen=True, tag="done"):
    result: msgspec.Raw


class CallRefused(msgspec.Struct, array_like=True, frozen=True, tag="refused"):
    error: str
    message: str


Serve = Callable[[bytes], Coroutine[Any, Any, bytes]]
"""Carries out an encoded call; the encoded answer."""

_SHORT_ARRAY, _SHORT_STRING, _STRING = 0x90, 0xA0, 0xD9
_LONG_ARRAYS = {0xDC: 3, 0xDD: 5}
"""The sizes of the headers of longer arrays."""

_encode = msgspec.msgpack.Encoder().encode
_decode_answer = msgspec.msgpack.Decoder(CallResult | CallRefused).decode


def encode_call(call: Call) -> bytes:
    return _encode(call)


def call_names(calls: Any) -> tuple[str, ...]:
    """The names of a call, or of all calls of a union, as they are sent."""
    return tuple(each.__struct_config__.tag for each in get_args(calls) or (calls,))


def call_name(data: bytes) -> str:
    """The name of an encoded call, without decoding the rest; empty if it is none.

    It is the first element of a msgpack array, a string of at most 255 bytes.
    """
    try:
        at = 1 if data[0] & 0xF0 == _SHORT_ARRAY else _LONG_ARRAYS.get(data[0], len(data))
        if data[at] & 0xE0 == _SHORT_STRING:
            size, at = data[at] & 0x1F, at + 1
        elif data[at] == _STRING:
            size, at = data[at + 1], at + 2
        else:
            return ""
        return data[at : at + size].decode()
    except (IndexError, UnicodeDecodeError):
        return ""


async def answer_to(work: Callable[[], Awaitable[Any]]) -> bytes:
    """Carry out a call, and encode its result or error. Unexpected errors are raised."""
    try:
        return _encode(CallResult(msgspec.Raw(_encode(await work()))))
    except HeadraceError as error:
        return _encode(encoded_error(error))


def unknown_call(error: msgspec.MsgspecError | str) -> bytes:
    """The answer to a call that this version cannot read."""
    return _encode(
        CallRefused(PeerUnavailable.__name__, f"a broker of another version makes a call unknown here: {error}")
    )


async def serve_unknown(call: bytes) -> bytes:
    """Answer a call that no service of this version carries out."""
    return unknown_call(call_name(call) or "no call at all")


def encoded_error(error: HeadraceError) -> CallRefused:
    return CallRefused(type(error).__name__, str(error))


def decoded_error(refused: CallRefused) -> HeadraceError:
    kind = getattr(errors, refused.error, None)
    if isinstance(kind, type) and issubclass(kind, HeadraceError):
        return kind(refused.message)
    return QueueUnavailable(refused.message)


def read_answer(data: bytes, result: type[A]) -> A:
    try:
        answer = _decode_answer(data)
        if isinstance(answer, CallRefused):
            raise decoded_error(answer)
        return msgspec.msgpack.decode(answer.result, type=result)
    except msgspec.MsgspecError as error:
        raise PeerUnavailable(f"another broker answers in no known way: {error}; upgrade all brokers") from error


async def ask(peers: Peers, broker_id: BrokerId, call: Call, result: type[A], *, lane: str, timeout_s: float) -> A:
    """Call another broker. Its errors are raised here; `PeerUnavailable` if there is no answer."""
    if call.level > peers.feature_level:
        raise FeatureUpdateRefused(needed(type(call).__name__, call.level, peers.feature_level))
    schema = request_schema(ENVELOPE, VERSION)
    request: Any = make(
        schema.EnvelopeRequest, request_data=encode_call(call), request_principal=None, client_host_address=b""
    )
    try:
        answer = await peers.call(broker_id, request, lane=lane, timeout_s=timeout_s)
    except ProtocolError as error:
        raise PeerUnavailable(f"broker {broker_id} answers in no known way: {error}") from None
    if answer.error_code is not ErrorCode.none or answer.response_data is None:
        raise PeerUnavailable(f"broker {broker_id} does not take the call: {answer.error_code.name}")
    return read_answer(answer.response_data, result)
