"""`everywhere=True`: a topic and its mirrors of other clusters, read with one call."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from headrace import Client, Message
from headrace.aio import Client as AsyncClient
from headrace.client.consume.stream import Stream
from headrace.client.kafka import mirrors
from headrace.model.ids import TopicName
from headrace.testing import Broker
from tests.interop.linked import ask, image, link_to
from tests.waiting import until

PATIENCE_S = 30.0
FAST = {"link.refresh.interval.ms": 100}


@pytest.fixture(autouse=True)
def frequent_looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(mirrors, "LOOK_EVERY_S", 0.2)
    yield
    assert not [each for each in threading.enumerate() if each.name == "headrace-mirrors"], "a stream was not closed"


@pytest.fixture
def eu() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def us() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def home() -> Iterator[Broker]:
    with Broker(settings=FAST) as broker:
        yield broker


def publish(broker: Broker, topic: str, *texts: str) -> None:
    with Client(broker.bootstrap) as client:
        for text in texts:
            client.publish(topic, text, partition=0)


def link(home: Broker, source: Broker, name: str, pattern: str = "orders") -> None:
    made = replace(link_to(source, topics=(pattern,), prefix=f"{name}."), name=name)
    ask(home, lambda links: links.create(made))


def take(stream: Stream, count: int) -> list[Message]:
    found: list[Message] = []

    def enough() -> bool:
        found.extend(stream.take(100, 0.1))
        for each in found:
            each.ack()
        return len(found) >= count

    until(enough, timeout_s=PATIENCE_S)
    return found


def told(messages: list[Message]) -> set[tuple[str, str, str]]:
    return {(each.text, each.topic, each.origin_cluster) for each in messages}


def test_a_subscription_reads_mirrors_also_those_that_appear_later(home: Broker, eu: Broker, us: Broker) -> None:
    publish(eu, "orders", "from eu")
    publish(us, "orders", "from us, long ago")
    publish(us, "reorders", "no order")
    publish(home, "orders", "from here")
    publish(home, "my.orders", "of another topic")
    link(home, eu, "eu")
    until(lambda: TopicName("eu.orders") in image(home).topics)
    eu_id, us_id = image(eu).cluster_id, image(us).cluster_id
    expected = {("from here", "orders", ""), ("from eu", "eu.orders", eu_id)}
    with Client(home.bootstrap) as client, client.subscribe("orders", start="earliest", everywhere=True) as every:
        assert told(take(every, 2)) == expected
        with client.subscribe("orders", everywhere=True) as new:
            link(home, us, "us", ".*orders")
            assert told(take(every, 1)) == {("from us, long ago", "us.orders", us_id)}
            publish(us, "orders", "from us, now")
            publish(home, "orders", "from here, now")
            assert told(take(new, 2)) == {("from us, now", "us.orders", us_id), ("from here, now", "orders", "")}
            assert client.topics.mirrors("orders") == {"eu.orders": eu_id, "us.orders": us_id}
            assert told(list(client.replay("orders", everywhere=True))) >= expected
            ask(home, lambda links: links.failover("eu.orders"))
            publish(home, "eu.orders", "after the takeover")
            assert told(take(new, 1)) == {("after the takeover", "eu.orders", eu_id)}
        every.seek(0, 0, "eu.orders")
        assert "from eu" in {each.text for each in take(every, 4)}


def test_a_group_consumes_mirrors_and_creates_no_topic(home: Broker, eu: Broker, us: Broker) -> None:
    publish(eu, "orders", "eu 1")
    publish(us, "orders", "us 1")
    publish(home, "orders", "here 1")
    link(home, eu, "eu")
    until(lambda: TopicName("eu.orders") in image(home).topics)
    with (
        Client(home.bootstrap) as client,
        client.consume("orders", group="billing", everywhere=True) as orders,
    ):
        first = take(orders, 2)
        assert {each.text for each in first} == {"here 1", "eu 1"}
        link(home, us, "us")
        assert told(take(orders, 1)) == {("us 1", "us.orders", image(us).cluster_id)}
        # A mirror topic that is deleted for good does not come back because it is consumed.
        ask(home, lambda links: links.failover("us.orders"))
        ask(home, lambda links: links.delete("us"))
        client.topics.delete("us.orders")
        until(lambda: not orders.take(1, 0.05) and "us.orders" not in orders._poller.origins, timeout_s=PATIENCE_S)
        publish(eu, "orders", "eu 2")
        assert [each.text for each in take(orders, 1)] == ["eu 2"]
        assert TopicName("us.orders") not in image(home).topics


def test_a_handler_gets_the_messages_of_mirrors_and_its_results_are_published_once(home: Broker, eu: Broker) -> None:
    publish(eu, "orders", *(f"eu {number}" for number in range(20)))
    publish(home, "orders", *(f"here {number}" for number in range(20)))
    link(home, eu, "eu")
    seen: list[tuple[str, str]] = []
    with Client(home.bootstrap) as client:

        @client.handler("orders", group="billing", delivery="exactly-once", everywhere=True)
        def bill(order: Message) -> None:
            seen.append((order.text, order.origin_cluster))

        with client.running():
            until(lambda: len(seen) >= 40, timeout_s=PATIENCE_S)
    eu_id = image(eu).cluster_id
    # Of one partition in order.
    assert [each for each in seen if each[1]] == [(f"eu {number}", eu_id) for number in range(20)]
    assert [each for each in seen if not each[1]] == [(f"here {number}", "") for number in range(20)]


def test_asyncio(home: Broker, eu: Broker) -> None:
    publish(eu, "orders", "from eu")
    link(home, eu, "eu")
    until(lambda: TopicName("eu.orders") in image(home).topics)

    async def read() -> tuple[Message, Message]:
        async with AsyncClient(home.bootstrap) as client:
            async with client.subscribe("orders", start="earliest", everywhere=True) as orders:
                first = await anext(orders)
            async with client.consume("orders", group="billing", everywhere=True) as orders:
                second = await anext(orders)
            assert await client.topics.mirrors("orders") == {"eu.orders": image(eu).cluster_id}
            return first, second

    for message in asyncio.run(asyncio.wait_for(read(), PATIENCE_S)):
        assert told([message]) == {("from eu", "eu.orders", image(eu).cluster_id)}


def test_without_everywhere_nothing_is_looked_up(home: Broker, eu: Broker) -> None:
    publish(eu, "orders", "from eu")
    publish(home, "orders", "from here")
    link(home, eu, "eu")
    until(lambda: TopicName("eu.orders") in image(home).topics)
    with Client(home.bootstrap) as client, closing(client.replay("orders")) as orders:
        assert told(list(orders)) == {("from here", "orders", "")}
