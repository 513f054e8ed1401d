"""Where a handler's results go, and when positions are committed: one sink per delivery guarantee.

The handler loop calls `accept` with what was read, `send` with a handler's results without holding its lock, `enlist`
with the same results under its lock at the moment the message is marked as done, and `commit` under its lock.
"""

from concurrent.futures import Future
from typing import Any, Protocol

from headrace.client.kafka.consumer import PartitionConsumer, Positions
from headrace.client.kafka.publisher import Published, Publisher
from headrace.client.kafka.transactor import Transactor
from headrace.client.message import Message
from headrace.client.outgoing import Outgoing

Sent = list[Future[Published]]


class ResultSink(Protocol):
    must_drain: bool
    """Whether messages that were accepted are handled before their partition is given up."""
    can_undo: bool
    """Whether `undo` reverts everything since the last commit."""
    can_run_ahead: bool
    """Whether the next message may be handled before the results of this one are safe."""
    can_repeat: bool
    """Whether a message whose results were not published is handled again, with those that were handled ahead of
    that. If not, the results are published again where they were refused, and lost where no broker answered."""

    def accept(self, messages: list[Message]) -> bool:
        """Whether these may be handled; if not, they are read again."""
        ...

    def send(self, results: list[Outgoing]) -> Sent:
        """Publish, where that is for good; the message is not done before all of this is."""
        ...

    def enlist(self, results: list[Outgoing]) -> None: ...

    def commit(self, positions: Positions, *, wait: bool) -> None:
        """Commit. Raises `Aborted` if everything since the last commit was undone."""
        ...

    def undo(self, starts: Positions) -> Positions:
        """Undo what was enlisted and not committed. Given where each partition was at the last commit, says from where
        to read again."""
        ...

    def hurry(self) -> None:
        """From now on do not wait for a broker that does not answer."""
        ...

    def close(self) -> None: ...


class _DirectSink:
    """Publishes results immediately, outside of a transaction."""

    def __init__(self, poller: PartitionConsumer, publisher: Publisher) -> None:
        self._poller = poller
        self._publisher = publisher

    def send(self, results: list[Outgoing]) -> Sent:
        return [self._publisher.send(each, is_awaited=True) for each in results]

    def enlist(self, results: list[Outgoing]) -> None:
        pass

    def undo(self, starts: Positions) -> Positions:
        return starts

    def hurry(self) -> None:
        pass

    def close(self) -> None:
        pass


class AtMostOnceSink(_DirectSink):
    """Commits before handling."""

    must_drain = True
    can_undo = False
    can_run_ahead = True
    can_repeat = False

    def accept(self, messages: list[Message]) -> bool:
        return self._poller.commit({(each.topic, each.partition): each.offset + 1 for each in messages}, wait=True)

    def commit(self, positions: Positions, *, wait: bool) -> None:
        pass


class AtLeastOnceSink(_DirectSink):
    """Commits after handling."""

    must_drain = False
    can_undo = False
    can_run_ahead = True
    can_repeat = True

    def accept(self, messages: list[Message]) -> bool:
        return True

    def commit(self, positions: Positions, *, wait: bool) -> None:
        self._poller.commit(positions, wait=wait)


class ExactlyOnceSink:
    """Results and positions go into one transaction."""

    must_drain = False
    can_undo = True
    can_run_ahead = False
    can_repeat = True

    def __init__(self, poller: PartitionConsumer, transactor: Transactor) -> None:
        self._poller = poller
        self._transactor = transactor

    def accept(self, messages: list[Message]) -> bool:
        return True

    def send(self, results: list[Outgoing]) -> Sent:
        return []

    def enlist(self, results: list[Outgoing]) -> None:
        for each in results:
            self._transactor.publish(each)

    def commit(self, positions: Positions, *, wait: bool) -> None:
        metadata: Any = self._poller.group_metadata() if positions else None
        self._transactor.commit(positions, metadata)

    def undo(self, starts: Positions) -> Positions:
        return starts if self._transactor.abort() else {**starts, **self._poller.committed(starts)}

    def hurry(self) -> None:
        self._transactor.hurry()

    def close(self) -> None:
        self._transactor.close()
