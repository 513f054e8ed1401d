"""Periodic functions of the SDK on a real broker, and `headrace schedule`."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from headrace import Client, NoSuchQueue, Reject, aio
from headrace.testing.process import BrokerProcess
from tests.waiting import until

from .subject import SELDOM


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings=SELDOM) as running:
        yield running


def test_a_function_gets_its_due_times(broker: BrokerProcess) -> None:
    dues: list[datetime] = []
    calls: list[int] = []
    with Client(broker.bootstrap) as client:

        @client.every("100 ms", missed="all", name="ticks")
        def tick(due: datetime) -> None:
            dues.append(due)

        @client.cron("* * * * * *", timezone="Asia/Kathmandu", name="zoned")
        def zoned(due: datetime) -> None:
            calls.append(round(due.utcoffset().total_seconds()) if due.utcoffset() is not None else 0)  # type: ignore[union-attr]

        with client.running():
            until(lambda: len(dues) >= 5 and calls)
        assert {b - a for a, b in pairwise(dues)} == {timedelta(milliseconds=100)}
        assert set(calls) == {20_700}


def test_coroutines_and_the_name_of_a_function(broker: BrokerProcess) -> None:
    async def run() -> None:
        came = asyncio.Event()
        async with aio.Client(broker.bootstrap) as client:

            @client.every(0.1)
            async def beat() -> None:
                came.set()

            async with client.running(), asyncio.timeout(60):
                await came.wait()
            names = [each.name for each in await client.schedules.list()]
            name = "tests.interop.test_sdk_schedules.test_coroutines_and_the_name_of_a_function.run.beat"
            assert name in names
            assert await client.schedules.remove(name) == 0

    asyncio.run(run())


def test_a_changed_rule_is_in_force_with_the_next_start(broker: BrokerProcess) -> None:
    for rule in ("100 ms", "1 day"):
        with Client(broker.bootstrap) as client:
            client.every(rule, name="changing")(lambda: None)
            with client.running():
                (found,) = (each for each in client.schedules.list() if each.name == "changing")
                assert found.rule == f"every {rule}"
    with Client(broker.bootstrap) as client:
        queue = client.queue("schedules.changing")
        until(lambda: not queue.counts().available)
        last = queue.counts().last_due_at_ms
        assert queue.receive(wait=0.5) == []
        assert queue.counts().last_due_at_ms == last


def test_a_run_that_fails_is_listed_run_again_and_removed(broker: BrokerProcess) -> None:
    attempts: list[datetime] = []

    def headrace(*args: str) -> str:
        command = [sys.executable, "-m", "headrace", "schedule", *args, "--bootstrap", broker.bootstrap]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    with Client(broker.bootstrap) as client:

        @client.cron("0 0 1 1 *", timezone="Europe/Berlin", name="yearly")
        def yearly(due: datetime) -> None:
            attempts.append(due)
            raise Reject("not in this year")

        with client.running():
            assert "as soon as" in headrace("run", "yearly")
            dead = client.queue("schedules-dead.yearly")
            until(lambda: dead.counts().available == 1)
        (found,) = (each for each in json.loads(headrace("list", "--json")) if each["name"] == "yearly")
        assert (found["rule"], found["failed"], found["waiting"], found["last_due"]) == ("cron 0 0 1 1 *", 1, 0, None)
        assert found["next_due"].endswith("-01-01T00:00:00+01:00")
        assert "1 failed run" in subprocess.run(
            [sys.executable, "-m", "headrace", "schedule", "remove", "yearly", "-y", "--bootstrap", broker.bootstrap],
            check=True, capture_output=True, text=True,
        ).stderr  # fmt: skip
        with pytest.raises(NoSuchQueue):
            client.schedules.run("yearly")
    assert len(attempts) == 1


def test_a_queue_with_a_schedule_of_its_own_name(broker: BrokerProcess) -> None:
    """What `list` shows can be run and removed; the queue's other messages stay."""
    with Client(broker.bootstrap) as client:
        rule = {"queue.schedule": "cron 0 0 1 1 *", "queue.schedule.missed": "all"}
        queue = client.queue("own-reports").create(settings=rule)
        queue.send("another message")
        (found,) = (each for each in client.schedules.list() if each.queue == "own-reports")
        client.schedules.run(found.name)
        until(lambda: queue.counts().available == 2)
        assert client.schedules.remove(found.name) == 0
        assert "own-reports" not in [each.name for each in client.schedules.list()]
        assert queue.counts().available == 2
        for name in ("own-reports", "schedules.own-reports", "none-at-all"):
            with pytest.raises(NoSuchQueue):
                client.schedules.run(name)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda client: client.every("5 fortnights")(print), "not a period"),
        (lambda client: client.every(0.01, name="x")(print), "from 100 ms"),
        (lambda client: client.cron("0 25 * * *", name="x")(print), "bad hour"),
        (lambda client: client.cron("0 6 * * *", timezone="Mars", name="x")(print), "not a time zone"),
        (lambda client: client.every("1 day", missed="never", name="x")(print), "skip, once or all"),
        (lambda client: client.every("1 day", name="a b")(print), "letters"),
        (lambda client: [client.every("1 day", name="x")(print) for _ in range(2)], "two functions"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(call, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call(Client("localhost:1"))
