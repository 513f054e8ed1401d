"""Topics, groups and transactions of a data set, written by real clients."""

import base64
from contextlib import closing, suppress
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from headrace.wire import Cluster
from tests.interop import batches, classic_members, consumer_members, raw_client, share_members
from tests.interop.batches import Record
from tests.interop.share_members import ACCEPT, RELEASE, acquired, part
from tests.upgrade.inventory import CODECS, PATIENCE_S
from tests.waiting import until

START_MS = 1_700_000_000_000
LONG_MS = 100 * 365 * 86_400_000
"""A hundred years."""
SESSION_MS = 1_800_000
KEPT = {"retention.ms": "-1"}


def write_topics(bootstrap: str, cluster: Cluster) -> None:
    write_codecs(bootstrap, cluster)
    write_segments(bootstrap, cluster)
    _write_compacted(bootstrap, cluster)
    cluster.create_topic("stamped", partitions=1, settings={**KEPT, "message.timestamp.type": "LogAppendTime"})
    produce(bootstrap, "stamped", [Record(b"by the broker's clock")])
    cluster.create_topic("deleted", partitions=2)
    produce(bootstrap, "deleted", [Record(b"gone")])
    cluster.delete_topic("deleted")


def produce(bootstrap: str, topic: str, records: list[Record], *, partition: int = 0, codec: str = "none") -> None:
    """As one batch."""
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 200, "acks": "all"})
    for each in records:
        producer.produce(
            topic,
            each.value,
            each.key,
            partition=partition,
            timestamp=max(each.timestamp_ms, 0),
            headers=list(each.headers),
        )
    assert producer.flush(PATIENCE_S) == 0


def write_codecs(bootstrap: str, cluster: Cluster) -> None:
    """A partition for each codec, with everything that a record can be."""
    cluster.create_topic("codecs", partitions=len(CODECS), settings=KEPT)
    for number, codec in enumerate(CODECS):
        odd = [
            Record(b"value", b"key", (("trace", b"\x00\xff"), ("empty", b""), ("null", None)), START_MS),
            Record(None, b"a key without a value", (), START_MS + 1),
            Record(b"", None, (("twice", b"1"), ("twice", b"2")), START_MS + 2),
            Record("Grüße, \u4f60\u597d".encode(), b"", (), START_MS - 10_000),
        ]
        produce(bootstrap, "codecs", odd, partition=number, codec=codec)
        many = [Record(b"%d" % each * 20, b"%d" % (each % 3), (), START_MS + 100 + each) for each in range(8)]
        produce(bootstrap, "codecs", many, partition=number, codec=codec)


def write_segments(bootstrap: str, cluster: Cluster) -> None:
    """Several segments, the first of which are deleted, so that the log begins in the middle of one."""
    cluster.create_topic(
        "segments", partitions=1, settings={**KEPT, "segment.bytes": "1000", "index.interval.bytes": "200"}
    )
    for number in range(40):
        produce(bootstrap, "segments", [Record(b"segment %d" % number, b"k", (), START_MS + number * 1000)])
    cluster.delete_records({("segments", 0): 17})


def _write_compacted(bootstrap: str, cluster: Cluster) -> None:
    """Compacted once, with tombstones; and more that is not compacted yet."""
    settings = {"cleanup.policy": "compact", "segment.bytes": "500", "delete.retention.ms": str(LONG_MS)}
    cluster.create_topic("compacted", partitions=1, settings={**settings, "min.cleanable.dirty.ratio": "0.01"})
    for number in range(30):
        value = None if number % 7 == 6 else b"value %d" % number
        produce(bootstrap, "compacted", [Record(value, b"key %d" % (number % 5), (), START_MS + number)])

    def is_compacted() -> bool:
        found = batches.parse(bytes(cluster.fetch("compacted", 0, 0).records))
        return found[0].base_offset > 10 or len(found) < 15

    until(is_compacted, "compaction")
    # From here on it stays as it is until somebody changes this.
    cluster.set_topic_settings("compacted", {"min.cleanable.dirty.ratio": "1.0"})
    for number in range(30, 36):
        produce(bootstrap, "compacted", [Record(b"value %d" % number, b"key %d" % (number % 5), (), START_MS + number)])


def write_producer(bootstrap: str, cluster: Cluster) -> dict[str, Any]:
    """An idempotent producer. Its last batch is to be known when it is sent again."""
    cluster.create_topic("idempotent", partitions=1, settings=KEPT)
    producer = cluster.init_producer_id()
    with raw_client.Connection(bootstrap) as connection:
        for sequence in range(7):
            batch = batches.batch(
                [Record(b"sequence %d" % sequence, None, (), START_MS + sequence)],
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                base_sequence=sequence,
            )
            answer = raw_client.produce(connection, "idempotent", batch)
            assert answer.error_code == raw_client.Error.none, answer
    return {
        "topic": "idempotent",
        "batch": base64.b64encode(batch).decode(),
        "offset": answer.base_offset,
        "producer id": producer.producer_id,
    }


# -- settings


def write_settings(bootstrap: str, cluster: Cluster, broker_id: int) -> None:
    cluster.set_broker_settings(None, {"num.partitions": "3"})
    cluster.set_broker_settings(broker_id, {"log.retention.ms": str(LONG_MS)})
    set_group(bootstrap, "next-gen", {"consumer.session.timeout.ms": str(SESSION_MS)})
    share = {"share.auto.offset.reset": "earliest", "share.session.timeout.ms": str(SESSION_MS)}
    set_group(bootstrap, "shared", share)


def set_group(bootstrap: str, group: str, settings: dict[str, str]) -> None:
    entries = [ConfigEntry(name, text, incremental_operation=AlterConfigOpType.SET) for name, text in settings.items()]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(PATIENCE_S)


# -- groups


def write_groups(bootstrap: str, cluster: Cluster, *, share: bool = True) -> dict[str, Any]:
    """Groups of every kind, with members and without."""
    consume(bootstrap, "classic", "codecs", {"group.protocol": "classic"})
    consume(bootstrap, "next-gen-left", "codecs", {"group.protocol": "consumer"})
    consume(bootstrap, "deleted-group", "codecs", {"group.protocol": "classic"})
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_consumer_groups(["deleted-group"])["deleted-group"].result(PATIENCE_S)
    cluster.commit_offsets("tool", {("codecs", 1): 7, ("codecs", 2): 0}, metadata="set by a tool, größer")
    with raw_client.Connection(bootstrap) as connection:
        _join_classic(bootstrap)
        member = consumer_members.Member(connection, "next-gen", instance_id="pod-1")
        until(lambda: member.join("codecs").error_code is raw_client.Error.none, "a member of next-gen")
        until(lambda: member.owns() and len(member.numbers()) == len(CODECS), "its assignment")
    cluster.create_topic("work", partitions=1, settings=KEPT)
    return _share(bootstrap, cluster) if share else {}


def consume(bootstrap: str, group: str, topic: str, settings: dict[str, str]) -> None:
    """A member that reads, commits with metadata, and leaves."""
    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": group, **settings})) as consumer:
        consumer.subscribe([topic])
        until(lambda: consumer.poll(0.1) is None and consumer.assignment(), f"an assignment in {group}")
        positions = [TopicPartition(topic, number, 5 + number, metadata=f"{group} {number}") for number in range(3)]
        consumer.commit(offsets=positions, asynchronous=False)


def _join_classic(bootstrap: str) -> None:
    """A static member, which is still there after a restart."""
    member = classic_members.Member(bootstrap, "classic-static", 9, instance_id="host-7")
    with closing(member.connection):
        answer = member.join(session_timeout=SESSION_MS)
        assert answer.error_code is raw_client.Error.none, answer
        assignment = (
            b"\x00\x01" + b"\x00\x00\x00\x01\x00\x06codecs\x00\x00\x00\x02" + b"\x00\x00\x00\x00\x00\x00\x00\x03"
        )
        assigned = [{"member_id": member.member_id, "assignment": assignment + b"\xff\xff\xff\xff"}]
        assert member.sync(assignments=assigned).error_code is raw_client.Error.none
        assert member.commit("codecs", 11) is raw_client.Error.none


def _share(bootstrap: str, cluster: Cluster) -> dict[str, Any]:
    """A share group: of ten records 0 to 3 and 6 are accepted, 4 was released twice, 5 once, the rest is in flight.
    `left` says for the others the how manieth delivery comes next."""
    produce(bootstrap, "work", [Record(b"work %d" % number, None, (), START_MS + number) for number in range(10)])
    topic_id = cluster.metadata(["work"])["work"].topic_id
    assert topic_id is not None
    member = share_members.Member(bootstrap, "shared", topic_id)
    with closing(member.connection):
        until(lambda: member.beat(0, ["work"]).error_code is raw_client.Error.none, "a member of the share group")
        until(lambda: acquired(member.fetch(max_wait=1000)), "records of the share group")
        assert (
            part(member.acknowledge((0, 3, ACCEPT), (4, 5, RELEASE), (6, 6, ACCEPT))).error_code
            is raw_client.Error.none
        )
        until(lambda: acquired(member.fetch(max_wait=1000)), "what was released")
        assert part(member.acknowledge((4, 4, RELEASE))).error_code is raw_client.Error.none
    return {"topic": "work", "group": "shared", "left": {"4": 3, "5": 2, "7": 1, "8": 1, "9": 1}}


# -- transactions


def transactional(bootstrap: str, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": 300_000})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    return producer


def write_transactions(bootstrap: str, cluster: Cluster, partitions: int = 3) -> Producer:
    """Committed and aborted ones, then one that stays open: its producer, to be let go of after the broker's end."""
    cluster.create_topic("txn", partitions=partitions, settings=KEPT)
    for number, is_committed in enumerate((True, False, True)):
        producer = transactional(bootstrap, "ended" if is_committed else "aborted")
        _write_to_all(producer, f"transaction {number}", partitions)
        if is_committed:
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.abort_transaction(PATIENCE_S)
    left_open = transactional(bootstrap, "open")
    _write_to_all(left_open, "never committed", partitions)
    _send_offsets(left_open, bootstrap, "txn-open", 99)
    produce(bootstrap, "txn", [Record(b"outside of transactions", None, (), START_MS)])
    return left_open


def write_decided(bootstrap: str, cluster: Cluster, partitions: int = 3) -> Producer:
    """One that is decided, of which not every marker is written; the broker must be stuck."""
    producer = transactional(bootstrap, "decided")
    _write_to_all(producer, "decided to be committed", partitions)
    _send_offsets(producer, bootstrap, "txn-decided", 42)
    return producer


def decide(producer: Producer, cluster: Cluster) -> None:
    with suppress(KafkaException):
        producer.commit_transaction(2.0)
    until(lambda: cluster.list_transactions(["PrepareCommit"]) == ["decided"], "a decided transaction")


def _write_to_all(producer: Producer, value: str, partitions: int) -> None:
    for number in range(partitions):
        producer.produce("txn", f"{value}, {number}", partition=number, timestamp=START_MS + number)
    assert producer.flush(PATIENCE_S) == 0


def _send_offsets(producer: Producer, bootstrap: str, group: str, offset: int) -> None:
    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": group})) as consumer:
        positions = [TopicPartition("codecs", 0, offset)]
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), PATIENCE_S)
