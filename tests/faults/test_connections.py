"""Connections that are too many, too slow, idle, or that do not read what they asked for."""

import resource
import struct
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress

import pytest

from tests.faults.watch import MIB, memory_grows_at_most, undisturbed
from tests.interop import batches, raw_client
from tests.interop.subject import Subject

HALF = struct.pack(">i", 500) + raw_client.encode(raw_client.METADATA, 9, {}, correlation_id=1)


def allow_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        if hard < count:
            pytest.skip(f"needs {count} open files, {hard} are allowed")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def flood(broker: Subject, count: int) -> None:
    allow_files(count + 200)
    with undisturbed(broker), memory_grows_at_most(broker, 20 * MIB + count * 20_000):
        connections = []
        for number in range(count):
            one = raw_client.Connection(broker.bootstrap)
            one.send_bytes((b"", b"\x00", b"\x00\x00\x00", HALF)[number % 4])
            connections.append(one)
        with raw_client.Connection(broker.bootstrap) as late:
            assert late.call(raw_client.METADATA, 9, topics=[]).brokers
        for number, one in enumerate(connections):
            if number % 2:
                one.reset()
            else:
                one.close()


def test_a_flood_of_half_open_connections(broker: Subject) -> None:
    flood(broker, 1500)


@pytest.mark.slow
def test_a_larger_flood_again_and_again(broker: Subject) -> None:
    for _ in range(5):
        flood(broker, 5000)


def test_connections_that_come_and_go_leave_nothing_behind(broker: Subject) -> None:
    def turn() -> None:
        for number in range(300):
            one = raw_client.Connection(broker.bootstrap)
            one.send_bytes(HALF)
            if number % 2:
                one.reset()
            else:
                one.close()
        raw_client.advertised(broker.bootstrap)

    turn()
    with memory_grows_at_most(broker, 10 * MIB):
        for _ in range(5):
            turn()


def test_a_request_that_stops_halfway_is_given_up(own_broker: Callable[..., Subject]) -> None:
    broker = own_broker(request_read_timeout_ms="1000")
    with undisturbed(broker), raw_client.Connection(broker.bootstrap) as slow:
        started = time.monotonic()
        slow.send_bytes(HALF)
        assert slow.wait_closed(60)
        assert time.monotonic() - started >= 0.9


def test_a_request_that_drips_in_is_given_up_too(own_broker: Callable[..., Subject]) -> None:
    """One byte now and then keeps a connection from being idle, and must not keep its memory for ever."""
    broker = own_broker(request_read_timeout_ms="1000")
    with undisturbed(broker), raw_client.Connection(broker.bootstrap) as slow:
        slow.send_bytes(HALF)
        end = time.monotonic() + 60
        while not slow.wait_closed(0.2):
            assert time.monotonic() < end
            with suppress(raw_client.Closed):
                slow.send_bytes(b"\x00")


def test_an_idle_connection_is_closed_and_a_waiting_one_is_not(own_broker: Callable[..., Subject]) -> None:
    broker = own_broker(connections_max_idle_ms="2000")
    raw_client.create_topic(broker.bootstrap, "quiet")
    started = time.monotonic()
    with raw_client.Connection(broker.bootstrap) as idle, raw_client.Connection(broker.bootstrap) as waiting:
        pending = waiting.send(raw_client.FETCH, 12, raw_client.fetch_body("quiet", max_wait=6000, min_bytes=1))
        assert idle.wait_closed(60)
        assert time.monotonic() - started >= 1.8
        assert waiting.receive(pending).error_code == raw_client.Error.none


def is_admitted(bootstrap: str) -> bool:
    try:
        with raw_client.Connection(bootstrap) as one:
            one.call(raw_client.METADATA, 9, topics=[])
            return True
    except (raw_client.Closed, OSError):
        return False


@pytest.mark.parametrize("setting", ["max_connections", "max_connections_per_ip"])
def test_no_more_connections_than_allowed(setting: str, own_broker: Callable[..., Subject]) -> None:
    broker = own_broker(**{setting: "20"})
    admitted = []
    for _ in range(20):
        one = raw_client.Connection(broker.bootstrap)
        one.call(raw_client.METADATA, 9, topics=[])
        admitted.append(one)
    assert not is_admitted(broker.bootstrap)
    for one in admitted:
        assert one.call(raw_client.METADATA, 9, topics=[]).brokers
    admitted.pop().close()
    end = time.monotonic() + 60
    while not is_admitted(broker.bootstrap):
        assert time.monotonic() < end
        time.sleep(0.05)
    for one in admitted:
        one.close()


def test_a_client_that_does_not_read_its_answers(broker: Subject, topic: str) -> None:
    """It asks for 4 GB and reads nothing: the broker stops reading from it instead of piling up answers."""
    with raw_client.Connection(broker.bootstrap) as connection:
        for _ in range(20):
            assert (
                raw_client.produce(connection, topic, batches.batch([bytes(1_000_000)])).error_code
                == raw_client.Error.none
            )
    body = raw_client.fetch_body(topic, partition_max_bytes=20 * MIB, max_bytes=20 * MIB)
    frame = raw_client.encode(raw_client.FETCH, 12, body, correlation_id=5)
    request = struct.pack(">i", len(frame)) + frame
    with undisturbed(broker), memory_grows_at_most(broker, 200 * MIB):
        deaf = [raw_client.Connection(broker.bootstrap) for _ in range(4)]
        for one in deaf:
            for _ in range(50):
                one.send_bytes(request)
        assert not any(one.is_silent(60) for one in deaf)
        for one in deaf:
            one.close()


def test_large_requests_together_stay_within_the_budget(own_broker: Callable[..., Subject]) -> None:
    """Eight clients push 60 MB each at a broker that may hold 100 MB of requests: some wait, all are answered."""
    broker = own_broker(queued_max_request_bytes=str(100 * MIB), socket_request_max_bytes=str(80 * MIB))
    raw_client.create_topic(broker.bootstrap, "large")
    frame = raw_client.encode(
        raw_client.PRODUCE, 9, raw_client.produce_body("large", batches.batch([bytes(60 * MIB)])), correlation_id=9
    )
    with undisturbed(broker, slowest_s=40), memory_grows_at_most(broker, 260 * MIB):
        connections = [raw_client.Connection(broker.bootstrap, timeout_s=120) for _ in range(8)]
        data = memoryview(struct.pack(">i", len(frame)) + frame)
        threads = _send_all(connections, data)
        for one in connections:
            answer = one.receive(raw_client.Pending(raw_client.PRODUCE, 9, 9))
            assert answer.responses[0].partition_responses[0].error_code == raw_client.Error.message_too_large
        for thread in threads:
            thread.join()
        for one in connections:
            one.close()


def test_a_client_that_holds_memory_and_does_not_read_is_let_go(own_broker: Callable[..., Subject]) -> None:
    """Half of a large request holds memory, and answers that nobody reads keep the broker from reading the rest."""
    broker = own_broker(
        queued_max_request_bytes=str(100 * MIB),
        socket_request_max_bytes=str(80 * MIB),
        request_read_timeout_ms="5000",
    )
    raw_client.create_topic(broker.bootstrap, "large", 1, {"max.message.bytes": str(30 * MIB)})
    with ExitStack() as stack:
        connection = stack.enter_context(raw_client.Connection(broker.bootstrap, timeout_s=60))
        assert (
            raw_client.produce(connection, "large", batches.batch([bytes(24 * MIB)])).error_code
            == raw_client.Error.none
        )
        body = raw_client.fetch_body("large", partition_max_bytes=50 * MIB, max_wait=60_000, min_bytes=24 * MIB + 100)
        waits = raw_client.encode(raw_client.FETCH, 12, body, correlation_id=1)
        half = struct.pack(">i", 70 * MIB) + bytes(40 * MIB)
        deaf = stack.enter_context(raw_client.Connection(broker.bootstrap))
        deaf.send_bytes(struct.pack(">i", len(waits)) + waits + half)
        # One more record ends the wait of the fetch. Its answer is far larger than the sockets' buffers.
        assert raw_client.produce(connection, "large", batches.batch([bytes(100)])).error_code == raw_client.Error.none
        assert (
            raw_client.produce(connection, "large", batches.batch([bytes(24 * MIB)])).error_code
            == raw_client.Error.none
        )
        end = time.monotonic() + 60
        while "closed the connection" not in broker.stderr:
            assert time.monotonic() < end
            time.sleep(0.05)


def _send_all(connections: list[raw_client.Connection], data: memoryview) -> list[threading.Thread]:
    threads = [threading.Thread(target=one.send_bytes, args=(data,)) for one in connections]
    for thread in threads:
        thread.start()
    return threads
