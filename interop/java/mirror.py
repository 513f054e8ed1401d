"""Kafka's MirrorMaker 2 between Apache Kafka and Headrace, in both directions at once.

The offsets of the copies differ from those at the source, where the first records are deleted before they are copied:
so an offset of a group that is not translated is found.
"""

import struct
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from apache import HERE, Java
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from mirror_maker import MirrorMaker
from report import Report, expect
from tests.interop import raw_client
from tests.interop.subject import KafkaProcess

from headrace.testing.process import BrokerProcess

COORDINATOR_STARTS = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
"""What Kafka answers to the first commits of a new cluster."""
_WITHIN_S = 120.0
_TOPIC = "orders"
_PARTITIONS = 3
_EARLY, _COUNT = 100, 200
"""Records of a partition before MirrorMaker is started, and in the end. Only offsets after the last record that it had
copied when it began with checkpoints are translated."""
_DELETED = (7, 11, 13)
"""Records of each partition that are deleted before: no record is copied to the offset that it has at the source."""
_BEHIND = 40
"""Records that the group has not read in the last partition."""
_SET = {"preallocate": "true", "local.retention.ms": "1000", "retention.ms": "12345678"}
_NOT_IN_KAFKA = {"flush.policy": "os"}
"""A setting of Headrace that Kafka refuses, so MirrorMaker is told to leave it out."""
_EXCLUDED = "min.insync.replicas,follower.replication.throttled.replicas,leader.replication.throttled.replicas,flush.*"
_FLOW = {
    "topics": _TOPIC,
    "groups": "billing-.*",
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": "1",
    "emit.checkpoints.interval.seconds": "1",
    "offset.lag.max": "0",
    "config.properties.exclude": _EXCLUDED,
}


class Side(NamedTuple):
    """A cluster, by the name that MirrorMaker has for it."""

    name: str
    bootstrap: str
    own_settings: dict[str, str]

    @property
    def group(self) -> str:
        """The group that reads there, and goes on elsewhere."""
        return f"billing-{self.name}"

    def copy(self, topic: str = _TOPIC) -> str:
        """The name that a topic of this cluster has elsewhere."""
        return f"{self.name}.{topic}"


class Record(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: tuple[int, int]
    """Its type and the milliseconds."""


class Pair(NamedTuple):
    """Offsets that belong together."""

    upstream: int
    downstream: int


def check_mirror(report: Report, java: Java, scratch: Path) -> None:
    kafka = KafkaProcess(f"{HERE}:{java.libs}", scratch / "mirrored", {})
    try:
        kafka.start()
        with BrokerProcess(scratch / "mirror") as broker:
            sides = Side("kafka", kafka.bootstrap, {}), Side("headrace", broker.bootstrap, _NOT_IN_KAFKA)
            for side in sides:
                _prepare(side)
            flows = {(source.name, target.name): _FLOW for source, target in (sides, sides[::-1])}
            clusters = {side.name: side.bootstrap for side in sides}
            with MirrorMaker(java, scratch, clusters, flows, {"emit.heartbeats.interval.seconds": "1"}):
                for source, target in (sides, sides[::-1]):
                    _check_flow(report, source, target)
                with report.check("MirrorMaker copies no copy back to where it came from"):
                    for side in sides:
                        topics = AdminClient({"bootstrap.servers": side.bootstrap}).list_topics(timeout=30).topics
                        copies = [name for name in topics if name.endswith(f".{_TOPIC}")]
                        expect(len(copies) == 1, copies)
    finally:
        kafka.close()


def _check_flow(report: Report, source: Side, target: Side) -> None:
    where = f"MirrorMaker from {source.name} to {target.name}:"
    with report.check(f"{where} a topic with its partitions and settings"):
        _until_equal(lambda: _settings(target, source.copy()), _SET)
        with raw_client.Connection(target.bootstrap) as connection:
            raw_client.wait_topic(connection, source.copy(), _PARTITIONS)
    with report.check(f"{where} checkpoints, and committed offsets of a group"):
        _until_equal(lambda: _committed(source.group, target, source.copy()), [_EARLY] * _PARTITIONS)
        expect(_checkpoints(source, target) == _pairs(_EARLY, _EARLY, _EARLY), _checkpoints(source, target))
    _write(source, _EARLY, _COUNT)
    with report.check(f"{where} records with keys, headers and timestamps, and null keys and values"):
        wanted = _records(source, _TOPIC)
        expect([len(each) for each in wanted] == [_COUNT] * _PARTITIONS, "the source is not as expected")
        _until_equal(lambda: _records(target, source.copy()), wanted)
    with report.check(f"{where} offset syncs for every partition"):
        until_true(lambda: all(_COUNT - 1 in {each.downstream for each in pairs} for pairs in _syncs(source, target)))
        gaps = [{pair.upstream - pair.downstream for pair in pairs} for pairs in _syncs(source, target)]
        expect(gaps == [{deleted} for deleted in _DELETED], gaps)
    with report.check(f"{where} the offsets of the group follow, and never past what it has read"):
        _commit(source, (_COUNT, _COUNT, _COUNT - _BEHIND))
        _until_equal(lambda: _committed(source.group, target, source.copy())[:2], [_COUNT] * 2)
        # Of offsets in the middle MirrorMaker knows some pairs, and commits at one of them.
        last = _committed(source.group, target, source.copy())[2]
        expect(_EARLY <= last <= _COUNT - _BEHIND, last)
        checkpoints = _checkpoints(source, target)
        expect(checkpoints[:2] == _pairs(_COUNT, _COUNT), checkpoints)
    with report.check(f"{where} the group goes on at the copy and misses nothing"):
        last = _committed(source.group, target, source.copy())[2]
        unread = [record.value for record in _records(source, _TOPIC)[2][last:]]
        seen = _go_on(source.group, target, source.copy(), len(unread))
        expect(len(unread) >= _BEHIND and seen == unread, seen)
    with report.check(f"{where} a setting that is changed, and one that is deleted"):
        _alter(source, ("retention.ms", 0, "7654321"), ("preallocate", 1, None))
        changed = {"local.retention.ms": "1000", "retention.ms": "7654321"}
        _until_equal(lambda: _settings(target, source.copy()), changed)
    with report.check(f"{where} heartbeats"):
        until_true(lambda: len(_read(target, source.copy("heartbeats"), 1)[0]) > 0)


def _prepare(side: Side) -> None:
    """The first records, of which some are deleted, and a group that has read them."""
    raw_client.create_topic(side.bootstrap, _TOPIC, _PARTITIONS, {**_SET, **side.own_settings})
    for partition, deleted in enumerate(_DELETED):
        _send(side, partition, range(-deleted, 0))
    starts = [TopicPartition(_TOPIC, partition, offset) for partition, offset in enumerate(_DELETED)]
    admin = AdminClient({"bootstrap.servers": side.bootstrap})
    for deleted_up_to in admin.delete_records(starts).values():
        deleted_up_to.result(30)
    _write(side, 0, _EARLY)
    _commit(side, (_EARLY, _EARLY, _EARLY))


def _write(side: Side, first: int, end: int) -> None:
    for partition in range(_PARTITIONS):
        _send(side, partition, range(first, end))


def _send(side: Side, partition: int, numbers: range) -> None:
    """Records of every shape, of the last hour."""
    began_ms = round(time.time() * 1000) - 3_600_000
    failed: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": side.bootstrap, "compression.type": "lz4", "linger.ms": 5})
    for number in numbers:
        producer.produce(
            _TOPIC,
            None if number % 10 == 3 else b"%s %d" % (side.name.encode(), number),
            key=None if number % 10 == 4 else b"key-%d" % number,
            headers=[("trace", b"%d" % number), ("empty", b""), ("null", None)] if number % 2 else None,
            partition=partition,
            timestamp=began_ms + number,
            on_delivery=lambda error, _: error and failed.append(error),
        )
    expect(producer.flush(60) == 0 and not failed, failed)


def _commit(side: Side, read: tuple[int, int, int]) -> None:
    """The group has read so many records of each partition."""
    places = [TopicPartition(_TOPIC, at, pair.upstream) for at, pair in enumerate(_pairs(*read))]
    with closing(Consumer({"bootstrap.servers": side.bootstrap, "group.id": side.group})) as consumer:

        def is_committed() -> bool:
            try:
                consumer.commit(offsets=places, asynchronous=False)
            except KafkaException as error:
                reason = error.args[0]
                expect(reason.retriable() or reason.code() in COORDINATOR_STARTS, error)
                return False
            return True

        until_true(is_committed)


def _pairs(*read: int) -> list[Pair]:
    """The offsets of a group that has read so many records of each partition."""
    return [Pair(deleted + count, count) for deleted, count in zip(_DELETED, read, strict=False)]


def _committed(group: str, side: Side, topic: str) -> list[int]:
    places = [TopicPartition(topic, partition) for partition in range(_PARTITIONS)]
    with closing(Consumer({"bootstrap.servers": side.bootstrap, "group.id": group})) as consumer:
        return [place.offset for place in consumer.committed(places, 30)]


def _go_on(group: str, side: Side, topic: str, count: int) -> list[bytes | None]:
    """The values that a member of the group gets from where the group is."""
    seen: list[bytes | None] = []
    settings = {"bootstrap.servers": side.bootstrap, "group.id": group, "auto.offset.reset": "error"}
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe([topic])
        end = time.monotonic() + _WITHIN_S
        while len(seen) < count:
            expect(time.monotonic() < end, f"{len(seen)} of {count} messages")
            for message in consumer.consume(count, 0.5):
                expect(message.error() is None, message.error())
                seen.append(message.value())
    return seen


def _records(side: Side, topic: str) -> list[list[Record]]:
    """Every record of each partition."""
    return [
        [Record(each.key(), each.value(), each.headers() or [], each.timestamp()) for each in messages]
        for messages in _read(side, topic, _PARTITIONS)
    ]


def _read(side: Side, topic: str, partitions: int) -> list[list[Message]]:
    """Every message of each partition, none while there is no such topic."""
    found: list[list[Message]] = [[] for _ in range(partitions)]
    settings = {"bootstrap.servers": side.bootstrap, "group.id": "reader", "enable.partition.eof": True}
    with closing(Consumer({**settings, "auto.offset.reset": "earliest"})) as consumer:
        if topic not in consumer.list_topics(timeout=30).topics:
            return found
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
        ended: set[int] = set()
        while len(ended) < partitions:
            message = consumer.poll(30)
            expect(message is not None, f"{topic}: no message within 30 s")
            if message.error() is None:
                found[message.partition()].append(message)
            else:
                expect(message.error().code() == KafkaError._PARTITION_EOF, message.error())
                ended.add(message.partition())
    return found


def _syncs(source: Side, target: Side) -> list[list[Pair]]:
    """The pairs of offsets that MirrorMaker has stored at the source, by partition."""
    found: list[list[Pair]] = [[] for _ in range(_PARTITIONS)]
    for message in _read(source, f"mm2-offset-syncs.{target.name}.internal", 1)[0]:
        (topic,), rest = _strings(message.key() or b"", 1)
        if topic == _TOPIC:
            found[struct.unpack(">i", rest)[0]].append(Pair(*struct.unpack(">qq", message.value() or b"")))
    return found


def _checkpoints(source: Side, target: Side) -> list[Pair]:
    """The last checkpoint of the group that MirrorMaker has stored at the target, by partition."""
    found: dict[int, Pair] = {}
    for message in _read(target, f"{source.name}.checkpoints.internal", 1)[0]:
        (group, topic), rest = _strings(message.key() or b"", 2)
        if (group, topic) == (source.group, source.copy()):
            _, upstream, downstream = struct.unpack_from(">hqq", message.value() or b"")
            found[struct.unpack(">i", rest)[0]] = Pair(upstream, downstream)
    return [pair for _, pair in sorted(found.items())]


def _strings(data: bytes, count: int) -> tuple[list[str], bytes]:
    """The first strings of a structure of Kafka, and the bytes after them."""
    found = []
    for _ in range(count):
        (size,) = struct.unpack_from(">h", data)
        found.append(data[2 : 2 + size].decode())
        data = data[2 + size :]
    return found, data


def _settings(side: Side, topic: str) -> dict[str, str]:
    """What is set on the copy; nothing while it is not there."""
    resource = {"resource_type": 2, "resource_name": topic, "configuration_keys": None}
    with raw_client.Connection(side.bootstrap) as connection:
        (result,) = connection.call(raw_client.DESCRIBE_CONFIGS, 4, resources=[resource]).results
    return {config.name: config.value for config in result.configs if config.config_source == 1}


def _alter(side: Side, *changes: tuple[str, int, str | None]) -> None:
    configs = [{"name": name, "config_operation": operation, "value": value} for name, operation, value in changes]
    resource = {"resource_type": 2, "resource_name": _TOPIC, "configs": configs}
    with raw_client.Connection(side.bootstrap) as connection:
        (answer,) = connection.call(raw_client.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource]).responses
    expect(answer.error_code == raw_client.Error.none, answer)


def _until_equal(look: Callable[[], object], wanted: object) -> None:
    end = time.monotonic() + _WITHIN_S
    while (found := look()) != wanted:
        expect(
            time.monotonic() < end, f"not within {_WITHIN_S:.0f} s: {str(found)[:500]} in place of {str(wanted)[:500]}"
        )
        time.sleep(0.2)


def until_true(look: Callable[[], bool]) -> None:
    end = time.monotonic() + _WITHIN_S
    while not look():
        expect(time.monotonic() < end, f"not within {_WITHIN_S:.0f} s")
        time.sleep(0.2)
