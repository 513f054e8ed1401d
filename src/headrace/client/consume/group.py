"""Consuming in a group, at most once or at least once. `docs/sdk.md` has the guarantees."""

import threading
import time
from datetime import datetime

from headrace.client.consume.ack_tracker import AckTracker
from headrace.client.consume.stream import Stream
from headrace.client.kafka.consumer import PartitionConsumer, Where
from headrace.client.kafka.librdkafka import log
from headrace.client.keywords import checks_keywords
from headrace.client.message import Message

_BUFFERED = 500
_ACK_POLL_S = 0.1
_WARN_AFTER_S = 10.0


@checks_keywords
class Consumption(Stream):
    """The messages of topics, shared with the other members of the group."""

    def __init__(self, poller: PartitionConsumer, topics: list[str]) -> None:
        super().__init__(poller)
        poller.join(topics, on_assigned=self._on_assigned, on_revoked=self._on_revoked, on_lost=self._on_lost)

    def commit(self) -> None:
        """Commit now, instead of within the commit interval. Returns when the broker has acknowledged it."""

    def seek(self, partition: int, offset: int, topic: str | None = None) -> None:
        """Go on from an offset of a partition that this member has."""
        mine = self._wait_for_assignment()
        chosen = {where for where in mine if where[1] == partition and topic in (None, where[0])}
        if len(chosen) != 1:
            raise ValueError(f"partition {partition} is not one of this member's: {sorted(mine)}")
        self._go_to(dict.fromkeys(chosen, offset))

    def seek_to_time(self, when: datetime) -> None:
        """Go on from the first message at or after a time, in each partition that this member has."""
        self._go_to(self._poller.at_time(self._wait_for_assignment(), round(when.timestamp() * 1000)))

    def _wait_for_assignment(self) -> set[Where]:
        while not (mine := self._poller.assignment()):
            self._fill(_ACK_POLL_S)
        return mine

    def _go_to(self, positions: dict[Where, int]) -> None:
        self._drop(positions)
        self._poller.seek(positions)

    def _on_assigned(self, where: set[Where]) -> None:
        pass

    def _on_revoked(self, where: set[Where]) -> None:
        self._drop(where)

    def _on_lost(self, where: set[Where]) -> None:
        self._drop(where)


class AtMostOnce(Consumption):
    """Commits a batch of messages before it hands over the first of them.

    A crash loses messages that were committed and not handled: at most the batch. No message is delivered twice.
    """

    def __init__(self, poller: PartitionConsumer, topics: list[str], batch: int) -> None:
        self._batch = batch
        super().__init__(poller, topics)

    def _fill(self, timeout_s: float) -> None:
        messages = self._poller.take(self._batch, timeout_s)
        if not messages:
            return
        starts: dict[Where, int] = {}
        for each in messages:
            starts.setdefault((each.topic, each.partition), each.offset)
        if self._poller.commit({(each.topic, each.partition): each.offset + 1 for each in messages}, wait=True):
            self._buffer.extend(messages)
        else:
            # Not ours, or not known to be: read them again, if they still come to us.
            mine = self._poller.assignment()
            self._poller.seek({where: offset for where, offset in starts.items() if where in mine})

    def _on_revoked(self, where: set[Where]) -> None:
        # Buffered messages are committed: no other member will get them, so they are still delivered.
        pass

    def _on_lost(self, where: set[Where]) -> None:
        pass


class AtLeastOnce(Consumption):
    """Commits acknowledged messages, up to the first that is not.

    Commits go out every `commit_interval_s`, and before partitions are revoked or the stream is closed. After a crash
    everything that was not committed is redelivered: unacknowledged messages, and those acknowledged within the last
    interval.
    """

    def __init__(
        self, poller: PartitionConsumer, topics: list[str], commit_interval_s: float, max_unacked: int
    ) -> None:
        self._lock = threading.Lock()
        self._ledgers: dict[Where, AckTracker] = {}
        self._interval_s = commit_interval_s
        self._committed_at_s = time.monotonic()
        self._max_unacked = max_unacked
        super().__init__(poller, topics)

    def ack(self, message: Message) -> None:
        """Say that a message is done. May be called in any order, and from any thread."""
        with self._lock:
            ledger = self._ledgers.get((message.topic, message.partition))
            if ledger is not None:
                ledger.done(message.offset)
        self._commit_if_due()

    def commit(self) -> None:
        self._commit(wait=True)

    def _before_take(self) -> None:
        self._commit_if_due()

    def _deliver(self, message: Message) -> Message:
        with self._lock:
            self._ledgers.setdefault((message.topic, message.partition), AckTracker()).handed(message.offset)
        return message

    def _fill(self, timeout_s: float) -> None:
        if self._open_count() >= self._max_unacked:
            self._wait_for_acks()
            return
        self._buffer.extend(self._poller.take(_BUFFERED, timeout_s, self.ack))

    def _open_count(self) -> int:
        with self._lock:
            return sum(ledger.open_count for ledger in self._ledgers.values())

    def _wait_for_acks(self) -> None:
        """Deliver no more until some are acknowledged; stay in the group meanwhile."""
        paused = self._poller.assignment()
        self._poller.pause(paused)
        warn_at_s = time.monotonic() + _WARN_AFTER_S
        try:
            while self._open_count() >= self._max_unacked and not self.is_over:
                self._buffer.extend(self._poller.take(_BUFFERED, _ACK_POLL_S, self.ack))
                self._commit_if_due()
                if time.monotonic() > warn_at_s:
                    log.warning("%d messages are not acknowledged: waiting for ack(message)", self._max_unacked)
                    warn_at_s = float("inf")
        finally:
            self._poller.resume(paused & self._poller.assignment())

    def _commit_if_due(self) -> None:
        if time.monotonic() - self._committed_at_s >= self._interval_s:
            self._commit(wait=False)

    def _commit(self, *, wait: bool, is_last: bool = False, only: set[Where] | None = None) -> None:
        with self._lock:
            self._committed_at_s = time.monotonic()
            for where in self._poller.uncommitted() & set(self._ledgers):
                self._ledgers[where].uncommitted()
            found = {}
            for where, ledger in self._ledgers.items():
                # What others will go on from is said again, in case that one before it failed.
                offset = ledger.position if wait or is_last else ledger.to_commit()
                if offset is not None and (only is None or where in only):
                    found[where] = offset
            if self._poller.commit(found, wait=wait):
                for where, offset in found.items():
                    self._ledgers[where].committed(offset)

    def _go_to(self, positions: dict[Where, int]) -> None:
        with self._lock:
            for where in positions:
                self._ledgers.pop(where, None)
        super()._go_to(positions)

    def _on_revoked(self, where: set[Where]) -> None:
        self._commit(wait=True, only=where)
        self._on_lost(where)

    def _on_lost(self, where: set[Where]) -> None:
        with self._lock:
            for each in where:
                self._ledgers.pop(each, None)
        self._drop(where)

    def _finish(self, is_success: bool) -> None:
        # Closing the consumer waits for it, if there is a broker.
        self._commit(wait=False, is_last=True)
