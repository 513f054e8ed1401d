"""The client of a source cluster, against a real broker over TLS and SASL."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.mirror.link_transport import LinkTransport
from headrace.mirror.source import SourceCluster, SourceOffset, SourceSettings
from headrace.model.errors import SourceUnavailable
from headrace.model.ids import BrokerId
from headrace.model.links import Link
from headrace.testing import Broker

PASSWORD = "a secret"


def asked(link: Link, files: Path, use: Callable[[SourceCluster], Awaitable[None]]) -> None:
    async def run() -> None:
        source = SourceCluster(link, LinkTransport(link, str(files)), Random(1), BrokerId(0))
        try:
            await use(source)
        finally:
            await source.close()

    asyncio.run(run())


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(tls=True, users={"link": PASSWORD}) as running:
        yield running


@pytest.fixture
def link(broker: Broker, tmp_path: Path) -> Link:
    (tmp_path / "password").write_text(PASSWORD + "\n")
    (tmp_path / "ca.pem").write_bytes(Path(str(broker.ca_file)).read_bytes())
    return Link(
        "eu",
        uuid4(),
        ("127.0.0.1:1", broker.bootstrap),
        user="link",
        mechanism="SCRAM-SHA-256",
        password_file="password",
        tls=True,
        ca_file="ca.pem",
    )


def test_topics_settings_and_groups_of_a_source(broker: Broker, link: Link, tmp_path: Path) -> None:
    config = broker.kafka_settings("link")
    admin = AdminClient(config)
    made = admin.create_topics([NewTopic("orders", 3, config={"retention.ms": "5000"}), NewTopic("plain", 1)])
    for each in made.values():
        each.result(30)
    producer = Producer(config)
    producer.produce("orders", b"tea", partition=1)
    assert producer.flush(30) == 0
    consumer = Consumer({**config, "group.id": "shop"})
    consumer.commit(offsets=[TopicPartition("orders", 1, 1)], asynchronous=False)
    consumer.close()

    async def use(source: SourceCluster) -> None:
        await source.refresh()
        assert source.cluster_id
        orders = source.topics["orders"]
        assert [each.leader for each in orders.partitions] == [0, 0, 0]
        assert source.topics["__consumer_offsets"].is_internal
        assert orders.topic_id != source.topics["plain"].topic_id
        before = source.topics
        await asyncio.gather(source.refresh(), source.refresh(), source.refresh())
        assert source.topics is not before
        settings = await source.settings_of(["orders", "plain", "unknown"])
        assert settings == {"orders": SourceSettings({"retention.ms": "5000"}, ""), "plain": SourceSettings({}, "")}
        groups = await source.group_names()
        assert groups == {"shop": 0}
        offsets = await source.group_offsets(groups)
        assert offsets == {"shop": {("orders", 1): SourceOffset(1, -1, "")}}

    asked(link, tmp_path, use)


def test_what_is_wrong_is_said_in_words(link: Link, tmp_path: Path) -> None:
    def words(changed: Link, files: Path = tmp_path) -> str:
        async def use(source: SourceCluster) -> None:
            with pytest.raises(SourceUnavailable) as error:
                await source.refresh()
            said.append(str(error.value))

        said: list[str] = []
        asked(changed, files, use)
        return said[0]

    (tmp_path / "wrong").write_text("no")
    assert "refused the login" in words(replace(link, password_file="wrong"))
    assert "cannot be read" in words(replace(link, password_file="none"))
    (tmp_path / "folder").mkdir()
    assert "cannot be read" in words(replace(link, password_file="../password"), tmp_path / "folder")
    assert "environment variable HEADRACE_LINK_PASSWORD_NONE" in words(
        replace(link, password_file="", password_env="HEADRACE_LINK_PASSWORD_NONE")
    )
    assert "no broker answers at 127.0.0.1:1" in words(replace(link, bootstrap=("127.0.0.1:1",)))
    assert "not trusted" in words(replace(link, ca_file=""))
    assert "not to another-one" in words(replace(link, source_cluster_id="another-one"))
