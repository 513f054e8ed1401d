"""Answers before they are sent: their slot in the order, their encoding, and refusals of unserved versions."""

from collections.abc import Sequence
from struct import Struct

from headrace.kafka.dispatch import APIS, Answer, Context, NoAnswer, Raw
from headrace.kafka.handlers.api_versions import unsupported_version_answer
from headrace.kafka.outbox import Part
from headrace.kafka.request_turn import RequestTurn
from headrace.model.errors import ProtocolError
from headrace.protocol.codec import API_VERSIONS_KEY, api_name, write_response
from headrace.protocol.frames import Frame
from headrace.runtime.deferred import Deferred
from headrace.runtime.disk import Buffer

_CORRELATION = Struct(">i")


class AnswerSlot:
    """A place in the connection's order of answers, filled when the answer is ready."""

    __slots__ = ("buffers", "deferred", "is_framed", "request_count", "size", "turn")

    def __init__(self, request_count: int = 1, *, is_framed: bool = False) -> None:
        self.request_count = request_count
        """How many requests are answered by what fills it."""
        self.is_framed = is_framed
        """Whether that is whole frames, with their lengths."""
        self.buffers: Sequence[Part] | None = None
        self.deferred: Deferred[Answer] | None = None
        self.size = 0
        self.turn: RequestTurn | None = None
        """The times of the request; None if it is not timed."""


def encode_answer(context: Context, answer: Answer) -> Sequence[Part]:
    """Encode an answer with its header, without the length prefix; empty for `NO_ANSWER`."""
    if isinstance(answer, Raw):
        return answer.buffers
    if isinstance(answer, NoAnswer):
        return ()
    return [write_response(context.header, answer)]


def refusal(frame: Frame, key: int, version: int, correlation_id: int) -> list[Buffer]:
    """The answer to a version that is not served; `ProtocolError` for an API that is not served at all."""
    if key == API_VERSIONS_KEY:
        return [unsupported_version_answer(correlation_id)]
    api = APIS.get(key)
    if api is None:
        raise ProtocolError(f"API key {key} (version {version}) is not served by this broker")
    if api.refuse is not None and api.min_version <= version < api.min_served:
        return [_CORRELATION.pack(correlation_id) + api.refuse(frame, version)]
    raise ProtocolError(f"{api_name(key)} version {version} is not served, only {api.min_version} to {api.max_version}")
