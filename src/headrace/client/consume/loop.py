"""The loop behind `@client.handler`: polls, dispatches messages to workers, retries, dead-letters, commits.

One thread polls, so that the member stays in the group however long a handler takes. Each worker handles the messages
of one partition, in order (`partition_queue.py`). When a partition is revoked, the message being handled is finished
and committed first. All shared state is under one lock.
"""

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import closing
from typing import TYPE_CHECKING

from headrace.client.consume.partition_queue import PartitionQueue
from headrace.client.consume.results import ResultSink, Sent
from headrace.client.errors import ClientError, DeliveryFailed, HandlerFailed, Reject, TransactionFailed, Unreachable
from headrace.client.health import WorkerMonitor
from headrace.client.kafka.consumer import PartitionConsumer, Where
from headrace.client.kafka.librdkafka import log
from headrace.client.kafka.publisher import Published
from headrace.client.kafka.transactor import TransactionAborted
from headrace.client.message import Message
from headrace.client.outgoing import Outgoing, collect
from headrace.client.retry import MoveToTopic, RetryInPlace, RetryPolicy, StopHandling, give_up, judge
from headrace.client.threads import DaemonThreads

if TYPE_CHECKING:
    from headrace.client.otel import MessagingTracer, ProcessSpan

OnTheWay = deque[tuple[Message, list[Outgoing], Sent]]
"""Messages that were handled, with their results and the futures of their publishing."""

_AT_ONCE = 500
_FULL = 500
_RUN = 100
"""Messages of one partition before the worker turns to another."""
_POLL_S = 0.1
_POLL_WHILE_PAUSED_S = 0.02
_WAIT_FOR_ROOM_S = 0.05
_UNREACHABLE_WAIT_MS = 1_000
_MAX_ABORTS = 10
_LOOK_EVERY_S = 1.0
"""How often the lag is measured."""


class HandlerLoop:
    """Runs a handler: `call` is the user's function. `run` returns after `stop`, or raises."""

    def __init__(
        self,
        poller: PartitionConsumer,
        topics: list[str],
        call: Callable[[Message], object],
        policy: RetryPolicy,
        sink: ResultSink,
        monitor: WorkerMonitor,
        *,
        workers: int,
        batch: int,
        commit_interval_s: float,
        tracing: "MessagingTracer | None" = None,
    ) -> None:
        self._poller = poller
        self._tracing = tracing
        self._topics = topics
        self._call = call
        self._policy = policy
        self._sink = sink
        self.monitor = monitor
        self._batch = min(batch, _AT_ONCE)
        self._interval_s = commit_interval_s
        self._pool = DaemonThreads(workers, f"headrace-{policy.group}")
        self._lock = threading.Condition()
        self._lanes: dict[Where, PartitionQueue] = {}
        self._paused: set[Where] = set()
        self._committed_at_s = time.monotonic()
        self._looked_at_s = 0.0
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._must_undo = False
        self._aborts = 0

    def stop(self) -> None:
        """Finish the messages being handled, commit and leave the group. Safe in any thread and signal handler."""
        self._stopping.set()
        self._sink.hurry()

    def discard(self) -> None:
        """Release everything, after a run or without one."""
        self._lanes.clear()
        with closing(self._sink):
            self._poller.close()

    def run(self) -> None:
        try:
            self._poller.join(
                self._topics, on_assigned=lambda _: None, on_revoked=self._on_revoked, on_lost=self._on_lost
            )
            while not self._stopping.is_set() and self._failure is None:
                self._step()
        except BaseException as error:
            self._failure = self._failure or error
        try:
            self._shut_down()
        except BaseException as error:
            self._failure = self._failure or error
        if self._failure is not None:
            raise self._failure

    def _step(self) -> None:
        with self._lock:
            self._start_due_lanes()
            self._make_room()
            timeout_s = self._poll_timeout_s()
        messages = self._poller.take(self._batch, timeout_s)
        if messages:
            if self._sink.accept(messages):
                self._put(messages)
            else:
                self._read_again(messages)
        if self._must_undo:
            self._undo(keeping=self._poller.assignment())
        elif time.monotonic() - self._committed_at_s >= self._interval_s:
            self._commit(wait=False)
        if time.monotonic() - self._looked_at_s >= _LOOK_EVERY_S:
            self._look()

    def _look(self) -> None:
        self._looked_at_s = time.monotonic()
        with self._lock:
            waiting = {where: at for where, lane in self._lanes.items() if (at := lane.first_waiting) is not None}
        self.monitor.behind(self._poller.lag(waiting))
        self.monitor.tick()

    def _put(self, messages: list[Message]) -> None:
        with self._lock:
            for each in messages:
                self._lanes.setdefault((each.topic, each.partition), PartitionQueue()).put([each])

    def _read_again(self, messages: list[Message]) -> None:
        starts: dict[Where, int] = {}
        for each in messages:
            starts.setdefault((each.topic, each.partition), each.offset)
        mine = self._poller.assignment()
        self._poller.seek({where: offset for where, offset in starts.items() if where in mine})

    # Workers

    def _start_due_lanes(self) -> None:
        if self._stopping.is_set() and not self._sink.must_drain:
            return
        now_ms = _now_ms()
        for lane in self._lanes.values():
            due_ms = lane.next_due_ms()
            if not lane.is_claimed and due_ms is not None and due_ms <= now_ms:
                lane.is_claimed = True
                self._pool.submit(self._work, lane)

    def _work(self, lane: PartitionQueue) -> None:
        """Handle messages of one partition. Results of several may be in flight at once; they are awaited in order."""
        sent: OnTheWay = deque()
        try:
            for _ in range(_RUN):
                with self._lock:
                    is_over = self._failure is not None or (self._stopping.is_set() and not self._sink.must_drain)
                    message = None if is_over else lane.start(_now_ms())
                if message is None:
                    break
                self._handle(lane, message, sent)
            self._await_results(lane, sent)
        except BaseException as error:
            log.debug("a worker ends", exc_info=error)
            with self._lock:
                self._failure = self._failure or error
        finally:
            with self._lock:
                lane.is_claimed = False
                if self._failure is None:
                    # Not left to the polling thread, which may be waiting for messages.
                    self._start_due_lanes()
                self._lock.notify_all()

    def _handle(self, lane: PartitionQueue, message: Message, sent: OnTheWay) -> None:
        if self._tracing is None or (tracer := self._tracing.active) is None:
            self._handle_message(lane, message, sent)
            return
        with tracer.process_record(message, self._policy.group) as span:
            self._handle_message(lane, message, sent, span)

    def _handle_message(
        self, lane: PartitionQueue, message: Message, sent: OnTheWay, span: "ProcessSpan | None" = None
    ) -> None:
        try:
            results = collect(self._call(message))
            self.monitor.handled()
            on_their_way = self._sink.send(results)
        except Exception as error:
            if span is not None:
                span.failed(error)
            if self._await_results(lane, sent):
                self._fail(lane, message, error)
            return
        if self._sink.can_undo:
            self._finish(lane, results)
            return
        with self._lock:
            lane.advance()
        sent.append((message, results, on_their_way))
        if not self._sink.can_run_ahead or lane.one_by_one or lane.failures:
            lane.one_by_one = max(0, lane.one_by_one - 1)
            self._await_results(lane, sent)

    def _await_results(self, lane: PartitionQueue, sent: OnTheWay) -> bool:
        """Await the results of handled messages, in order. False if some were not published, and everything from there
        on is handled again."""
        while sent:
            message, results, on_their_way = sent.popleft()
            try:
                for each in on_their_way:
                    each.result()
            except ClientError as error:
                if self._sink.can_repeat:
                    sent.clear()
                    self._repeat(lane, message, error)
                    return False
                self._save(lane, message, zip(results, on_their_way, strict=True))
            with self._lock:
                lane.settle()
        return True

    def _repeat(self, lane: PartitionQueue, message: Message, error: ClientError) -> None:
        """Handle a message again whose results were not published, and all that were handled after it."""
        with self._lock:
            taken_back = lane.take_back()
        if taken_back > 1:
            # A batch is refused whole: which of its messages is to blame shows when each is alone.
            lane.one_by_one = taken_back
        else:
            self._fail(lane, message, error)

    def _save(
        self, lane: PartitionQueue, message: Message, results: Iterable[tuple[Outgoing, Future[Published]]]
    ) -> None:
        """Some results of a message were not published, and it must not be handled again."""
        try:
            for outgoing, future in results:
                if isinstance(future.exception(), DeliveryFailed):
                    # A batch is refused whole, and nothing of it is stored: which message is to blame shows alone.
                    future = self._sink.send([outgoing])[0]
                future.result()
        except DeliveryFailed as error:
            self._move(message, error, give_up(self._policy, message, error, lane.failures))
        except Unreachable as error:
            # They may be stored: so this is at most once.
            log.warning("the results of %s may be lost: %s", _name(message), error)

    def _fail(self, lane: PartitionQueue, message: Message, error: Exception) -> None:
        """The first message of a partition failed: retry it in place, move it to another topic, or stop."""
        if isinstance(error, Unreachable):
            self.monitor.troubled(error, f"waiting to publish the results of {_name(message)}")
            self._hold(lane, _UNREACHABLE_WAIT_MS, is_failure=False)
            return
        verdict = judge(self._policy, message, error, lane.failures, now_ms=_now_ms(), chance=random.random())
        if isinstance(verdict, RetryInPlace):
            attempt = message.failed_attempts + lane.failures + 1
            limit = "" if self._policy.backoff.attempts is None else f" of {self._policy.backoff.attempts}"
            what = f"{_name(message)} failed at attempt {attempt}{limit} and is tried again in {verdict.delay_ms} ms"
            self.monitor.failed(error, what, "tried again")
            self._hold(lane, verdict.delay_ms, is_failure=True)
            return
        try:
            copy = self._move(message, error, verdict)
        except Unreachable:
            self._hold(lane, _UNREACHABLE_WAIT_MS, is_failure=False)
            return
        self._finish(lane, [copy])

    def _move(self, message: Message, error: Exception, verdict: StopHandling | MoveToTopic) -> Outgoing:
        """Move a message to a retry or dead-letter topic. Returns the copy, which a transaction has yet to publish."""
        is_expected = isinstance(error, Reject)
        if isinstance(verdict, StopHandling):
            self.monitor.failed(error, f"{_name(message)} failed for good", "stopped", is_expected=is_expected)
            raise HandlerFailed(f"{verdict.reason}; there is no dead-letter topic, so nothing is skipped") from error
        topic, attempts = verdict.copy.topic, verdict.attempts
        outcome = f"dead-lettered to {topic}" if verdict.is_dead else f"moved to {topic}"
        what = f"{_name(message)} is {outcome} after attempt {attempts}"
        self.monitor.failed(error, what, outcome, is_expected=is_expected)
        for each in self._sink.send([verdict.copy]):
            each.result()
        return verdict.copy

    def _hold(self, lane: PartitionQueue, delay_ms: int, *, is_failure: bool) -> None:
        with self._lock:
            lane.hold(_now_ms() + delay_ms, is_failure=is_failure)

    def _finish(self, lane: PartitionQueue, results: list[Outgoing]) -> None:
        with self._lock:
            if not any(each is lane for each in self._lanes.values()):
                return  # The partition was lost meanwhile, or its work undone.
            try:
                self._sink.enlist(results)
            except TransactionAborted:
                self._must_undo = True
                lane.is_closed = True
                self._lock.notify_all()
                return
            lane.finish()

    # Room

    def _make_room(self) -> None:
        """Pause partitions that have enough messages waiting (back-pressure). A short wait often makes that
        unnecessary; pausing costs librdkafka what it has prefetched."""
        full = {where for where, lane in self._lanes.items() if len(lane) >= _FULL} - self._paused
        if full:
            self._lock.wait_for(lambda: self._is_urgent() or not self._still_full(full), _WAIT_FOR_ROOM_S)
            full = self._still_full(full)
            self._poller.pause(full)
            self._paused |= full
        roomy = {where for where in self._paused if len(self._lanes.get(where, ())) <= _FULL // 2}
        if roomy:
            self._poller.resume(roomy)
            self._paused -= roomy

    def _still_full(self, where: set[Where]) -> set[Where]:
        return {each for each in where if each in self._lanes and len(self._lanes[each]) > _FULL // 2}

    def _is_urgent(self) -> bool:
        return self._stopping.is_set() or self._failure is not None or self._must_undo

    def _poll_timeout_s(self) -> float:
        timeout_s = _POLL_WHILE_PAUSED_S if self._paused else min(_POLL_S, self._interval_s)
        waiting = [lane.next_due_ms() for lane in self._lanes.values() if not lane.is_claimed]
        due_ms = min((each for each in waiting if each is not None), default=None)
        return timeout_s if due_ms is None else max(0.0, min(timeout_s, (due_ms - _now_ms()) / 1000))

    # Committing, giving up partitions

    def _commit(self, *, wait: bool, giving_up: frozenset[Where] = frozenset()) -> None:
        with self._lock:
            self._committed_at_s = time.monotonic()
            for where in self._poller.uncommitted() & set(self._lanes):
                self._lanes[where].uncommitted()
            found = {where: offset for where, lane in self._lanes.items() if (offset := lane.to_commit()) is not None}
            try:
                self._sink.commit(found, wait=wait)
            except TransactionAborted:
                self._must_undo = True
            else:
                self._aborts = 0
                for where, offset in found.items():
                    self._lanes[where].committed(offset)
        if self._must_undo:
            self._undo(keeping=self._poller.assignment() - giving_up)

    def _undo(self, keeping: set[Where]) -> None:
        """Abort the transaction, and rewind the partitions that stay assigned to the last commit."""
        self._aborts += 1
        if self._aborts > _MAX_ABORTS:
            raise TransactionFailed(f"the transaction was aborted {_MAX_ABORTS} times in a row")
        self._quiesce(set(self._lanes), drain=False)
        with self._lock:
            self._must_undo = False
            bases = {where: lane.base for where, lane in self._lanes.items() if where in keeping}
            starts = self._sink.undo({where: offset for where, offset in bases.items() if offset is not None})
            self._lanes.clear()
            self._poller.resume(self._paused & keeping)
            self._paused.clear()
        self._poller.seek(starts)

    def _quiesce(self, where: set[Where], *, drain: bool) -> None:
        """Wait until no worker handles these partitions: each finishes its message, or with `drain` all of them."""
        with self._lock:
            lanes = [lane for each, lane in self._lanes.items() if each in where]
            if drain:
                self._start_due_lanes()
            else:
                for lane in lanes:
                    lane.is_closed = True
            self._lock.wait_for(lambda: not any(lane.is_claimed for lane in lanes))

    def _on_revoked(self, where: set[Where]) -> None:
        self._quiesce(where, drain=self._sink.must_drain)
        if self._failure is None:
            self._commit(wait=True, giving_up=frozenset(where))
        self._forget(where)

    def _on_lost(self, where: set[Where]) -> None:
        log.warning("partitions were lost to other members: %s", sorted(where))
        if self._sink.can_undo and where & set(self._lanes):
            self._undo(keeping=self._poller.assignment() - where)
        self._forget(where)

    def _forget(self, where: set[Where]) -> None:
        with self._lock:
            for each in where:
                if (lane := self._lanes.pop(each, None)) is not None:
                    lane.is_closed = True
            self._paused -= where

    def _shut_down(self) -> None:
        self.stop()
        try:
            self._quiesce(set(self._lanes), drain=self._sink.must_drain and self._failure is None)
            self._pool.shutdown()
            # After a failure too: what is done is done. A transaction that failed has nothing to commit. Closing the
            # consumer waits for a commit that is on its way.
            if not isinstance(self._failure, TransactionFailed):
                self._commit(wait=False)
        finally:
            self.discard()


def _name(message: Message) -> str:
    return f"{message.topic}/{message.partition}/{message.offset}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
