"""Results of tasks: `queue.call` sends a message, its worker's value comes back to a reply queue of this client.

The reply queue, `replies.USER.ID` (see `reply_prefix`), is created with the first call and deleted with the client. If
the client is gone without that, the brokers delete it after ten minutes without a receive.
"""

import threading
import uuid
import weakref
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.client.errors import CallFailed, ClientError, InvalidMessage, NoSuchQueue
from headrace.client.kafka.librdkafka import log
from headrace.client.keywords import checks_keywords
from headrace.client.message import CONTENT_TYPE, Header, PayloadReader
from headrace.client.queue.message import QueueMessage, QueueMessageBody
from headrace.client.queue.settings import QueueOptions
from headrace.client.schemas.values import encode_hook
from headrace.model.failure_headers import ATTEMPTS, EXCEPTION_MESSAGE, EXCEPTION_TYPE, REASON
from headrace.model.queue_wire import AllSent, OutgoingMessage, Received, Send
from headrace.model.reply_headers import (
    CALL_ID,
    FAILED,
    OUTCOME,
    REPLY_TO,
    failed_headers,
    reply_address,
    reply_prefix,
    returned_headers,
)

if TYPE_CHECKING:
    from headrace.client.factory import ConnectionFactory
    from headrace.client.queue.queue import Queue

_IDLE_DELETE_MS = 10 * 60 * 1000
_AT_ONCE = 1_000
_WAIT_S = 5.0
_LEASE_S = 30.0
_PAUSE_S = 0.5
_JSON = "application/json"


@checks_keywords
class TaskCall:
    """A task that was sent with `Queue.call`, and its result.

    ```python
    @client.queue("sums").create().worker()
    def add(message):
        return sum(message.json())


    with client.running():
        call = client.queue("sums").call([1, 2, 3])
        print(call.result(timeout=30))  # 6
    ```
    """

    def __init__(self, queue: str, call_id: str, reader: PayloadReader | None) -> None:
        self.queue = queue
        self.id = call_id
        """The id of the call."""
        self.message_id = ""
        """The id of its message in the queue."""
        self.reply: Future[QueueMessageBody[Received]] = Future()
        """The message that answers it."""
        self._reader = reader

    def __repr__(self) -> str:
        return f"<call {self.id} of {self.queue}, {'answered' if self.done() else 'not answered'}>"

    def done(self) -> bool:
        """Whether the result is there: a value, or a failure."""
        return self.reply.done()

    def result(self, timeout: float | None = None) -> Any:
        """The value that the worker returned. Waits for it, for at most `timeout` seconds if that is given: then it
        raises `TimeoutError`, and `result` may be called again. Raises `CallFailed` if the task was dead-lettered."""
        try:
            found = self.reply.result(timeout)
        except FutureTimeout:
            raise TimeoutError(self.overdue(timeout)) from None
        return self.value_of(found)

    def overdue(self, timeout: float | None) -> str:
        return (
            f"no result of {self.message_id} within {timeout:g} s: it waits in {self.queue}, is being worked on, or is "
            f"tried again. Call result() again, and look with `headrace queue peek {self.queue}`: without a worker, or "
            "for a task that fails without max_receives and a dead-letter queue, no result comes"
        )

    def value_of(self, found: QueueMessageBody[Received]) -> Any:
        """The value of a reply; raises its failure."""
        if (found.header(OUTCOME) or "").encode() == FAILED:
            attempts = found.header(ATTEMPTS) or ""
            raise CallFailed(
                found.header(REASON) or "the task failed",
                exception_type=found.header(EXCEPTION_TYPE),
                exception_message=found.header(EXCEPTION_MESSAGE),
                attempts=int(attempts) if attempts.isdecimal() else 0,
            )
        if self._reader is not None:
            return self._reader.read(found.body, found.headers)
        if found.header(CONTENT_TYPE) != _JSON:
            return found.body
        try:
            return msgspec.json.decode(found.body)
        except msgspec.MsgspecError as error:
            raise InvalidMessage(f"the result is not JSON: {error}") from None


class ReplyReceiver:
    """Receives the replies to the calls of one client. Thread-safe; begins with the first call. A reply to a call that
    is answered, or whose `TaskCall` the program has dropped, is ignored."""

    def __init__(self, connection: "ConnectionFactory", owner: str) -> None:
        self._connection = connection
        self._name = reply_prefix(owner) + uuid.uuid4().hex
        self._calls: weakref.WeakValueDictionary[str, TaskCall] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()
        self._queue: Queue | None = None
        self._closing = threading.Event()

    def new_call(self, queue: str, reader: PayloadReader | None) -> tuple[TaskCall, list[Header]]:
        """A call whose reply is received from now on, and the headers of its message."""
        self._start()
        call = TaskCall(queue, uuid.uuid4().hex, reader)
        self._calls[call.id] = call
        return call, [(REPLY_TO, self._name.encode()), (CALL_ID, call.id.encode())]

    def close(self) -> None:
        """Delete the reply queue. Calls without an answer fail."""
        with self._lock:
            queue, self._queue = self._queue, None
            self._closing.set()
        if queue is None:
            return
        try:
            queue.delete()
        except ClientError as error:
            log.debug("the reply queue %s is left to be deleted by the brokers: %s", self._name, error)
        finally:
            queue.close()
        for call in list(self._calls.values()):
            if not call.done():
                call.reply.set_exception(ClientError("the client is closed, and receives no results any more"))

    def _start(self) -> None:
        with self._lock:
            if self._closing.is_set():
                raise ClientError("the client is closed")
            if self._queue is None:
                queue = self._connection.queue(self._name, lambda _: None)
                _create(queue)
                self._queue = queue
                threading.Thread(target=self._run, args=(queue,), name="headrace-replies", daemon=True).start()

    def _run(self, queue: "Queue") -> None:
        while not self._closing.is_set():
            try:
                for message in queue.receive_until(self._closing.is_set, _AT_ONCE, _WAIT_S, _LEASE_S):
                    self._answer(message)
                    message.ack()
            except NoSuchQueue:
                if not self._closing.is_set():
                    self._create_again(queue)
            except ClientError as error:
                if not self._closing.wait(_PAUSE_S):
                    log.warning("waiting for results of calls: %s", error)

    def _create_again(self, queue: "Queue") -> None:
        """No broker was reachable for so long that the queue was deleted, or a person deleted it."""
        log.warning("the reply queue %s was deleted: results that were in it are lost", self._name)
        try:
            _create(queue)
        except ClientError as error:
            log.warning("the reply queue %s cannot be created: %s", self._name, error)
            self._closing.wait(_PAUSE_S)

    def _answer(self, message: QueueMessage) -> None:
        call = self._calls.get(message.header(CALL_ID) or "")
        if call is not None and not call.done():
            call.reply.set_result(QueueMessageBody(message.found))


class ReplySender:
    """Sends the replies of workers. Thread-safe."""

    def __init__(self, connection: "ConnectionFactory") -> None:
        self._connection = connection

    def returned(self, message: QueueMessage, value: object) -> None:
        """Reply with the value that a worker returned. Raises `TypeError` if it cannot be sent, and as `Queue.send`."""
        address = reply_address(message.headers)
        if address is None:
            return
        if isinstance(value, bytes | bytearray | memoryview):
            self._send(address[0], bytes(value), returned_headers(address[1], None))
        else:
            body = msgspec.json.encode(value, enc_hook=encode_hook)
            self._send(address[0], body, returned_headers(address[1], _JSON))

    def failed(self, message: QueueMessage, reason: str) -> None:
        """Reply that the message was dead-lettered."""
        address = reply_address(message.headers)
        if address is not None:
            try:
                self._send(address[0], b"", failed_headers(address[1], reason, message.attempt))
            except ClientError as error:
                log.warning("no reply to the caller of %s, which failed: %s", message.id, error)

    def _send(self, queue: str, body: bytes, headers: list[Header]) -> None:
        # Not with the producer: a caller may be gone at any time, and a producer makes a topic of a queue that is.
        reply = OutgoingMessage(body, uuid.uuid4().hex, headers=tuple(headers))
        try:
            self._connection.shared_rpc.call(Send(queue, [reply]), AllSent)
        except NoSuchQueue:
            log.info("a result is dropped: its caller is gone, and with it the reply queue %s", queue)


def _create(queue: "Queue") -> None:
    settings = {"queue.idle.delete.ms": str(_IDLE_DELETE_MS), "queue.retention.ms": str(2 * _IDLE_DELETE_MS)}
    queue.create(**QueueOptions(type="standard", settings=settings))
