"""A queue as its workers use it: where their messages come from, and where results and dead letters go."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.client.errors import ClientError
from headrace.client.kafka.librdkafka import log
from headrace.client.queue.acks import AckBatcher
from headrace.client.queue.description import KnownQueue
from headrace.client.queue.message import QueueMessage, dead_letter_record, seconds
from headrace.client.queue.receiver import QueueReceiver
from headrace.client.queue.rpc import QueueRpc
from headrace.client.queue.sender import QueueSender
from headrace.client.queue.worker import QueueWorker, WorkerLoop
from headrace.model import queue_wire as wire

if TYPE_CHECKING:
    from headrace.client.factory import ConnectionFactory


class WorkerSource:
    """The `WorkerQueue` of a queue's workers. Thread-safe."""

    def __init__(
        self,
        name: str,
        connection: "ConnectionFactory",
        rpc: QueueRpc,
        *,
        settler: AckBatcher,
        known: KnownQueue,
        sender: QueueSender,
        receiver: QueueReceiver,
    ) -> None:
        self.name = name
        self._connection = connection
        self._rpc = rpc
        self._known = known
        self._sender = sender
        self._receiver = receiver
        self.receive_until = receiver.receive_until
        self.flush = settler.flush

    def loop(self, worker: QueueWorker) -> WorkerLoop:
        """The loop of a worker of this queue."""
        settings = self._known.settings
        lease_s = seconds(worker.visibility) if worker.visibility else int(settings["visibility_timeout_ms"]) / 1000
        return WorkerLoop(
            self,
            self._reading(worker),
            worker.monitor,
            concurrency=worker.concurrency,
            lease_s=lease_s,
            is_fifo=settings["type"] == "fifo",
            tracing=self._connection.tracing,
        )

    def _reading(self, worker: QueueWorker) -> Callable[[QueueMessage], object]:
        """The function of a worker with the value of each message read before it."""
        if worker.type is None:
            return worker.function

        def call(message: QueueMessage) -> object:
            for each in self._receiver.readable([message], worker.type):
                _ = each.value
            return worker.function(message)

        return call

    def dead_letter(self, message: QueueMessage, reason: str) -> bool:
        """Move a message to the dead-letter queue now; the copy is stored first. False if there is none."""
        found = self._known.look()
        dead_letter = str(found.settings.get("dead_letter", ""))
        if not dead_letter:
            return False
        copy = dead_letter_record(message, found.topic_id, dead_letter, reason, round(time.time() * 1000))
        try:
            self._sender.send_record(copy)
        except ClientError as error:
            log.warning("%s of %s could not be dead-lettered: %s", message.id, self.name, error)
            return False
        message.ack()
        self._connection.reply_sender.failed(message, reason)
        return True

    def reply(self, message: QueueMessage, value: object) -> None:
        """Send what a worker returned to the caller of a message, if it has one."""
        self._connection.reply_sender.returned(message, value)

    def backlog(self) -> int | None:
        """How many messages are available; None without an answer."""
        try:
            return self._rpc.call(wire.Count(self.name), wire.Counts, patience_s=0).available
        except ClientError:
            return None
