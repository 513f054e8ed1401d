"""Topics made, changed and deleted by the SDK."""

import asyncio
import uuid
from collections.abc import Iterator

import pytest

from headrace import Client, NoSuchTopic, TopicFailed, aio

from .quick import broker  # noqa: F401
from .subject import Subject


@pytest.fixture
def client(broker: Subject) -> Iterator[Client]:
    with Client(broker.bootstrap) as one:
        yield one


@pytest.fixture
def name() -> str:
    return f"administered-{uuid.uuid4().hex[:8]}"


def test_the_life_of_a_topic(client: Client, name: str) -> None:
    client.topics.create(name, partitions=6, settings={"retention.ms": 86_400_000, "preallocate": False})
    assert client.topics.list(name) == [name]
    found = client.topics.describe(name)
    assert [each.partition for each in found.partitions] == list(range(6))
    assert all(each.leader in each.in_sync for each in found.partitions)
    assert found.replicas == 1
    assert found.changed["retention.ms"] == "86400000"
    assert found.settings["cleanup.policy"] == "delete"
    client.topics.alter(name, partitions=8, settings={"cleanup.policy": "compact"}, unset=["retention.ms"])
    found = client.topics.describe(name)
    assert len(found.partitions) == 8
    assert found.changed["cleanup.policy"] == "compact"
    assert "retention.ms" not in found.changed
    assert client.publish(name, "x", key="k", partition=7).partition == 7
    client.topics.delete(name)
    assert client.topics.list(name) == []


def test_what_is_refused_says_why(client: Client, name: str) -> None:
    with pytest.raises(NoSuchTopic, match="there is no topic of this name"):
        client.topics.describe(name)
    with pytest.raises(NoSuchTopic):
        client.topics.delete(name)
    client.topics.delete(name, missing_ok=True)
    with pytest.raises(NoSuchTopic):
        client.topics.alter(name, settings={"retention.ms": 1})
    # None of these has made it.
    assert client.topics.list(name) == []
    client.topics.create(name)
    with pytest.raises(TopicFailed) as caught:
        client.topics.create(name, partitions=3)
    assert caught.value.code == "TOPIC_ALREADY_EXISTS"
    client.topics.create(name, partitions=3, exist_ok=True)
    with pytest.raises(TopicFailed, match=r"did you mean retention\.ms\?"):
        client.topics.alter(name, settings={"retention.mss": 1})
    with pytest.raises(ValueError, match="partitions must be at least 1"):
        client.topics.create(f"{name}-none", partitions=0)


def test_topics_with_asyncio(broker: Subject, name: str) -> None:
    async def test() -> None:
        async with aio.Client(broker.bootstrap) as client:
            await client.topics.create(name, partitions=2)
            await client.topics.create(name, exist_ok=True)
            await client.topics.alter(name, partitions=3, settings={"retention.ms": 3_600_000})
            found = await client.topics.describe(name)
            assert (len(found.partitions), found.changed["retention.ms"]) == (3, "3600000")
            assert await client.topics.list(name) == [name]
            await client.topics.delete(name)
            with pytest.raises(NoSuchTopic):
                await client.topics.delete(name)

    asyncio.run(test())
