"""Clients of a cluster that is being harmed: they write down what they do and what they are told.

    python -m tests.faults.workload BOOTSTRAP FOLDER PER_SECOND ROLE:NAME …

Each role is a thread with a history of its own, `FOLDER/NAME.jsonl`. They run until SIGTERM, and then finish what they
have begun. Something that a client cannot go on after ends the process, with the reason on stderr; whoever started it
starts it again under new names.
"""

import faulthandler
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from headrace.model import ids
from headrace.model.ids import PartitionIndex, TopicName
from headrace.testing.histories import Position, Read, Recorder

EVENTS, COPIES, LEDGER = "events", "copies", "ledger"
TOPICS = (EVENTS, COPIES, LEDGER)
PARTITIONS = 3
GROUP, COPIERS = "members", "copiers"
PATIENCE_S = 30.0
STUCK_S = 90.0
CLIENT = {
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 500,
    "socket.connection.setup.timeout.ms": 2000,
    "socket.timeout.ms": 6000,
    "topic.metadata.refresh.interval.ms": 5000,
    # librdkafka may hang when it forgets all brokers because none answers (its issues 5456 and 5511).
    "metadata.recovery.strategy": "none",
}
PRODUCER = {**CLIENT, "request.timeout.ms": 4000, "linger.ms": 5, "acks": "all"}
CONSUMER = {
    **CLIENT,
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    "check.crcs": True,
    "fetch.wait.max.ms": 100,
    "session.timeout.ms": 6000,
    "heartbeat.interval.ms": 1000,
}


def payload(value: str) -> bytes:
    """What is sent for a value: the value, and bytes that nothing but it gives."""
    return f"{value}|{_filler(value)}".encode()


def value_of(data: bytes | None) -> str:
    """The value of a payload; of one that is not exactly what was sent, something that nobody sent."""
    value, _, filler = (data or b"").decode(errors="replace").partition("|")
    return value if filler == _filler(value) else f"damaged {value}|{filler[:16]}"


def _filler(value: str) -> str:
    return blake2b(value.encode(), digest_size=60).hexdigest()


def read_of(message: Message) -> Read:
    epoch = message.leader_epoch()
    return Read(
        message.topic(),
        message.partition(),
        message.offset(),
        value_of(message.value()),
        -1 if epoch is None else epoch,
    )


class Client:
    """What all roles have: where to connect, a history, a pace, and when to stop."""

    def __init__(self, bootstrap: str, record: Recorder, per_second: float, stop: threading.Event) -> None:
        self.bootstrap = bootstrap
        self.record = record
        self.name = record.by
        self.pause_s = 1 / per_second
        self.stop = stop
        self.rng = Random(self.name)
        self._sent_count = 0

    def new_value(self) -> str:
        self._sent_count += 1
        return f"{self.name}/{self._sent_count}"

    def send(self, producer: Producer, topic: str, partition: int, **fields: Any) -> None:
        value = self.new_value()
        sent = self.record.send(topic, value, **fields)

        def done(error: object, message: Message) -> None:
            if error is None:
                self.record.ok(sent, partition=message.partition(), offset=message.offset())
            else:
                self.record.unknown(sent, error)

        while True:
            try:
                producer.produce(topic, payload(value), partition=partition, on_delivery=done)
                return
            except BufferError:
                producer.poll(0.1)

    def consume(self, consumer: Consumer, most: int = 200, timeout_s: float = 0.2) -> list[Message]:
        messages = [message for message in consumer.consume(most, timeout_s) if message.error() is None]
        if messages:
            self.record.poll(map(read_of, messages))
        return messages


def produce(client: Client) -> None:
    """An idempotent producer of events."""
    producer = Producer({**PRODUCER, "bootstrap.servers": client.bootstrap, "enable.idempotence": True})
    while not client.stop.wait(client.pause_s):
        client.send(producer, EVENTS, client.rng.randrange(PARTITIONS))
        producer.poll(0)
    producer.flush(PATIENCE_S)


def read(client: Client) -> None:
    """Reads everything from the start on, for as long as it runs."""
    consumer = Consumer({**CONSUMER, "bootstrap.servers": client.bootstrap, "group.id": client.name})
    everything = [
        Position(TopicName(topic), PartitionIndex(partition), 0) for topic in TOPICS for partition in range(PARTITIONS)
    ]
    client.record.assign(everything)
    consumer.assign([TopicPartition(*position) for position in everything])
    try:
        while not client.stop.is_set():
            client.consume(consumer)
    finally:
        consumer.close()


def transact(client: Client) -> None:
    """Transactions of a few values over all partitions, one in four of which is aborted."""
    transactional_id = client.name.rpartition(".")[0]
    producer = _transactional(client, transactional_id)
    while not client.stop.wait(client.pause_s * 10):
        is_wanted = client.rng.random() < 0.75
        producer.begin_transaction()
        txn = client.record.begin(transactional_id)
        try:
            for _ in range(client.rng.randint(2, 5)):
                client.send(producer, LEDGER, client.rng.randrange(PARTITIONS), txn=txn)
            if not is_wanted:
                producer.flush(PATIENCE_S)
        except KafkaException as problem:
            if not _needs_abort(problem):
                raise
            is_wanted = False
        _finish(client, producer, txn, commit=is_wanted)


def _transactional(client: Client, transactional_id: str) -> Producer:
    more = {"transactional.id": transactional_id, "transaction.timeout.ms": 30_000}
    producer = Producer({**PRODUCER, **more, "bootstrap.servers": client.bootstrap})
    taken = client.record.init(transactional_id)
    _again(lambda: producer.init_transactions(PATIENCE_S))
    client.record.ok(taken)
    return producer


def _finish(client: Client, producer: Producer, txn: int, *, commit: bool) -> bool:
    """Whether it was committed. What cannot be must be aborted, and then it certainly was not."""
    end = client.record.finish(txn, commit=commit)
    if commit:
        try:
            _again(lambda: producer.commit_transaction(PATIENCE_S))
        except KafkaException as problem:
            if not _needs_abort(problem):
                client.record.unknown(end, problem)
                raise
            _again(lambda: producer.abort_transaction(PATIENCE_S))
            client.record.failed(end, problem)
            return False
        client.record.ok(end)
        return True
    _again(lambda: producer.abort_transaction(PATIENCE_S))
    client.record.ok(end)
    return False


def _needs_abort(problem: KafkaException) -> bool:
    """Whether a transaction can only be aborted. `produce` just says that it cannot go on then."""
    error = problem.args[0]
    return error.txn_requires_abort() or (error.code() == KafkaError._STATE and not error.fatal())


def _again(call: Callable[[], object]) -> None:
    """Call until it does not fail with what may be tried again."""
    until = time.monotonic() + STUCK_S
    while True:
        try:
            call()
            return
        except KafkaException as problem:
            if not problem.args[0].retriable() or time.monotonic() > until:
                raise


class Membership:
    """A consumer in a group, which records what it is given and takes up where the group had committed."""

    def __init__(self, client: Client, group: str) -> None:
        self.client = client
        self.group = group
        self.positions: dict[tuple[str, int], int] = {}
        self.consumer = Consumer({**CONSUMER, "bootstrap.servers": client.bootstrap, "group.id": group})
        self.consumer.subscribe([EVENTS], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)

    def consume(self) -> list[Message]:
        messages = self.client.consume(self.consumer)
        for message in messages:
            self.positions[message.topic(), message.partition()] = message.offset() + 1
        return messages

    def rewind(self) -> None:
        """Read again from what was committed. This does not make it the owner again: it may have been replaced."""
        places = self.consumer.committed(self.consumer.assignment(), PATIENCE_S)
        starts = [Position(place.topic, place.partition, max(0, place.offset)) for place in places]
        self.client.record.assign(starts)
        self.positions.clear()
        for start in starts:
            self.consumer.seek(TopicPartition(*start))

    def places(self) -> list[Position]:
        return [
            Position(TopicName(topic), PartitionIndex(partition), offset)
            for (topic, partition), offset in self.positions.items()
        ]

    def _assigned(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        record, began = self.client.record, time.monotonic()
        record.assign([Position(place.topic, place.partition, -1) for place in places], group=self.group)
        try:
            known = consumer.committed(places, PATIENCE_S)
        except KafkaException:
            known = places
        told = [Position(place.topic, place.partition, place.offset) for place in known if place.offset >= 0]
        if told:
            record.committed(began, self.group, told)
        record.assign([Position(place.topic, place.partition, max(-1, place.offset)) for place in known])
        consumer.assign(places)

    def _revoked(self, _: Consumer, places: Iterable[TopicPartition]) -> None:
        gone = [ids.TopicPartition(place.topic, place.partition) for place in places]
        for where in gone:
            self.positions.pop(where, None)
        self.client.record.revoke(gone, group=self.group)


def consume(client: Client) -> None:
    """A member of a group that reads the events and commits."""
    member = Membership(client, GROUP)
    try:
        while not client.stop.is_set():
            if member.consume() and (places := member.places()):
                commit = client.record.commit(GROUP, places)
                try:
                    member.consumer.commit(offsets=[TopicPartition(*place) for place in places], asynchronous=False)
                except KafkaException as problem:
                    client.record.unknown(commit, problem)
                else:
                    client.record.ok(commit)
    finally:
        member.consumer.close()


def copy(client: Client) -> None:
    """Copies every event exactly once: consume, produce and commit the offsets in one transaction."""
    transactional_id = client.name.rpartition(".")[0]
    producer = _transactional(client, transactional_id)
    member = Membership(client, COPIERS)
    try:
        while not client.stop.is_set():
            messages = member.consume()
            if messages:
                _copy_all(client, producer, member, messages, transactional_id)
    finally:
        member.consumer.close()


def _copy_all(
    client: Client, producer: Producer, member: Membership, messages: list[Message], transactional_id: str
) -> None:
    producer.begin_transaction()
    txn = client.record.begin(transactional_id)
    is_whole = True
    try:
        for message in messages:
            client.send(producer, COPIES, message.partition(), txn=txn, of=value_of(message.value()))
        places = member.places()
        commit = client.record.commit(COPIERS, places, txn=txn)
        offsets = [TopicPartition(*place) for place in places]
        metadata = member.consumer.consumer_group_metadata()
        _again(lambda: producer.send_offsets_to_transaction(offsets, metadata, PATIENCE_S))
        client.record.ok(commit)
    except KafkaException as problem:
        if not _needs_abort(problem):
            raise
        is_whole = False
    if not _finish(client, producer, txn, commit=is_whole):
        member.rewind()


ROLES: dict[str, Callable[[Client], None]] = {
    "produce": produce,
    "read": read,
    "transact": transact,
    "consume": consume,
    "copy": copy,
}


def read_everything(bootstrap: str, record: Recorder, timeout_s: float) -> dict[str, int]:
    """Read all topics to their ends with read_committed; the end of each partition by its name.

    What cannot be read in that time is left out, for the checker to find.
    """
    consumer = Consumer({**CONSUMER, "bootstrap.servers": bootstrap, "group.id": record.by})
    try:
        places = [TopicPartition(topic, partition, 0) for topic in TOPICS for partition in range(PARTITIONS)]
        ends = dict(_ends(consumer, places))
        record.assign(Position(place.topic, place.partition, 0) for place in places)
        consumer.assign(places)
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            messages = [message for message in consumer.consume(2000, 0.2) if message.error() is None]
            if messages:
                record.poll(map(read_of, messages))
            at = {f"{place.topic}-{place.partition}": place.offset for place in consumer.position(places)}
            if all(end == 0 or at[name] >= end for name, end in ends.items()):
                break
        return ends
    finally:
        consumer.close()


def _ends(consumer: Consumer, places: list[TopicPartition]) -> Iterator[tuple[str, int]]:
    for place in places:
        _, end = consumer.get_watermark_offsets(place, PATIENCE_S)
        yield f"{place.topic}-{place.partition}", max(0, end)


def copied(bootstrap: str) -> bool:
    """Whether the copiers have come to the end of the events."""
    consumer = Consumer({**CONSUMER, "bootstrap.servers": bootstrap, "group.id": COPIERS})
    try:
        places = [TopicPartition(EVENTS, partition) for partition in range(PARTITIONS)]
        ends = dict(_ends(consumer, places))
        done = {f"{place.topic}-{place.partition}": place.offset for place in consumer.committed(places, PATIENCE_S)}
        return all(end == 0 or (done[name] != OFFSET_INVALID and done[name] >= end) for name, end in ends.items())
    except KafkaException:
        return False
    finally:
        consumer.close()


def _run(role: str, client: Client) -> None:
    try:
        ROLES[role](client)
    except BaseException:
        # The other roles go down with it, as in a process that crashes: each history is as it is at this moment.
        sys.stderr.write(f"{client.name} cannot go on:\n{traceback.format_exc()}")
        sys.stderr.flush()
        os._exit(1)


def main(bootstrap: str, folder: Path, per_second: float, *roles: str) -> None:
    stop = threading.Event()

    def finish(*_: object) -> None:
        stop.set()
        faulthandler.dump_traceback_later(STUCK_S, exit=True)

    signal.signal(signal.SIGTERM, finish)
    threads = []
    for one in roles:
        role, _, name = one.partition(":")
        client = Client(bootstrap, Recorder(folder / f"{name}.jsonl", name), per_second, stop)
        threads.append(threading.Thread(target=_run, args=(role, client), name=name))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]), *sys.argv[4:])
