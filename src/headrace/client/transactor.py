"""Transactions: what was published and the positions of a group become visible together, or not at all."""

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from headrace.client.errors import Fenced, TransactionFailed
from headrace.client.librdkafka import explain, log
from headrace.client.outgoing import Outgoing
from headrace.client.polling import Positions
from headrace.client.publisher import Publisher

_CALL_TIMEOUT_S = 10.0
_MAX_TRIES = 12
_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}


class Aborted(Exception):
    """The transaction was, or must be, aborted; the work in it is to be done again."""


class Transactor:
    """Begins a transaction with the first thing done in it. Not thread-safe: callers hold a lock or have one thread.

    Raises `Fenced` when another process with the same transactional id took over.
    """

    def __init__(self, publisher: Publisher, bootstrap: str) -> None:
        self._publisher = publisher
        self._producer = publisher.producer
        self._bootstrap = bootstrap
        self._is_open = False
        self._insist(self._producer.init_transactions, _CALL_TIMEOUT_S * 3)

    def publish(self, outgoing: Outgoing) -> None:
        """Publish within the transaction. Raises `Aborted` if the transaction has failed."""
        self._begin()
        record = self._publisher.encode(outgoing)
        try:
            self._publisher.queue(record, _ignore)
        except KafkaException as failure:
            self._judge(failure.args[0])

    def commit(self, positions: Positions, group_metadata: Any) -> None:
        """Commit what was published together with the positions. Raises `Aborted` when nothing of it took place."""
        if not self._is_open and not positions:
            return
        self._begin()
        if positions:
            offsets = [TopicPartition(*where, offset) for where, offset in positions.items()]
            self._insist(self._producer.send_offsets_to_transaction, offsets, group_metadata, _CALL_TIMEOUT_S)
        self._insist(self._producer.commit_transaction, _CALL_TIMEOUT_S)
        self._is_open = False

    def abort(self) -> None:
        """Undo what is in the transaction."""
        if self._is_open:
            self._is_open = False
            self._insist(self._producer.abort_transaction, _CALL_TIMEOUT_S)

    def close(self) -> None:
        """Let go. What is in a transaction that is not committed is undone by the broker."""
        self._publisher.discard()

    def _begin(self) -> None:
        if not self._is_open:
            self._insist(self._producer.begin_transaction)
            self._is_open = True

    def _insist(self, call: Callable[..., None], *args: Any) -> None:
        """librdkafka's calls for transactions go on where they were when they are made again after a passing error."""
        for left in reversed(range(_MAX_TRIES)):
            try:
                call(*args)
                return
            except KafkaException as failure:
                error = failure.args[0]
                if not error.retriable() or not left:
                    self._judge(error)
                log.warning("a transaction goes on after: %s", explain(error, self._bootstrap))

    def _judge(self, error: KafkaError) -> None:
        text = explain(error, self._bootstrap)
        if error.code() in _FENCED:
            raise Fenced(f"another process took over this transactional id: {text}")
        if error.txn_requires_abort():
            log.warning("the transaction is aborted and done again: %s", text)
            raise Aborted(text)
        raise TransactionFailed(f"the transaction failed: {text}")


def _ignore(error: KafkaError | None, stored: Any) -> None:
    """A message that is not stored fails the transaction at its commit."""
