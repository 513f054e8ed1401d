"""Links between two real brokers: which mirror topics there are, and what is said about them."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from headrace.model.errors import InvalidLink, LinkExists, MirrorNotReady, NotMirrored, SourceUnavailable, UnknownLink
from headrace.model.ids import TopicName
from headrace.model.links import MirrorState
from headrace.testing import Broker
from tests.interop.linked import ask, image, link_to, services
from tests.waiting import until

FAST = {"link.refresh.interval.ms": 100}


@pytest.fixture
def source() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def target() -> Iterator[Broker]:
    with Broker(settings=FAST) as broker:
        yield broker


def create(broker: Broker, *topics: NewTopic) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for made in admin.create_topics(list(topics)).values():
        made.result(30)
    return admin


def test_mirror_topics_follow_the_source(source: Broker, target: Broker) -> None:
    admin = create(
        source,
        NewTopic("orders.a", 2, config={"retention.ms": "5000", "min.insync.replicas": "1"}),
        NewTopic("other", 1),
    )
    ask(target, lambda links: links.create(link_to(source, topics=(r"orders\..*", "__.*"), prefix="eu.")))
    name = TopicName("eu.orders.a")
    until(lambda: name in image(target).topics)
    topic = image(target).topics[name]
    assert (len(topic.partitions), dict(topic.settings)) == (2, {"retention.ms": "5000"})
    mirror = image(target).mirrors[topic.topic_id]
    assert (mirror.source_topic, mirror.state) == ("orders.a", MirrorState.MIRRORING)
    assert mirror.source_topic_id == image(source).topics[TopicName("orders.a")].topic_id
    assert mirror.source_cluster_id == image(source).cluster_id

    admin.create_partitions([NewPartitions("orders.a", 4)])["orders.a"].result(30)
    create(source, NewTopic("orders.b", 1))
    entries = [
        ConfigEntry("retention.ms", "7000", incremental_operation=AlterConfigOpType.SET),
        ConfigEntry("max.message.bytes", "5000", incremental_operation=AlterConfigOpType.SET),
    ]
    changed = ConfigResource(ResourceType.TOPIC, "orders.a", incremental_configs=entries)
    admin.incremental_alter_configs([changed])[changed].result(30)
    settings = {"retention.ms": "7000", "max.message.bytes": "5000"}
    until(lambda: dict(image(target).topics[name].settings) == settings)
    until(lambda: len(image(target).topics[name].partitions) == 4 and len(image(target).mirrors) == 2)
    assert {"eu.orders.a", "eu.orders.b"} == {each for each in image(target).topics if not each.startswith("__")}
    config = ConfigResource(ResourceType.TOPIC, "eu.orders.a")
    reader = AdminClient({"bootstrap.servers": target.bootstrap})
    shown = reader.describe_configs([config])[config].result(30)
    assert shown["mirror.source"].value == f"{image(source).cluster_id}/orders.a"

    report = ask(target, lambda links: links.describe("eu"))
    assert [each.topic for each in report.mirrors] == ["eu.orders.a", "eu.orders.b"]
    assert len(report.mirrors[0].partitions) == 4
    assert report.status.error == ""
    (summary,) = services(target).links.summaries()
    assert (summary.mirrors, summary.faulted, summary.promoted) == (2, 0, 0)


def test_a_mirror_is_not_mirrored_again(source: Broker, target: Broker) -> None:
    create(source, NewTopic("orders", 1))
    ask(target, lambda links: links.create(link_to(source, topics=(".*",))))
    until(lambda: image(target).mirrors)
    create(target, NewTopic("local", 1), NewTopic("local.divergent", 1))
    with Broker(settings=FAST) as third:
        ask(third, lambda links: links.create(link_to(target, topics=(".*",))))
        until(lambda: image(third).mirrors)
        assert TopicName("local") in image(third).topics
        assert TopicName("orders") not in image(third).topics
        assert TopicName("local.divergent") not in image(third).topics


def test_a_topic_that_was_taken_over_does_not_come_back_to_its_origin(source: Broker, target: Broker) -> None:
    """orders of the source, taken over at the target, then mirrored by a third cluster and taken over there, too."""
    create(source, NewTopic("orders", 1))
    ask(target, lambda links: links.create(link_to(source, topics=(".*",), prefix="a.")))
    until(lambda: image(target).mirrors)
    ask(target, lambda links: links.failover("a.orders"))
    create(target, NewTopic("local", 1))
    source_id, target_id = image(source).cluster_id, image(target).cluster_id

    with Broker(settings=FAST) as third:
        ask(third, lambda links: links.create(link_to(target, topics=(".*",), prefix="b.")))
        until(lambda: len(image(third).mirrors) == 2)
        (made,) = (each for each in image(third).mirrors.values() if each.source_topic == "a.orders")
        assert (made.origins, made.link_id) == ((target_id, source_id), image(third).links["eu"].link_id)
        ask(third, lambda links: links.failover("b.a.orders"))
        config = ConfigResource(ResourceType.TOPIC, "b.a.orders")
        reader = AdminClient({"bootstrap.servers": third.bootstrap})
        shown = {name: each.value for name, each in reader.describe_configs([config])[config].result(30).items()}
        assert shown["mirror.source"] == f"{target_id}/a.orders"
        assert shown["mirror.origins"] == f"{target_id},{source_id}"
        assert (shown["mirror.state"], shown["mirror.link"]) == ("stopped", f"eu {made.link_id}")

        create(third, NewTopic("third", 1))
        for name, far in (("eu", target), ("c", third)):
            ask(source, lambda links: links.create(replace(link_to(far, topics=(".*",), prefix="x."), name=name)))  # noqa: B023
        until(lambda: {"x.local", "x.third"} <= image(source).topics.keys())
        problems = {name: ask(source, lambda links: links.describe(name)).status.problems for name in ("eu", "c")}  # noqa: B023
        assert "it was a mirror of this cluster" in problems["eu"]["a.orders"]
        assert "it was a mirror of this cluster" in problems["c"]["b.a.orders"]
        assert not {"x.a.orders", "x.b.a.orders"} & image(source).topics.keys()


def test_a_source_topic_that_was_created_again_or_deleted(source: Broker, target: Broker) -> None:
    admin = create(source, NewTopic("again", 1), NewTopic("gone", 1))
    ask(target, lambda links: links.create(link_to(source, topics=(".*",))))
    until(lambda: len(image(target).mirrors) == 2)
    for deleted in admin.delete_topics(["again", "gone"]).values():
        deleted.result(30)
    create(source, NewTopic("again", 1))
    until(lambda: all(each.state is MirrorState.FAULTED for each in image(target).mirrors.values()))
    reasons = {each.source_topic: each.reason for each in image(target).mirrors.values()}
    assert "created again" in reasons["again"]
    assert "deleted at the source" in reasons["gone"]
    assert {"again", "gone"} <= image(target).topics.keys(), "the data stays"
    with pytest.raises(MirrorNotReady, match="created again"):
        ask(target, lambda links: links.promote("again"))
    planned = ask(target, lambda links: links.failover("again", dry_run=True))
    assert planned.is_dry_run
    assert ask(target, lambda links: links.mirror("again")).mirror.is_read_only
    ask(target, lambda links: links.failover("again"))
    assert not ask(target, lambda links: links.mirror("again")).mirror.is_read_only
    with pytest.raises(NotMirrored, match="any more"):
        ask(target, lambda links: links.failover("again"))


def test_links_are_refused_paused_and_deleted(source: Broker, target: Broker) -> None:
    link = link_to(source, topics=(".*",))
    with pytest.raises(SourceUnavailable, match="no broker answers"):
        ask(target, lambda links: links.create(replace(link, bootstrap=("127.0.0.1:1",))))
    with pytest.raises(InvalidLink, match="very cluster"):
        ask(target, lambda links: links.create(link_to(target)))
    assert ask(target, lambda links: links.create(link, dry_run=True)).source_cluster_id == image(source).cluster_id
    with pytest.raises(UnknownLink):
        ask(target, lambda links: links.describe("eu"))
    made = ask(target, lambda links: links.create(link))
    with pytest.raises(LinkExists):
        ask(target, lambda links: links.create(link))
    ask(target, lambda links: links.pause("eu"))
    assert image(target).links == {"eu": replace(made, is_paused=True)}
    create(source, NewTopic("later", 1))
    ask(target, lambda links: links.resume("eu"))
    until(lambda: image(target).mirrors)
    ask(target, lambda links: links.pause("eu", ["later"]))
    with pytest.raises(MirrorNotReady, match="paused"):
        ask(target, lambda links: links.promote("later"))
    with pytest.raises(InvalidLink, match="failover"):
        ask(target, lambda links: links.delete("eu"))
    ask(target, lambda links: links.failover("later"))
    ask(target, lambda links: links.delete("eu"))
    target.restart()
    assert not image(target).links
    assert [each.state for each in image(target).mirrors.values()] == [MirrorState.STOPPED]


def test_groups_with_members_are_left_alone(source: Broker, target: Broker) -> None:
    create(source, NewTopic("orders", 1))
    producer = Producer({"bootstrap.servers": source.bootstrap})
    producer.produce("orders", b"tea")
    assert producer.flush(30) == 0
    for group in ("idle", "busy"):
        reader = Consumer({"bootstrap.servers": source.bootstrap, "group.id": group})
        reader.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
        reader.close()
    ask(target, lambda links: links.create(replace(link_to(source, topics=("orders",)), is_paused=True)))
    busy = Consumer({"bootstrap.servers": target.bootstrap, "group.id": "busy"})
    create(target, NewTopic("local", 1))
    busy.subscribe(["local"])
    with closing(busy):
        until(lambda: (busy.poll(0.05), busy.assignment())[1])
        ask(target, lambda links: links.resume("eu"))
        idle = Consumer({"bootstrap.servers": target.bootstrap, "group.id": "idle"})
        place = TopicPartition("orders", 0)
        with closing(idle):
            until(lambda: idle.committed([place])[0].offset >= 0)
        busy.poll(0)
        assert busy.committed([place])[0].offset < 0
