"""`headrace work` with a client for asyncio, and with brokers whose HTTP API the user cannot use."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import Client
from headrace.testing import Broker
from tests.waiting import until

from .work_command import WorkCommand

_ASYNC = """
import asyncio
from headrace.aio import Client as AioClient

client = AioClient()

@client.queue("async").worker(concurrency=2)
async def work(message):
    await asyncio.sleep(0.01)
    print("handled", message.text, flush=True)

@client.handler("async-orders", group="async")
async def bill(order):
    print("billed", order.text, flush=True)
"""

_COUNTED = """
import time

client = Client(http="http://127.0.0.1:1")

@client.handler("counted", group="counted")
def work(message):
    time.sleep(0.02)
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as one:
        yield one


def test_a_client_for_asyncio(broker: Broker, tmp_path: Path) -> None:
    with Client(broker.bootstrap) as client:
        queue = client.queue("async").create()
        client.topics.create("async-orders", partitions=1)
        client.publish("async-orders", "tea")
        queue.send("one")
        with WorkCommand(tmp_path, broker, _ASYNC) as work:
            work.said("handled one")
            work.said("billed tea")
            work.stop()
            assert work.process.wait(60) == 0
        until(lambda: (found := queue.counts()).available + found.in_flight == 0)


@pytest.mark.slow
def test_without_the_http_api_the_members_say_the_lag(broker: Broker, tmp_path: Path) -> None:
    with Client(broker.bootstrap) as client:
        client.topics.create("counted", partitions=3)
        for number in range(900):
            client.publish_soon("counted", str(number), partition=number % 3)
    with WorkCommand(tmp_path, broker, _COUNTED, "--target-seconds", "1") as work:
        assert "it has 3 partitions" in work.said("-> 3 processes")
