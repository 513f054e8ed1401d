"""A broker's listener on the simulated network: request frames go to the handlers that production registers.

The order is that of `kafka/connection.py`: requests of a connection are handled one after the other, a coroutine
handler blocks the requests behind it, and responses are sent in the order of the requests.
"""

from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from inspect import iscoroutine
from typing import Any

import headrace.kafka.handlers  # noqa: F401  (registers the handlers)
from headrace.kafka.dispatch import Answer, Context, NoAnswer, Peer, Raw, route
from headrace.kafka.outbox import FileRange, Part
from headrace.kafka.services import Services
from headrace.model.errors import ProtocolError
from headrace.model.image import Endpoint
from headrace.protocol.codec import peek_api, read_request_header, write_response
from headrace.protocol.produce_request import ProduceRequest
from headrace.runtime.deferred import Deferred
from headrace.testing.sim.network import ServerEnd
from headrace.testing.sim.world import Process


class _Slot:
    __slots__ = ("deferred", "frame", "is_ready", "request")

    def __init__(self) -> None:
        self.request: ProduceRequest | None = None
        self.deferred: Deferred[Answer] | None = None
        self.frame = b""
        self.is_ready = False


class KafkaSession:
    """One connection at a broker: the `Session` of `network.py`."""

    def __init__(
        self,
        process: Process,
        services: Services,
        endpoint: Endpoint,
        end: ServerEnd,
        on_produced: Callable[[ProduceRequest, bytes], None],
    ) -> None:
        """`on_produced` is called with every response to a Produce."""
        self._process = process
        self._on_produced = on_produced
        self._services = services
        self._end = end
        self._peer = Peer(f"{end.client_name}:1", endpoint, listener=services.broker_listener)
        self._queue: deque[bytes] = deque()
        self._slots: deque[_Slot] = deque()
        self._is_serving_one = False
        self._is_closed = False

    def received(self, frame: bytes) -> None:
        self._queue.append(frame)
        self._pump()

    def closed(self) -> None:
        """The client has disconnected. Its earlier requests are still executed."""
        self._is_closed = True
        for slot in tuple(self._slots):
            if slot.deferred is not None:
                slot.deferred.hurry()

    def _pump(self) -> None:
        while self._queue and not self._is_serving_one:
            try:
                self._handle(self._queue.popleft())
            except ProtocolError as error:
                self._process.world.trace.note(self._process.name, "closes a connection: %s", error)
                self._queue.clear()
                self._end.close()
                return

    def _handle(self, frame: bytes) -> None:
        key, version, _ = peek_api(frame)
        found = route(key, version)
        if found is None:
            raise ProtocolError(f"API {key} version {version} is not served")
        header = read_request_header(frame, flexible=found.flexible)
        context = Context(header, self._peer, self._services)
        slot = _Slot()
        self._slots.append(slot)
        request = found.read(frame, header)
        slot.request = request if isinstance(request, ProduceRequest) else None
        result = found.handler(context, request)
        if iscoroutine(result):
            self._is_serving_one = True
            self._process.create_task(self._serve(slot, context, result))
        else:
            self._settle(slot, context, result)

    async def _serve(self, slot: _Slot, context: Context, work: Coroutine[Any, Any, Answer]) -> None:
        try:
            answer = await work
        finally:
            self._is_serving_one = False
        self._settle(slot, context, answer)
        self._pump()

    def _settle(self, slot: _Slot, context: Context, result: Any) -> None:
        if isinstance(result, Deferred):
            slot.deferred = result
            result.then(lambda answer: self._answer(slot, context, answer))
        else:
            self._answer(slot, context, result)

    def _answer(self, slot: _Slot, context: Context, answer: Answer) -> None:
        if isinstance(answer, Raw):
            slot.frame = _joined(answer.buffers)
        elif not isinstance(answer, NoAnswer):
            slot.frame = write_response(context.header, answer)
        slot.is_ready = True
        slots = self._slots
        while slots and slots[0].is_ready:
            ready = slots.popleft()
            if ready.frame:
                if ready.request is not None:
                    self._on_produced(ready.request, ready.frame)
                self._end.send(ready.frame)


def _joined(parts: Sequence[Part]) -> bytes:
    return b"".join(
        part.file.read(part.position, part.length) if isinstance(part, FileRange) else part for part in parts
    )
