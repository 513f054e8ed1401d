"""Messages on their way from one queue to another: in one of them for receivers, and in one in the end, wherever the
broker was killed in between, and however late it came back."""

import asyncio
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.coordinator.machine import InternalRecord
from headrace.model.errors import BacklogFull, InvalidMessage, NotInFlight, QueueUnavailable
from headrace.model.ids import TopicName
from headrace.model.queue_wire import Filter
from headrace.queues.api import ReceiveOptions
from headrace.queues.host.queue import HostedQueue
from headrace.queues.move.transfer import TransferStream
from headrace.queues.service import QueueService
from headrace.queues.state_store import ReplicatedState
from headrace.records.batch import read_header
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.runtime.clock import SystemClock
from tests.unit.queues.brokers import QueueBroker
from tests.waiting import until_async

BODIES = ["a", "b", "c"]


class Later(SystemClock):
    """Long after everything that is remembered for five minutes is forgotten."""

    def wall_ms(self) -> int:
        return super().wall_ms() + 20 * 60 * 1000


# -- killed


@contextmanager
def _copied_at_each_step(folder: Path) -> Iterator[list[Path]]:
    """Copies of a broker's folder, as it is found when the broker is killed then: after each write of a queue's state,
    and when a page was sent and nobody has heard of it."""
    copies: list[Path] = []
    write, send = ReplicatedState.write, QueueService._send_records

    def copy() -> None:
        copies.append(folder.with_name(f"killed-{len(copies)}"))
        # Another thread may be renaming one of these just now.
        shutil.copytree(folder, copies[-1], ignore=shutil.ignore_patterns("*.tmp"))

    async def write_and_copy(self: ReplicatedState, queue: str, term: int, entries: Sequence[InternalRecord]) -> None:
        await write(self, queue, term, entries)
        copy()

    async def send_and_copy(self: QueueService, name: str, records: Sequence[Record]) -> None:
        await send(self, name, records)
        copy()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReplicatedState, "write", write_and_copy)
        patch.setattr(QueueService, "_send_records", send_and_copy)
        yield copies


Part = Callable[[QueueBroker], None]


def _killed_at_each_step(folder: Path, prepare: Part, run: Part) -> int:
    """Kill a broker at each step of what `run` does, and look whether each message is there once, when it was taken up
    again after a while. How many steps there were."""
    data = folder / "data"
    with_it = QueueBroker(data)
    try:
        prepare(with_it)
        with _copied_at_each_step(data) as copies:
            with_it.restart()
            run(with_it)
    finally:
        with_it.close()
    for copy in copies:
        after = QueueBroker(copy, Later())
        try:
            _each_is_there_once(after)
        finally:
            after.close()
        shutil.rmtree(copy)
    return len(copies)


def _each_is_there_once(broker: QueueBroker) -> None:
    async def run() -> None:
        while True:
            moves = await broker.queues.moves("from")
            found = [each for name in ("from", "to") for each in await broker.queues.peek(name, Filter())]
            if {move.status for move in moves} <= {"COMPLETED"} and {each.state for each in found} == {"available"}:
                break
            await asyncio.sleep(0.01)
        assert sorted(each.body.decode() for each in found) == BODIES

    broker.run(run())


def _in_pages_of_two(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("headrace.queues.move.transfer.PAGE_MESSAGES", 2)


@pytest.mark.parametrize("kind", ["fifo", pytest.param("standard", marks=pytest.mark.slow)])
def test_a_move_that_is_killed_at_any_step(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _in_pages_of_two(monkeypatch)

    def prepare(broker: QueueBroker) -> None:
        for name in ("from", "to"):
            broker.create(name, type=kind)
        broker.send("from", *BODIES, group="g")

    def move(broker: QueueBroker) -> None:
        broker.run(broker.queues.start_move("from", "to", Filter()))
        assert broker.ended_move("from").moved == 3

    assert _killed_at_each_step(tmp_path, prepare, move) >= 6


def test_a_dead_letters_that_is_killed_at_any_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _in_pages_of_two(monkeypatch)

    def prepare(broker: QueueBroker) -> None:
        broker.create("to")
        broker.create("from", max_receives="1", dead_letter="to")
        broker.send("from", *BODIES)

    def die(broker: QueueBroker) -> None:
        broker.receive("from", visibility_ms=1)

        async def until_all_are_there() -> None:
            while (await broker.queues.counts("to")).available < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.005)

        broker.run(until_all_are_there())

    assert _killed_at_each_step(tmp_path, prepare, die) >= 4


# -- on the way


def _transfer(broker: QueueBroker, source: str) -> TransferStream:
    """Of the moves out of a queue."""
    return broker.queues._queues[broker.services.metadata.image.topics[TopicName(source)].topic_id].move_tasks._transfer


def _led(broker: QueueBroker, source: str) -> HostedQueue:
    return broker.queues._queues[broker.services.metadata.image.topics[TopicName(source)].topic_id].hosted


@pytest.mark.parametrize("kind", ["standard", "fifo"])
def test_nobody_receives_what_is_on_its_way(broker: QueueBroker, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source, destination = broker.create(type=kind), broker.create(type=kind)
    broker.send(source, *BODIES, group="g")
    received = broker.receive(source, 3)
    broker.run(broker.queues.extend(source, [(each.receipt, 0) for each in received]))
    queues = broker.queues
    began, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(name: str, records: Sequence[Record]) -> None:
        await queues._send_records(name, records)
        began.set()
        await go_on.wait()

    monkeypatch.setattr(_transfer(broker, source), "_send", slowly)

    async def run() -> None:
        move = await queues.start_move(source, destination, Filter())
        await began.wait()
        # The copies are there, the originals are not done.
        assert await queues.receive(source, ReceiveOptions(10)) == []
        counts = await queues.counts(source)
        assert (counts.available, counts.in_flight) == (0, 3)
        (failure,) = await queues.acknowledge(source, [received[0].receipt])
        assert isinstance(failure, NotInFlight)
        assert len(await queues.receive(destination, ReceiveOptions(10))) == 3
        # To cancel it is to let this page arrive.
        assert (await queues.cancel_move(move.id)).status == "CANCELLING"
        go_on.set()

    broker.run(run())
    assert broker.ended_move(source).moved == 3
    assert broker.bodies(source) == []


def test_a_group_with_something_in_flight_or_hidden_stays(broker: QueueBroker) -> None:
    source, destination = broker.create(type="fifo"), broker.create(type="fifo")
    for group in "ghi":
        broker.send(source, f"{group}1", f"{group}2", group=group)
    first, *_ = broker.receive(source, 1)
    (second,) = broker.receive(source, 1)
    assert (first.body, second.body) == (b"g1", b"h1")
    broker.run(broker.queues.nack(source, [(second.receipt, 600_000, "later")]))
    broker.run(broker.queues.start_move(source, destination, Filter()))
    assert broker.ended_move(source).moved == 2
    assert broker.bodies(destination) == ["i1", "i2"]
    broker.acknowledge(source, first)
    assert broker.bodies(source) == ["g2"]


@pytest.mark.parametrize("error", [QueueUnavailable("try again"), RuntimeError("a bug")])
def test_a_page_whose_fate_is_unknown_is_sent_until_it_is_known(
    broker: QueueBroker, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, destination = broker.create(), broker.create()
    broker.send(source, *BODIES)
    sent: list[int] = []

    async def fails_twice(name: str, records: Sequence[Record]) -> None:
        sent.append(len(records))
        await broker.queues._send_records(name, records)
        if len(sent) < 3:
            raise error

    monkeypatch.setattr(_transfer(broker, source), "_send", fails_twice)
    broker.run(broker.queues.start_move(source, destination, Filter()))
    move = broker.ended_move(source)
    assert (move.status, move.moved, sent) == ("COMPLETED", 3, [3, 3, 3])
    assert broker.bodies(destination) == BODIES
    assert broker.bodies(source) == []


def test_a_page_that_may_have_arrived_is_not_taken_back_when_there_is_no_room(
    broker: QueueBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = broker.create()
    destination = broker.create(max_backlog_messages="3", max_backlog_policy="refuse")
    broker.send(source, *BODIES)
    refused: list[Exception] = []

    async def fails_first(name: str, records: Sequence[Record]) -> None:
        try:
            await broker.queues._send_records(name, records)
        except BacklogFull as error:
            refused.append(error)
            raise
        if not refused:
            raise QueueUnavailable("the answer is lost")

    monkeypatch.setattr(_transfer(broker, source), "_send", fails_first)
    broker.run(broker.queues.start_move(source, destination, Filter()))
    broker.run(until_async(lambda: bool(refused)))
    assert broker.bodies(source) == []
    received = broker.receive(destination)
    broker.acknowledge(destination, *received)
    assert broker.ended_move(source).moved == 3
    assert [each.body.decode() for each in received] == BODIES
    assert broker.bodies(destination) == broker.bodies(source) == []


def test_what_a_queue_refuses_stays(broker: QueueBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    source, destination = broker.create(type="fifo"), broker.create(type="fifo")
    broker.send(source, *BODIES, group="g")

    async def refuse(name: str, records: Sequence[Record]) -> None:
        raise InvalidMessage("too large")

    monkeypatch.setattr(_transfer(broker, source), "_send", refuse)
    broker.run(broker.queues.start_move(source, destination, Filter()))
    move = broker.ended_move(source)
    assert (move.status, move.moved, move.failure) == ("FAILED", 0, "too large")
    assert broker.bodies(source) == BODIES


def test_what_the_engine_has_not_heard_of_is_moved_too(broker: QueueBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when there is much to read that a Kafka client has sent."""
    source, destination = broker.create(), broker.create()
    broker.send(source, "a")
    host = _led(broker, source).host
    follow, waited = host.log.data_arrived, 0

    async def patience_ends() -> None:
        nonlocal waited
        waited += 1
        if waited == 3:
            monkeypatch.setattr(host.log, "data_arrived", follow)
            follow()

    monkeypatch.setattr(host.log, "data_arrived", lambda: None)
    monkeypatch.setattr(host.log, "caught_up", patience_ends)

    async def run() -> None:
        batch = build_batch([Record(0, broker.services.clock.wall_ms(), None, b"b")])
        appended = host.partition.append(batch, read_header(batch))
        await host.partition.until_committed(appended.last_offset + 1)
        assert host.engine.indexed_to == 1
        await broker.queues.start_move(source, destination, Filter())

    broker.run(run())
    assert broker.ended_move(source).moved == 2
    assert broker.bodies(destination) == ["a", "b"]
