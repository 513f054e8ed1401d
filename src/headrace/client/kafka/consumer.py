"""A librdkafka consumer behind the few calls that the rest of the SDK makes. Only `commit` is thread-safe."""

import time
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headrace.client.errors import ClientError, ConsumeFailed
from headrace.client.kafka.librdkafka import TRANSIENT, UNREACHABLE, consume_error, create_client, explain, log
from headrace.client.kafka.mirrors import Mirrors, MirrorWatch
from headrace.client.message import Message, PayloadReader, ProcessScopes
from headrace.client.threads import within

Where = tuple[str, int]
"""Topic and partition."""

Positions = Mapping[Where, int]

_LOOKUP_TIMEOUT_S = 30.0
_LOOK_AGAIN_S = 0.05
_CLOSE_TIMEOUT_S = 20.0
_TOO_NEW = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError._UNKNOWN_PARTITION,
}
_REFUSED = UNREACHABLE | {
    KafkaError._NO_OFFSET,
    KafkaError._STATE,
    KafkaError._DESTROY,
    KafkaError._WAIT_COORD,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._ASSIGNMENT_LOST,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}
"""A commit that fails so may be retried later: no broker answers, a rebalance is in progress, a topic was deleted."""


class PartitionConsumer:
    """Reads the partitions that the group assigns to this member, or that `assign` names."""

    def __init__(self, config: dict[str, Any], watch: MirrorWatch | None = None) -> None:
        """With `watch`, the mirrors that it finds are read as well."""
        self.watch = watch
        self.origins: Mirrors = {}
        """The mirror topics that are read because of `watch`, and the topics named that are mirrors."""
        self._subscribe: Callable[[], None] | None = None
        self.bootstrap: str = config["bootstrap.servers"]
        self.consumer = create_client(Consumer, {"on_commit": self._on_commit, **config})
        self._warned: set[int] = set()
        self._taken: list[Message] = []
        self._failure: ClientError | None = None
        """What is raised when the messages before it have been returned."""
        self._paused: set[Where] = set()
        self._uncommitted: set[Where] = set()
        self._is_closed = False
        self.process: ProcessScopes | None = None
        self.reader: PayloadReader | None = None
        """Makes the scopes of `with message:`; None where messages have none."""
        self.at_end: dict[Where, int] = {}
        """The offset at which each partition had no more to read, where `enable.partition.eof` is on."""

    def join(
        self,
        topics: list[str],
        *,
        on_assigned: Callable[[set[Where]], None],
        on_revoked: Callable[[set[Where]], None],
        on_lost: Callable[[set[Where]], None],
    ) -> None:
        """Become a member of the group. The callbacks run inside `take` and `close`: `on_revoked` while the partitions
        are still assigned to us, `on_lost` when another member may have them already."""

        def passing_on(
            callback: Callable[[set[Where]], None], *, is_end: bool
        ) -> Callable[[Any, list[TopicPartition]], None]:
            def call(_: Any, partitions: list[TopicPartition]) -> None:
                where = {(each.topic, each.partition) for each in partitions}
                if is_end:
                    self._drop(where)
                    # librdkafka would remember it, and read nothing when they come back.
                    self.resume(self._paused & where)
                callback(where)

            return call

        def subscribe() -> None:
            self.consumer.subscribe(
                [*topics, *sorted(self.origins.keys() - set(topics))],
                on_assign=passing_on(on_assigned, is_end=False),
                on_revoke=passing_on(on_revoked, is_end=True),
                on_lost=passing_on(on_lost, is_end=True),
            )

        if self.watch is not None:
            self.origins, self._subscribe = self.watch.start(), subscribe
        subscribe()

    def _follow_mirrors(self, watch: MirrorWatch) -> None:
        """Subscribe to mirrors that were found since the last call, and no longer to those that were deleted."""
        if self._subscribe is not None and watch.found is not self.origins:
            self.origins = watch.found
            self._subscribe()

    def take(self, maximum: int, timeout_s: float, ack: Callable[[Message], None] | None = None) -> list[Message]:
        """Messages as soon as there are any, up to `maximum`; none after `timeout_s`.

        All of them are of partitions that are ours when it returns. So messages are asked for one by one: in the midst
        of a batch librdkafka may serve a rebalance and return what it took before.
        """
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        try:
            if self.watch is not None:
                self._follow_mirrors(self.watch)
            wait_s = 0.0 if self._taken else timeout_s
            while len(self._taken) < maximum and (raw := self.consumer.poll(wait_s)) is not None:
                wait_s = 0.0
                if not self._is_error(raw):
                    self._taken.append(self._message(raw, ack))
        except (KafkaException, ConsumeFailed) as error:
            if isinstance(error, KafkaException):
                failure = consume_error(error, self.bootstrap, "reading failed")
            else:
                failure = error
            if not self._taken:
                raise failure from None
            self._failure = failure
        # If a callback has raised something above, what was read before is returned when this is called again.
        taken, self._taken = self._taken, []
        return taken

    def _drop(self, where: set[Where]) -> None:
        self._taken = [each for each in self._taken if (each.topic, each.partition) not in where]

    def _is_error(self, raw: Any) -> bool:
        error = raw.error()
        if error is None:
            self._warned.clear()
            return False
        if error.code() == KafkaError._PARTITION_EOF:
            self.at_end[raw.topic(), raw.partition()] = raw.offset()
            return True
        if error.fatal() or error.code() not in TRANSIENT:
            raise ConsumeFailed(f"reading failed: {explain(error, self.bootstrap, reading=raw.topic())}")
        if error.code() not in self._warned:
            self._warned.add(error.code())
            log.warning("reading goes on by itself after: %s", explain(error, self.bootstrap))
        return True

    def commit(self, positions: Positions, *, wait: bool) -> bool:
        """Commit the next offset to read of each partition. False if that failed in a way that passes, or because the
        partitions are no longer ours; raises when it is not allowed. Waits for a broker that does not answer for as
        long as the group's session lasts. Without `wait`, True says only that it is sent; `close` waits for it."""
        if not positions:
            return True
        if self._is_closed:
            return False
        offsets = [TopicPartition(topic, index, offset) for (topic, index), offset in positions.items()]
        try:
            results = self.consumer.commit(offsets=offsets, asynchronous=not wait)
        except KafkaException as failure:
            if failure.args[0].code() in _REFUSED:
                return False
            raise consume_error(failure, self.bootstrap, "committing offsets failed") from None
        for each in results or ():
            if each.error is not None:
                if each.error.code() in _REFUSED:
                    return False
                text = explain(each.error, self.bootstrap)
                raise ConsumeFailed(f"committing the offset of {each.topic}/{each.partition} failed: {text}")
        return True

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            reason = error or each.error
            if reason is not None:
                self._uncommitted.add((each.topic, each.partition))
                if reason.code() not in _REFUSED:
                    text = explain(reason, self.bootstrap)
                    log.warning("committing the offset of %s/%d failed: %s", each.topic, each.partition, text)

    def uncommitted(self) -> set[Where]:
        """The partitions whose asynchronous commits have failed since the last call."""
        found, self._uncommitted = self._uncommitted, set()
        return found

    def seek(self, positions: Positions) -> None:
        self._drop(set(positions))
        for (topic, index), offset in positions.items():
            place = TopicPartition(topic, index, offset)
            # A partition that was just assigned cannot seek before it has fetched the committed offset of the group.
            self._look_up(
                f"seeking in {topic}/{index}", self.consumer.seek, place, again=_TOO_NEW | {KafkaError._STATE}
            )

    def pause(self, where: set[Where]) -> None:
        """Pause these partitions; a partition that is revoked is no longer paused."""
        if where:
            self._paused |= where
            self.consumer.pause([TopicPartition(*each) for each in where])

    def resume(self, where: set[Where]) -> None:
        if where:
            self._paused -= where
            self.consumer.resume([TopicPartition(*each) for each in where])

    def assign(self, positions: Positions) -> None:
        """Read these partitions from these offsets, outside of any group, in addition to those assigned before."""
        self.consumer.incremental_assign([TopicPartition(*where, offset) for where, offset in positions.items()])

    def unassign(self, where: set[Where]) -> None:
        """Read these partitions no longer."""
        self._drop(where)
        self.consumer.incremental_unassign([TopicPartition(*each) for each in where])

    def assignment(self) -> set[Where]:
        return {(each.topic, each.partition) for each in self.consumer.assignment()}

    def lag(self, waiting: Positions) -> int:
        """The lag of the assigned partitions as of the last fetch responses; `waiting` has the first offset of each
        partition whose messages were read and are not done. Sends no request."""
        places = [TopicPartition(*where) for where in self.assignment()]
        total = 0
        for place in self.consumer.position(places) if places else ():
            bounds = self.consumer.get_watermark_offsets(place, cached=True)
            next_offset = waiting.get((place.topic, place.partition), place.offset)
            if bounds is not None and next_offset >= 0:
                total += max(0, bounds[1] - next_offset)
        return total

    def partitions(self, topic: str, timeout_s: float = _LOOKUP_TIMEOUT_S) -> list[Where]:
        """The partitions of a topic; none if there is no such topic."""
        try:
            found = self.consumer.list_topics(topic, timeout_s).topics[topic]
        except KafkaException as failure:
            raise consume_error(failure, self.bootstrap, f"finding the partitions of {topic} failed") from None
        return [(topic, index) for index in sorted(found.partitions)]

    def at_time(self, where: Iterable[Where], timestamp_ms: int) -> dict[Where, int]:
        """The first offset of each partition at or after a time; the end where there is none."""
        wanted = [TopicPartition(*each, timestamp_ms) for each in where]
        found = self._look_up("finding offsets by time", self.consumer.offsets_for_times, wanted, _LOOKUP_TIMEOUT_S)
        ends = [(each.topic, each.partition) for each in found if each.offset < 0]
        offsets = {(each.topic, each.partition): int(each.offset) for each in found}
        return offsets | {each: self.bounds(each)[1] for each in ends}

    def committed(self, where: Iterable[Where]) -> dict[Where, int]:
        """The positions that the group has committed, where it has."""
        asked = [TopicPartition(*each) for each in where]
        if not asked:
            return {}
        found = self._look_up("finding what is committed", self.consumer.committed, asked, _LOOKUP_TIMEOUT_S)
        for each in found:
            if each.error is not None:
                raise ConsumeFailed(f"finding what is committed failed: {explain(each.error, self.bootstrap)}")
        return {(each.topic, each.partition): int(each.offset) for each in found if each.offset >= 0}

    def bounds(self, where: Where) -> tuple[int, int]:
        """The first offset of a partition and the one after the last, as the broker has them now."""
        what = f"finding the bounds of {where[0]}/{where[1]}"
        asked = TopicPartition(*where)
        low, high = self._look_up(what, self.consumer.get_watermark_offsets, asked, _LOOKUP_TIMEOUT_S)
        return low, high

    def _look_up(self, what: str, call: Callable[..., Any], *args: Any, again: Container[int] = _TOO_NEW) -> Any:
        """Send a request, and retry while a new topic is unknown to its leader."""
        deadline_s = time.monotonic() + _LOOKUP_TIMEOUT_S
        while True:
            try:
                return call(*args)
            except KafkaException as failure:
                if failure.args[0].code() not in again or time.monotonic() > deadline_s:
                    raise consume_error(failure, self.bootstrap, f"{what} failed") from None
            time.sleep(_LOOK_AGAIN_S)

    def group_metadata(self) -> Any:
        return self.consumer.consumer_group_metadata()

    def close(self) -> None:
        """Leave the group; runs `on_revoked` first."""
        if not self._is_closed:
            self._is_closed = True
            if self.watch is not None:
                self.watch.close()
            try:
                within(_CLOSE_TIMEOUT_S, self.consumer.close)
            except TimeoutError:
                log.warning("librdkafka does not close a consumer: the group will miss it when its session is over")

    def _message(self, raw: Any, ack: Callable[[Message], None] | None) -> Message:
        _, timestamp_ms = raw.timestamp()
        topic: str = raw.topic()
        where = (topic, raw.partition(), raw.offset())
        headers, time_ms, origin = tuple(raw.headers() or ()), max(timestamp_ms, 0), self.origins.get(topic, "")
        return Message(*where, raw.value(), raw.key(), headers, time_ms, origin, ack, self.process, self.reader)
