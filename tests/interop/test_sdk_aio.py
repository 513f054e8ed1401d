"""The SDK for asyncio against a real broker."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace import Backoff, HandlerFailed, Message, Outgoing
from headrace.aio import Client

from .quick import broker  # noqa: F401
from .subject import Subject

Test = Callable[[Client], Coroutine[Any, Any, None]]


@pytest.fixture
def run(broker: Subject) -> Callable[[Test], None]:
    """Run a coroutine with a client, in an event loop of its own."""

    async def with_client(test: Test) -> None:
        async with Client(broker.bootstrap) as client:
            await asyncio.wait_for(test(client), 200)

    return lambda test: asyncio.run(with_client(test))


async def texts(client: Client, topic: str) -> list[str]:
    return [message.text async for message in client.replay(topic)]


def test_publish_and_replay(run: Callable[[Test], None], topic: str) -> None:
    async def test(client: Client) -> None:
        stored = await asyncio.gather(*(client.publish(topic, str(number)) for number in range(200)))
        assert sorted(each.offset for each in stored) == list(range(200))
        assert sorted(await texts(client, topic)) == sorted(str(number) for number in range(200))

    run(test)


def test_subscribe_and_seek(run: Callable[[Test], None], topic: str) -> None:
    start = datetime(2026, 1, 31, tzinfo=UTC)

    async def test(client: Client) -> None:
        async with client.subscribe(topic) as stream:
            for hour in range(5):
                await client.publish(topic, str(hour), timestamp=start + timedelta(hours=hour))
            assert (await anext(stream)).text == "0"
            await stream.seek_to_time(start + timedelta(hours=3))
            assert (await anext(stream)).text == "3"
            await stream.seek(0, 1)
            assert (await anext(stream)).text == "1"
            stream.stop()

    run(test)


def test_what_is_not_acknowledged_comes_again(run: Callable[[Test], None], topic: str) -> None:
    async def test(client: Client) -> None:
        for number in range(6):
            await client.publish(topic, str(number))
        async with client.consume(topic, "aio") as stream:
            for _ in range(3):
                client.ack(await anext(stream))
            assert (await anext(stream)).text == "3"
        async with client.consume(topic, "aio") as stream:
            assert (await anext(stream)).text == "3"

    run(test)


def test_a_cancelled_wait_loses_no_message(run: Callable[[Test], None], topic: str) -> None:
    async def test(client: Client) -> None:
        async with client.consume(topic, "patient") as stream:
            for number in range(5):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(stream), 0.05)
                await client.publish(topic, str(number))
                message = await asyncio.wait_for(anext(stream), 60)
                assert message.text == str(number)
                client.ack(message)

    run(test)


def test_a_message_that_nobody_has_seen_is_not_committed(run: Callable[[Test], None], topic: str) -> None:
    async def test(client: Client) -> None:
        async with client.consume(topic, "unseen", "exactly-once") as stream:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(stream), 0.05)
            await client.publish(topic, "0")
            # The stream reads it for the one who was cancelled, or nobody does before it is closed.
            await asyncio.sleep(0.5)
        async with client.consume(topic, "unseen", "exactly-once") as stream:
            assert (await asyncio.wait_for(anext(stream), 60)).text == "0"

    run(test)


def test_cancelling_what_opens_a_stream_leaves_nothing_behind(run: Callable[[Test], None], topic: str) -> None:
    async def test(client: Client) -> None:
        await client.publish(topic, "0")
        opening = asyncio.create_task(client.consume(topic, "cancelled-early", "exactly-once").open())
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening

    run(test)


def test_handlers_run_as_coroutines_and_as_functions(run: Callable[[Test], None], topic: str) -> None:
    async def test(client: Client) -> None:
        for number in range(10):
            await client.publish(topic, str(number))
        handled: list[str] = []

        @client.handler(topic, group="coroutine", retry=Backoff(initial_s=0.01), dead_letter=f"{topic}.dlq")
        async def shout(message: Message) -> Outgoing:
            await asyncio.sleep(0)
            if message.text == "4":
                raise ValueError("no fours")
            return Outgoing(f"{topic}.out", message.text + "!")

        @client.handler(f"{topic}.out", group="function")
        def collect(message: Message) -> None:
            handled.append(message.text)
            if len(handled) == 10:
                client.stop()

        await client.publish(f"{topic}.out", "first")
        await client.run()
        assert set(handled) == {"first"} | {f"{number}!" for number in range(10) if number != 4}
        assert await texts(client, f"{topic}.dlq") == ["4"]

    run(test)


def test_a_failing_handler_ends_run_and_cancelling_finishes_the_message_in_hand(
    run: Callable[[Test], None], topic: str
) -> None:
    async def test(client: Client) -> None:
        await client.publish(topic, "x")

        @client.handler(topic, group="fails", retry=Backoff(attempts=1))
        async def fail(message: Message) -> None:
            raise ValueError("broken")

        with pytest.raises(HandlerFailed, match="broken"):
            await client.run()

    async def cancel(client: Client) -> None:
        started, ended = asyncio.Event(), asyncio.Event()

        @client.handler(topic, group="cancelled")
        async def slow(message: Message) -> None:
            started.set()
            await asyncio.sleep(0.5)
            ended.set()

        task = asyncio.create_task(client.run())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()

    run(test)
    run(cancel)
