"""A link whose source cluster is run by an attacker: its answers are refused or bounded, and everything else works."""

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID, uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headrace.mirror.append_budget import BATCHES_MAX
from headrace.model.errors import InvalidLink, SourceUnavailable
from headrace.model.ids import TopicName
from headrace.model.image import INTERNAL_TOPICS
from headrace.model.links import MAX_SOURCE_EPOCH, Link, MirrorState
from headrace.testing import Broker
from tests.attacks.hostile_source import HostileSource, batch
from tests.interop.linked import ask, image
from tests.interop.raw_client import API_VERSIONS, DESCRIBE_CONFIGS, FETCH, LIST_GROUPS, LIST_OFFSETS, METADATA, Error
from tests.waiting import until as _until

PATIENCE_S = 30.0
STALL_S = 2.0
"""The event loop of a broker may not stand still for as long as this: its lease would be in danger."""
END = 2**63 - 1
T = TypeVar("T")


@pytest.fixture
def source() -> Iterator[HostileSource]:
    with HostileSource() as hostile:
        yield hostile


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"link.refresh.interval.ms": 100}) as running:
        yield running


@pytest.fixture
def target(broker: Broker) -> Iterator[Broker]:
    """The broker, without links and mirrors afterwards."""
    yield broker
    for name in tuple(image(broker).links):
        ask(broker, lambda links: links.pause(name))  # noqa: B023
        for mirror in tuple(image(broker).mirrors.values()):
            if mirror.is_read_only:
                topic = image(broker).topic_names[mirror.topic_id]
                ask(broker, lambda links: links.failover(topic))  # noqa: B023
        ask(broker, lambda links: links.delete(name))  # noqa: B023


def until(look: Callable[[], T]) -> T:
    return _until(look, timeout_s=PATIENCE_S)


def link_to(source: HostileSource, **changes: Any) -> Link:
    """Mirrors with a prefix of their own, so that each test has other topics."""
    made = Link("eu", UUID(int=0), (source.bootstrap,), topics=(".*",), prefix=uuid4().hex[:8])
    return replace(made, **changes)


def create(target: Broker, link: Link) -> Link:
    return ask(target, lambda links: links.create(link))


def note(target: Broker, topic: str) -> str:
    """What is said about a mirror topic; empty while it is not there."""
    if TopicName(topic) not in image(target).topics:
        return ""
    return "; ".join(ask(target, lambda links: links.mirror(topic)).errors)


def ends(target: Broker, topic: str) -> tuple[int, int]:
    with_group = {"bootstrap.servers": target.bootstrap, "group.id": "none"}
    consumer = Consumer(with_group)
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), 30)
    finally:
        consumer.close()


def is_usable(target: Broker) -> bool:
    """True if a client of the broker is served at once."""
    began_s = time.monotonic()
    producer = Producer({"bootstrap.servers": target.bootstrap})
    producer.produce("own", b"x")
    return producer.flush(30) == 0 and time.monotonic() - began_s < STALL_S


@pytest.mark.parametrize(
    ("records", "words"),
    [
        (b"\xff" * 100, "without a whole batch"),
        (batch(0)[:-1] + b"\xff", "checksum"),
        (batch(-5), "without a whole batch"),
        (batch(0, epoch=-1), "not read from a log"),
        (batch(END - 1), "not read from a log"),
        (batch(2**53), "not read from a log"),
    ],
    ids=["no batch", "checksum", "before the log", "no epoch", "last offset", "high offset"],
)
def test_damaged_batches_are_not_appended(source: HostileSource, target: Broker, records: bytes, words: str) -> None:
    source.records = lambda *_: {"records": records, "high_watermark": 9, "last_stable_offset": 9}
    topic = create(target, link_to(source)).prefix + "orders"
    until(lambda: source.requests.count(FETCH) > 5)
    assert words in until(lambda: note(target, topic))
    assert ends(target, topic) == (0, 0)
    # The source behaves again, and nothing has to be repaired here.
    source.records = lambda _, offset: (
        {"records": batch(0), "high_watermark": 1, "last_stable_offset": 1} if offset == 0 else {}
    )
    until(lambda: ends(target, topic) == (0, 1))


def test_a_damaged_batch_does_not_empty_a_log_that_starts_inside_it(source: HostileSource, target: Broker) -> None:
    is_honest = False
    good = batch(0) + batch(1)

    def records(_: int, offset: int) -> dict[str, Any]:
        if offset == 0:
            return {"records": good, "high_watermark": 2, "last_stable_offset": 2, "log_start_offset": 2}
        wrong = bytearray(batch(-7 if not is_honest else 2))
        wrong[23:27] = (8).to_bytes(4, "big")
        return {"records": bytes(wrong), "high_watermark": 3, "last_stable_offset": 3, "log_start_offset": 2}

    source.records = records
    topic = create(target, link_to(source)).prefix + "orders"
    until(lambda: note(target, topic))
    assert ends(target, topic)[1] == 2, "the end of a log never goes back"


def test_offsets_that_no_log_has_are_no_lag(source: HostileSource, target: Broker) -> None:
    source.partitions = 4
    source.records = lambda *_: {"high_watermark": END, "last_stable_offset": END}
    topic = create(target, link_to(source)).prefix + "orders"
    assert "offsets 0 to" in until(lambda: note(target, topic))
    source.records = lambda *_: {"high_watermark": END, "last_stable_offset": 0}
    until(lambda: "wait for the end of a transaction" in note(target, topic))
    source.records = lambda *_: {"high_watermark": -1, "last_stable_offset": -1}
    until(lambda: "offsets 0 to -1" in note(target, topic))
    source.records = lambda *_: {"high_watermark": 2**53, "last_stable_offset": 2**53}
    until(lambda: ask(target, lambda links: links.mirror(topic)).lag_messages == 2**53)
    with urllib.request.urlopen(f"{target.http_url}/api/v1/links/eu", timeout=30) as answer:
        assert json.load(answer)["topics"][0]["lag_messages"] == 2**53


def test_a_source_that_has_lost_the_offset_says_which_ones_it_has(source: HostileSource, target: Broker) -> None:
    source.records = lambda *_: {"error_code": Error.offset_out_of_range}
    source.answers[LIST_OFFSETS] = lambda _: {"topics": []}
    topic = create(target, link_to(source)).prefix + "orders"
    until(lambda: "0 partitions in an answer" in note(target, topic))

    def offset(request: Any) -> dict[str, Any]:
        (asked,) = request.topics
        found = END if asked.partitions[0].timestamp == -2 else -5
        return {"topics": [{"name": asked.name, "partitions": [{"partition_index": 0, "offset": found}]}]}

    source.answers[LIST_OFFSETS] = offset
    until(lambda: f"offsets {END} to -5" in note(target, topic))
    assert ends(target, topic) == (0, 0)


def test_thousands_of_tiny_batches_and_segments_do_not_stop_the_broker(source: HostileSource, target: Broker) -> None:
    assert is_usable(target)

    def records(offset: int, step: int) -> dict[str, Any]:
        """Each batch belongs into a segment of its own, by its offset or by its time."""
        found = [batch(offset + step * each, at_ms=1000 + each * 10**12) for each in range(3000)]
        return {"records": b"".join(found), "high_watermark": 2**53, "last_stable_offset": 2**53}

    for number, step in enumerate((2**32, 1)):
        source.records = lambda _, offset: records(offset, step)  # noqa: B023
        create(target, link_to(source, name=f"eu{number}"))
        asked = source.requests.count(FETCH)
        until(lambda: source.requests.count(FETCH) > asked + 3)  # noqa: B023
        assert is_usable(target)


def test_an_answer_of_many_batches_is_taken_in_turns(source: HostileSource, target: Broker) -> None:
    total = 3 * BATCHES_MAX
    everything = [batch(offset, b"") for offset in range(total)]
    source.records = lambda _, offset: {
        "records": b"".join(everything[offset:]),
        "high_watermark": total,
        "last_stable_offset": total,
    }
    topic = create(target, link_to(source)).prefix + "orders"
    until(lambda: TopicName(topic) in image(target).topics)
    until(lambda: ends(target, topic)[1] == total)
    assert is_usable(target)


def test_leader_epochs_leave_room_for_those_here(source: HostileSource, target: Broker) -> None:
    source.leader_epoch = 2**31 - 1
    link = create(target, link_to(source))
    assert "leader epoch" in until(lambda: ask(target, lambda links: links.describe("eu")).status.problems)["orders"]
    # It becomes high only later, in its metadata and its batches.
    source.leader_epoch = 5
    topic = link.prefix + "orders"
    until(lambda: TopicName(topic) in image(target).topics)
    source.leader_epoch = 2**31 - 1
    source.records = lambda *_: {
        "records": batch(0, epoch=2**31 - 1),
        "high_watermark": 1,
        "last_stable_offset": 1,
    }
    until(lambda: "waits for the leader epoch" in note(target, topic))
    ask(target, lambda links: links.failover(topic))
    (state,) = image(target).topics[TopicName(topic)].partitions
    assert state.leader_epoch < MAX_SOURCE_EPOCH
    producer = Producer({"bootstrap.servers": target.bootstrap})
    producer.produce(topic, b"here")
    assert producer.flush(30) == 0


def test_epochs_of_batches_may_fall(source: HostileSource, target: Broker) -> None:
    source.leader_epoch = 5
    log = [batch(0, epoch=5), batch(1, epoch=2), batch(2, epoch=5)]
    source.records = lambda _, offset: {
        "records": b"".join(log[offset:]),
        "high_watermark": 3,
        "last_stable_offset": 3,
    }
    topic = create(target, link_to(source)).prefix + "orders"
    until(lambda: TopicName(topic) in image(target).topics)
    until(lambda: ends(target, topic) == (0, 3))
    ask(target, lambda links: links.failover(topic))
    producer = Producer({"bootstrap.servers": target.bootstrap})
    producer.produce(topic, b"here")
    assert producer.flush(30) == 0


def test_names_of_topics_are_no_paths_and_no_internal_topics(source: HostileSource, target: Broker) -> None:
    bad = ["../../etc/x", "..", "a/b", "\x1b[2Jx", "a\nb", "x" * 300, "", "ü"]
    internal = sorted(INTERNAL_TOPICS)
    source.topics = {name: uuid4() for name in (*bad, *internal, "zebra")}
    create(target, link_to(source, prefix=""))
    until(lambda: TopicName("zebra") in image(target).topics)
    mirrored = {image(target).topic_names[each] for each in image(target).mirrors if each in image(target).topic_names}
    assert not mirrored.intersection((*bad, *internal))
    assert not set(ask(target, lambda links: links.describe("eu")).status.problems).intersection(bad)
    with pytest.raises(InvalidLink, match="internal"):
        create(target, link_to(source, name="other", prefix="__consumer_"))


@pytest.mark.slow
def test_topics_that_cannot_be_mirrored_hold_up_no_others(source: HostileSource, target: Broker) -> None:
    many = {f"a{number:04}": uuid4() for number in range(1100)}
    source.topics = {**many, "zebra": uuid4()}

    def settings(request: Any) -> dict[str, Any]:
        seen.append(len(request.resources))
        names = [each.resource_name for each in request.resources]
        refused = [
            {"error_code": Error.topic_authorization_failed, "resource_type": 2, "resource_name": name}
            for name in names
            if name in many
        ]
        allowed = [{"resource_type": 2, "resource_name": name} for name in names if name not in many]
        return {"results": refused + allowed}

    seen: list[int] = []
    source.answers[DESCRIBE_CONFIGS] = settings
    link = create(target, link_to(source))
    until(lambda: TopicName(link.prefix + "zebra") in image(target).topics)
    assert max(seen) <= 200
    problems = ask(target, lambda links: links.describe("eu")).status.problems
    assert len(problems) <= 1000


@pytest.mark.parametrize(
    ("key", "answer", "words"),
    [
        (METADATA, lambda source: b"\x00" * 40, "source cluster"),
        (METADATA, lambda source: source.metadata(cluster_id=None), "no cluster id"),
        (METADATA, lambda source: source.metadata(cluster_id="a,b\n" * 9000), "no cluster id"),
        (
            METADATA,
            lambda source: source.metadata(
                brokers=[{"node_id": each, "host": "127.0.0.1", "port": 1} for each in range(2000)]
            ),
            "2,000 brokers",
        ),
        (METADATA, lambda source: b"\x00" * (17 * 1024 * 1024), "more than the 16,777,216 that are read"),
        (API_VERSIONS, lambda source: b"\x00" * (1024 * 1024), "ApiVersions has"),
        (API_VERSIONS, lambda source: b"", "is no broker"),
    ],
    ids=["no metadata", "no id", "long id", "brokers", "long metadata", "long versions", "no versions"],
)
def test_answers_about_a_cluster_that_are_refused(
    source: HostileSource, target: Broker, key: int, answer: Callable[[HostileSource], Any], words: str
) -> None:
    source.answers[key] = lambda _: answer(source)
    with pytest.raises(SourceUnavailable, match=words) as refused:
        create(target, link_to(source))
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 500
    assert is_usable(target)


def test_addresses_of_brokers_that_cannot_be_are_left_out(source: HostileSource, target: Broker) -> None:
    real = {"node_id": 0, "host": "127.0.0.1", "port": source.port}
    odd = [
        {"node_id": 1, "host": "127.0.0.1", "port": -1},
        {"node_id": 2, "host": "127.0.0.1", "port": 70_000},
        {"node_id": 3, "host": "", "port": 9092},
        {"node_id": 4, "host": "x" * 10_000, "port": 9092},
        {"node_id": -2, "host": "127.0.0.1", "port": 1},
    ]
    source.answers[METADATA] = lambda _: source.metadata(brokers=[*odd, real])
    topic = create(target, link_to(source)).prefix + "orders"
    until(lambda: TopicName(topic) in image(target).topics)
    assert not ask(target, lambda links: links.describe("eu")).status.error


@pytest.mark.slow
def test_metadata_of_many_partitions_do_not_stop_the_broker(source: HostileSource, target: Broker) -> None:
    assert is_usable(target)
    create(target, link_to(source))
    parts = [{"partition_index": index, "leader_id": 0} for index in range(100_000)]
    huge = source.metadata(topics=[{"name": "huge", "topic_id": uuid4(), "partitions": parts}])
    source.answers[METADATA] = lambda _: huge
    asked = source.requests.count(METADATA)
    until(lambda: source.requests.count(METADATA) > asked + 1)
    assert is_usable(target)
    problems = until(lambda: ask(target, lambda links: links.describe("eu")).status.problems)
    assert "max.partitions.per.topic" in problems["huge"]


def test_a_source_that_does_not_answer_holds_up_no_other_link(source: HostileSource, target: Broker) -> None:
    with HostileSource() as honest:
        source.answers[LIST_GROUPS] = lambda _: _never(source)
        honest.topics = {"payments": uuid4()}
        create(target, link_to(source))
        other = create(target, link_to(honest, name="other"))
        topic = TopicName(other.prefix + "payments")
        until(lambda: topic in image(target).topics)
        until(lambda: LIST_GROUPS in source.requests)
        asked = honest.requests.count(LIST_GROUPS)
        until(lambda: honest.requests.count(LIST_GROUPS) > asked + 3)
        assert image(target).mirrors[image(target).topics[topic].topic_id].state is MirrorState.MIRRORING


def _never(source: HostileSource) -> bytes:
    """Answer when the connection is gone."""
    while not source.is_closed.wait(0.2):
        pass
    return b""
