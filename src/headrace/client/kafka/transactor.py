"""Transactions: published messages and committed offsets become visible together, or not at all."""

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from headrace.client.errors import Fenced, TransactionFailed, Unreachable
from headrace.client.kafka.consumer import Positions
from headrace.client.kafka.librdkafka import UNREACHABLE, explain, log
from headrace.client.kafka.publisher import Publisher
from headrace.client.outgoing import Outgoing
from headrace.client.threads import DaemonThreads

_CALL_TIMEOUT_S = 10.0
_GRACE_S = 5.0
_START_PATIENCE_S = 60.0
_AGAIN_S = 0.1
_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
_ASK_LATER = {KafkaError._STATE, KafkaError._FATAL}
"""Errors of a message in a transaction that has already failed; its commit or abort reports the reason."""


class TransactionAborted(Exception):
    """The transaction must be aborted, and its work repeated."""


class Transactor:
    """A transactional producer that begins a transaction with its first message. Not thread-safe.

    `make` creates the producer, and another after a fatal error. An unreachable broker is waited for, until `hurry`.
    Raises `Fenced` when another process with the same transactional id took over. A broker that aborted the transaction
    because it was open for longer than `timeout_s` reports the same error; then, if no other process can have the id
    (`is_shared` says whether one can), the work is repeated.
    """

    def __init__(self, make: Callable[[], Publisher], bootstrap: str, *, timeout_s: float, is_shared: bool) -> None:
        self._make = make
        self._bootstrap = bootstrap
        self._timeout_s = timeout_s
        self._is_shared = is_shared
        self._is_hurried = False
        self._fence: str | None = None
        self._start(_START_PATIENCE_S)

    def _start(self, patience_s: float) -> None:
        """A new producer; its registration aborts a transaction that its predecessor may have left open."""
        self._publisher = self._make()
        self._producer = self._publisher.producer
        self._calls = DaemonThreads(1, "headrace-transaction")
        self._began_at_s: float | None = None
        self._is_broken = True
        try:
            self._insist("init_transactions", _CALL_TIMEOUT_S, patience_s=patience_s)
        except BaseException as failure:
            self.close()
            if isinstance(failure, TransactionAborted):
                raise TransactionFailed(f"no transactions are possible: {failure}") from None
            raise
        self._is_broken = False

    def publish(self, outgoing: Outgoing) -> None:
        """Publish within the transaction. Raises `TransactionAborted` if the transaction has failed."""
        self._begin()
        record = self._publisher.encode(outgoing)
        try:
            self._publisher.queue(record, _ignore)
        except KafkaException as failure:
            self._judge(failure.args[0])

    def commit(self, positions: Positions, group_metadata: Any) -> None:
        """Commit what was published together with the positions. Raises `TransactionAborted` when it did not come to
        that: then call `abort`."""
        if self._began_at_s is None and not positions:
            return
        self._begin()
        if positions:
            offsets = [TopicPartition(*where, offset) for where, offset in positions.items()]
            self._insist("send_offsets_to_transaction", offsets, group_metadata, _CALL_TIMEOUT_S)
        self._insist("commit_transaction", _CALL_TIMEOUT_S)
        self._began_at_s = None

    def abort(self) -> bool:
        """Undo what is in the transaction. False if it is not known whether it was undone or, after all, committed:
        then the positions that the group has committed tell."""
        self._mind_the_fence()
        if not self._is_broken:
            if self._began_at_s is None:
                return True
            try:
                self._insist("abort_transaction", _CALL_TIMEOUT_S)
            except TransactionAborted:
                pass
            else:
                self._began_at_s = None
                return True
        self.close()
        self._start(float("inf"))
        return False

    def hurry(self) -> None:
        """From now on do not wait for a broker that does not answer. May be called from anywhere."""
        self._is_hurried = True

    def close(self) -> None:
        """Close the producer. The broker aborts a transaction that is still open."""
        self._calls.shutdown(wait=False)
        self._publisher.discard()

    def _mind_the_fence(self) -> None:
        """Remember that we were fenced: another producer of ours would fence the one that took over."""
        if self._fence is not None:
            raise Fenced(self._fence)

    def _begin(self) -> None:
        self._mind_the_fence()
        if self._is_broken:
            raise TransactionAborted("the producer has failed")
        if self._began_at_s is None:
            self._insist("begin_transaction")
            self._began_at_s = time.monotonic()

    def _insist(self, name: str, *args: Any, patience_s: float = float("inf")) -> None:
        """librdkafka's calls for transactions go on where they were when they are made again after a passing error.

        They are made on a thread, because `send_offsets_to_transaction` may never return, whatever timeout it is given
        (librdkafka's issues 5456 and 5511). Such a producer is of no more use.
        """
        give_up_at_s = time.monotonic() + patience_s
        while True:
            try:
                self._calls.submit(getattr(self._producer, name), *args).result(_CALL_TIMEOUT_S + _GRACE_S)
                return
            except KafkaException as failure:
                error = failure.args[0]
                if not error.retriable():
                    self._judge(error)
            except TimeoutError:
                self._is_broken = True
                log.warning("librdkafka does not return from %s: going on with another producer", name)
                raise TransactionAborted(f"librdkafka does not return from {name}") from None
            except BaseException:
                # Ctrl-C: the call goes on by itself, and no other can be made.
                self._is_broken = True
                raise
            text = explain(error, self._bootstrap)
            if self._is_hurried or time.monotonic() > give_up_at_s:
                kind = Unreachable if error.code() in UNREACHABLE else TransactionFailed
                raise kind(f"the transaction was not finished: {text}")
            log.warning("a transaction goes on after: %s", text)
            time.sleep(_AGAIN_S)

    def _judge(self, error: KafkaError) -> None:
        text = explain(error, self._bootstrap)
        if error.code() in _FENCED and not self._may_be_late():
            self._fence = f"another process took over this transactional id: {text}"
            raise Fenced(self._fence)
        if error.fatal() or error.code() in _FENCED:
            self._is_broken = True
        elif not error.txn_requires_abort() and error.code() not in _ASK_LATER:
            raise TransactionFailed(f"the transaction failed: {text}")
        log.warning("the transaction is aborted and done again: %s", text)
        raise TransactionAborted(text)

    def _may_be_late(self) -> bool:
        """Whether the broker may have ended the transaction because it took too long."""
        if not self._is_shared:
            return True
        return self._began_at_s is not None and time.monotonic() - self._began_at_s >= self._timeout_s


def _ignore(error: KafkaError | None, stored: Any) -> None:
    """A message that is not stored fails the transaction at its commit."""
