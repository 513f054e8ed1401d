"""Receives messages of a queue, for a program that asks once and for those that wait for as long as they run."""

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from headrace.client.queue.acks import AckBatcher
from headrace.client.queue.message import QueueMessage
from headrace.client.queue.ranges import RangeMessage
from headrace.client.queue.rpc import QueueRpc
from headrace.model import queue_wire as wire

if TYPE_CHECKING:
    from headrace.client.factory import ConnectionFactory
    from headrace.client.otel import ProcessSpan

_SLICE_S = 20.0
"""How long one call waits for messages."""
_AT_ONCE = 1_000
"""No more in one call."""
_WORKER_S = 5.0
"""How long a worker waits for a broker before it says so; then it goes on waiting."""


class QueueReceiver:
    """Receives messages of one queue. Thread-safe."""

    def __init__(self, name: str, connection: "ConnectionFactory", rpc: QueueRpc, settler: AckBatcher) -> None:
        self._name = name
        self._connection = connection
        self._rpc = rpc
        self._settler = settler
        self._decode = _decoder()
        """Decodes messages that are received as ranges; None to receive them one by one."""

    def receive(self, maximum: int, wait_s: float, visibility_ms: int | None, kind: Any) -> list[QueueMessage]:
        """The messages that come within a time, as soon as there are any; `kind` is the type of their values."""
        give_up_at_s, began_ns = time.monotonic() + wait_s, time.time_ns()
        tracing = self._connection.tracing
        tracer = None if tracing is None else tracing.active
        process = None if tracer is None else partial(tracer.process_queued, queue=self._name, is_counted=False)
        while True:
            left_s = give_up_at_s - time.monotonic()
            found = self._receive(maximum, min(_SLICE_S, left_s), visibility_ms, process=process)
            if found and tracer is not None:
                tracer.received_from_queue(self._name, found, began_ns)
            if found or left_s <= _SLICE_S:
                return self.readable(found, kind)

    def receive_until(
        self, is_over: Callable[[], bool], maximum: int, wait_s: float, visibility_s: float
    ) -> list[QueueMessage]:
        """What a worker does: it waits for a broker that is away, and says so by `Unreachable` every few seconds."""
        return self._receive(maximum, wait_s, round(visibility_s * 1000), patience_s=_WORKER_S, is_over=is_over)

    def readable(self, messages: list[QueueMessage], kind: Any) -> list[QueueMessage]:
        """The messages with what reads their values as a type."""
        reader = self._connection.reader(kind)
        for each in messages:
            each.reader = reader
        return messages

    def _receive(
        self,
        maximum: int,
        wait_s: float,
        visibility_ms: int | None,
        *,
        patience_s: float | None = None,
        is_over: Callable[[], bool] = lambda: False,
        process: "Callable[[QueueMessage], ProcessSpan] | None" = None,
    ) -> list[QueueMessage]:
        wait_s, decode = max(0.0, wait_s), self._decode
        call = wire.Receive(
            self._name, min(maximum, _AT_ONCE), round(wait_s * 1000), visibility_ms, as_batches=decode is not None
        )
        found = self._rpc.call(call, wire.AllReceived, longer_s=wait_s, patience_s=patience_s, is_over=is_over)
        name, settler = self._name, self._settler
        if not found.ranges or decode is None:
            return [QueueMessage(name, each, settler, process) for each in found.messages]
        decoded, unreadable = decode(found)
        if unreadable:
            # The broker decides what becomes of records that cannot be decoded.
            self._decode = None
            for receipt in unreadable:
                settler.nack(receipt, 0, "the record cannot be decoded")
        # They have the same fields.
        messages = cast(list[wire.Received], decoded)
        return [QueueMessage(name, each, settler, process) for each in messages]


def _decoder() -> Callable[[wire.AllReceived], tuple[list[RangeMessage], list[str]]] | None:
    """None where the packages that it needs are not installed."""
    try:
        from headrace.client.queue.range_decoder import messages_of
    except ImportError:
        return None
    return messages_of
