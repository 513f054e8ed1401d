"""The pictures of the documentation: `make screenshots` writes docs/images.

`SCREENSHOTS` is `all`, or the names of some: `SCREENSHOTS=overview,group`.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
from confluent_kafka import Consumer

from headrace.testing.process import BrokerProcess
from tests.waiting import until

from . import sample
from .conftest import PHONE, OpenTab

pytestmark = pytest.mark.skipif("SCREENSHOTS" not in os.environ, reason="make screenshots makes them")

IMAGES = Path(__file__).parents[2] / "docs" / "images"
SIZE = {"width": 1280, "height": 800}
TALL = {"width": 1280, "height": 935}
MOST_BYTES = 150_000
FLOW_S = 90
"""How long messages flow before the first picture, so that charts have lines."""

PICTURES = {
    "overview": "/ui",
    "topics": "/ui/topics",
    "topic": "/ui/topics/orders",
    "messages": "/ui/topics/orders/messages?from=earliest&json_path=%24.status&json_equals=paid",
    "groups": "/ui/groups",
    "group": "/ui/groups/billing",
    "queues": "/ui/queues",
    "queue": "/ui/queues/jobs",
    "dead-letters": "/ui/queues/jobs/dead-letters",
    "transactions": "/ui/transactions",
    "schemas": "/ui/schemas",
    "schema": "/ui/schemas/shipments-value",
    "schema-diff": "/ui/schemas/shipments-value/compare?from=1&to=2",
    "clients": "/ui/clients",
    "pipelines": "/ui/pipelines",
    "pipeline": "/ui/pipelines/enrich-orders",
    "cluster": "/ui/cluster",
    "security": "/ui/security/explain?user=alice&operation=read&resource=topic&name=orders",
}
DARK = ("overview", "group")
ON_A_PHONE = ("overview", "topics")


@pytest.fixture(scope="module")
def flowing(broker: BrokerProcess) -> Iterator[BrokerProcess]:
    """The sample broker, with orders that come in and are consumed all the time."""
    stop = Event()

    def produce() -> None:
        number = sample.ORDERS
        while not stop.wait(0.2):
            count = 60 + number // 40 % 50
            sample.produce_orders(broker, count, first=number)
            number += count
            sample.report_pipeline(broker)

    def consume() -> None:
        settings = {"bootstrap.servers": broker.bootstrap, "group.id": "search-indexer", "client.id": "indexer-1"}
        consumer = Consumer({**settings, "auto.offset.reset": "earliest", "auto.commit.interval.ms": 500})
        consumer.subscribe(["orders"])
        while not stop.is_set():
            consumer.consume(500, 0.2)
        consumer.close()

    threads = [Thread(target=produce), Thread(target=consume)]
    for each in threads:
        each.start()
    stop.wait(FLOW_S)
    yield broker
    stop.set()
    for each in threads:
        each.join()


@pytest.mark.timeout(600)
def test_pictures(new_tab: OpenTab, flowing: BrokerProcess) -> None:
    IMAGES.mkdir(exist_ok=True)
    wanted = [(name, "light", TALL if name == "overview" else SIZE, "") for name in PICTURES]
    wanted += [(name, "dark", SIZE, "-dark") for name in DARK]
    wanted += [(name, "light", PHONE, "-phone") for name in ON_A_PHONE]
    chosen = os.environ["SCREENSHOTS"]
    for name, theme, size, suffix in wanted:
        if chosen != "all" and name not in chosen.split(","):
            continue
        tab = new_tab(flowing, theme=theme, size=size)
        page = tab.open(PICTURES[name])
        page.wait_for_timeout(2500)
        file = IMAGES / f"dashboard-{name}{suffix}.png"
        page.screenshot(path=file)
        assert file.stat().st_size < MOST_BYTES, file


@pytest.fixture(scope="module")
def regions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    """Two clusters: the first has taken over orders of the second, and mirrors its other topics."""
    folders = [tmp_path_factory.mktemp(name) for name in ("us", "eu")]
    fast = {"link.refresh.interval.ms": 500}
    with BrokerProcess(folders[0], settings=fast) as here, BrokerProcess(folders[1], settings=fast) as there:
        names = ("orders", "payments", "shipments", "refunds")
        sample.create_topics(there, dict.fromkeys(names, 3))
        for name in names:
            sample.produce_orders(there, 2000, topic=name)
        sample.post(here, "/api/v1/links", {"name": "eu", "bootstrap": [there.bootstrap], "topics": [".*"]})
        until(lambda: sample.get(here, "/api/v1/links/eu/topics")["total"] == len(names))
        until(lambda: all(row["lag_messages"] == 0 for row in sample.get(here, "/api/v1/links/eu/topics")["items"]))
        sample.post(here, "/api/v1/mirrors/orders/failover", {})
        sample.produce_orders(there, 7)
        sample.post(there, "/api/v1/links", {"name": "us", "bootstrap": [here.bootstrap], "topics": ["orders"]})
        until(lambda: sample.get(there, "/api/v1/links/us/figures")["problem_count"])
        yield here, there


@pytest.mark.timeout(300)
def test_pictures_of_links(new_tab: OpenTab, regions: tuple[BrokerProcess, BrokerProcess]) -> None:
    chosen = os.environ["SCREENSHOTS"].split(",")
    here, there = regions
    if {"all", "link"}.intersection(chosen):
        page = new_tab(here, size=SIZE).open("/ui/links/eu")
        page.wait_for_timeout(7000)
        page.screenshot(path=IMAGES / "dashboard-link.png")
    if {"all", "link-reverse"}.intersection(chosen):
        page = new_tab(there, size=SIZE).open("/ui/links/us")
        page.get_by_role("button", name="Reverse orders").click()
        page.get_by_text("would be set aside in").wait_for()
        page.wait_for_timeout(1000)
        page.screenshot(path=IMAGES / "dashboard-link-reverse.png")
    assert all(file.stat().st_size < MOST_BYTES for file in IMAGES.glob("dashboard-link*.png"))
