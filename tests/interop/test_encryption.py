"""Encryption at rest on a real broker: what clients read, what is on its disk, and what a wrong key leads to."""

import json
import os
import re
import sqlite3
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from kafka.errors import CorruptRecordError, PolicyViolationError

from headrace import Client
from headrace.client.errors import BacklogFull, ConsumeFailed, DeliveryFailed, QueueFailed, TopicFailed
from headrace.testing import Broker
from kafka import KafkaConsumer

from . import batches, raw_client

Error = raw_client.Error

KEY, OTHER_KEY = (b64encode(bytes(range(first, first + 32))).decode() for first in (1, 2))
SECRET = b"planted-plaintext"
ENCRYPTED = {"encryption.at.rest": "true"}


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


def start(data_dir: Path, key: str | None = KEY, **settings: object) -> Broker:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    if key is not None:
        given["encryption.master.key"] = key
    return Broker(data_dir, settings={"num.partitions": 1, "offsets.topic.num.partitions": 1, **given})


def files_with(data_dir: Path, text: bytes) -> list[str]:
    return [path.name for path in data_dir.rglob("*") if path.is_file() and text in path.read_bytes()]


def send(broker: Broker, topic: str, *values: bytes) -> Error:
    with raw_client.Connection(broker.bootstrap) as connection:
        answer = raw_client.produce(connection, topic, batches.batch(list(values)))
        code: Error = answer.error_code
        return code


def read(broker: Broker, topic: str) -> list[bytes | None] | Error:
    """The values of partition 0, or the error that a fetch of it gets."""
    with raw_client.Connection(broker.bootstrap) as connection:
        part = raw_client.fetch(connection, topic)
        if part.error_code != Error.none:
            code: Error = part.error_code
            return code
        return [record.value for one in batches.parse(part.records) for record in one.records]


def create(broker: Broker, topic: str, **settings: str) -> None:
    raw_client.create_topic(
        broker.bootstrap, topic, 1, {**ENCRYPTED, **{name.replace("_", "."): text for name, text in settings.items()}}
    )


def alter(broker: Broker, topic: str, value: str) -> None:
    with Client(broker.bootstrap) as client:
        client.topics.alter(topic, settings={"encryption.at.rest": value})


@pytest.fixture
def encrypted(data_dir: Path) -> Iterator[Broker]:
    with start(data_dir) as broker:
        create(broker, "orders")
        yield broker


def test_clients_notice_nothing_and_the_disk_has_no_plain_record(encrypted: Broker, data_dir: Path) -> None:
    large = SECRET * 8000
    assert send(encrypted, "orders", SECRET + b" 1", SECRET + b" 2") == Error.none
    assert send(encrypted, "orders", large) == Error.none
    assert read(encrypted, "orders") == [SECRET + b" 1", SECRET + b" 2", large], "with checksums that are right"
    encrypted.restart()
    assert read(encrypted, "orders") == [SECRET + b" 1", SECRET + b" 2", large]
    encrypted.stop()
    assert files_with(data_dir, SECRET) == []
    assert files_with(data_dir, KEY.encode()) == []


def test_a_client_is_never_shown_that_a_batch_was_encrypted(encrypted: Broker) -> None:
    sent = batches.batch([b"value"])
    with raw_client.Connection(encrypted.bootstrap) as connection:
        assert raw_client.produce(connection, "orders", sent).error_code == Error.none
        records = bytes(raw_client.fetch(connection, "orders").records)
    assert records[16:] == sent[16:], "all but the offset, the length and the epoch, which the broker stamps"


def test_an_answer_of_megabytes_is_whole_and_others_are_served_meanwhile(encrypted: Broker) -> None:
    """It is decrypted in many turns of the event loop, from encrypted and plain batches of several sizes."""
    expected: list[bytes] = []
    for number in range(24):
        encryption = "false" if number % 5 == 4 else "true"
        if number % 5 in (0, 4):
            alter(encrypted, "orders", encryption)
        values = [b"%d-%d-" % (number, at) + SECRET * (10_000 if number % 3 else 5) for at in range(1 + number % 3)]
        assert send(encrypted, "orders", *values) is Error.none
        expected += values
    with raw_client.Connection(encrypted.bootstrap) as one, raw_client.Connection(encrypted.bootstrap) as other:
        for _ in range(3):
            for connection in (one, other):
                part = raw_client.fetch(connection, "orders", partition_max_bytes=50_000_000)
                found = [record.value for each in batches.parse(part.records) for record in each.records]
                assert found == expected


def test_a_batch_that_was_changed_is_an_error_also_in_a_large_answer(encrypted: Broker, data_dir: Path) -> None:
    for number in range(8):
        assert send(encrypted, "orders", b"%d" % number * 100_000) is Error.none
    (segment,) = data_dir.rglob("orders-0/*.log")
    flip_a_bit(segment, 650_000)
    with raw_client.Connection(encrypted.bootstrap) as connection:
        for _ in range(2):
            part = raw_client.fetch(connection, "orders", partition_max_bytes=50_000_000)
            found = [record.value for one in batches.parse(part.records) for record in one.records]
            assert found == [b"%d" % number * 100_000 for number in range(6)], "what is before it"
            part = raw_client.fetch(connection, "orders", 6, partition_max_bytes=50_000_000)
            assert part.error_code is Error.corrupt_message


def flip_a_bit(file: Path, at: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(at)
        byte = opened.read(1)
        opened.seek(at)
        opened.write(bytes([byte[0] ^ 1]))


def test_clients_are_told_that_a_batch_was_changed(
    encrypted: Broker, data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They would retry KAFKA_STORAGE_ERROR for ever, without a word to the application."""
    assert send(encrypted, "orders", b"good") is Error.none
    (segment,) = data_dir.rglob("orders-0/*.log")
    assert send(encrypted, "orders", b"changed") is Error.none
    last_byte = segment.stat().st_size - 1
    assert send(encrypted, "orders", b"behind it") is Error.none
    flip_a_bit(segment, last_byte)

    consumer = Consumer({"bootstrap.servers": encrypted.bootstrap, "group.id": "g"})
    consumer.assign([TopicPartition("orders", 0, 0)])
    try:
        good, changed = consumer.poll(60), consumer.poll(60)
    finally:
        consumer.close()
    assert (good.error(), good.value()) == (None, b"good")
    assert changed.error().code() == KafkaError.INVALID_MSG

    other = KafkaConsumer("orders", bootstrap_servers=encrypted.bootstrap, auto_offset_reset="earliest")
    with closing(other):
        assert len(next(iter(other.poll(60_000).values()))) == 1
        with pytest.raises(CorruptRecordError):
            other.poll(60_000)

    advice = "a batch of the encrypted topic orders was changed on disk.*headrace topic truncate orders"
    with Client(encrypted.bootstrap) as client, client.consume("orders", group="sdk") as messages:
        assert next(messages).payload == b"good"
        with pytest.raises(ConsumeFailed, match=advice):
            next(messages)
    done = run_cli("consume", "orders", "--from-beginning", "--bootstrap", encrypted.bootstrap)
    assert (done.returncode, done.stdout) == (1, "good\n")
    assert re.search(advice, done.stderr)
    logged = [each.getMessage() for each in caplog.records if "cannot be fetched" in each.getMessage()]
    assert len(logged) == 1, "once, though four clients have asked"
    assert "orders-0 cannot be fetched from offset 1 on: a batch of the topic orders cannot be decrypted" in logged[0]

    truncate = ("topic", "truncate", "orders", "--partition", "0", "--before", "2", "--yes")
    done = run_cli(*truncate, "--bootstrap", encrypted.bootstrap)
    assert done.returncode == 0, done.stderr
    done = run_cli("consume", "orders", "--from-beginning", "--max", "1", "--bootstrap", encrypted.bootstrap)
    assert (done.returncode, done.stdout) == (0, "behind it\n")


def test_a_topic_can_be_encrypted_and_decrypted_with_records_in_it(data_dir: Path) -> None:
    with start(data_dir) as broker:
        raw_client.create_topic(broker.bootstrap, "orders", 1)
        values: list[bytes] = []
        for setting in ("false", "true", "false", "true"):
            alter(broker, "orders", setting)
            values.append(f"{setting}-{len(values)}".encode())
            assert send(broker, "orders", values[-1]) == Error.none
        assert read(broker, "orders") == values
        broker.restart()
        assert read(broker, "orders") == values
    assert files_with(data_dir, b"false-2")
    assert not files_with(data_dir, b"true-")


@pytest.mark.parametrize("key", [None, OTHER_KEY], ids=["missing", "wrong"])
def test_without_the_key_other_topics_are_served_and_nothing_is_lost(
    data_dir: Path, key: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with start(data_dir) as broker:
        create(broker, "orders")
        assert send(broker, "orders", SECRET) == Error.none
    with start(data_dir, key) as broker:
        raw_client.create_topic(broker.bootstrap, "plain", 1)
        assert send(broker, "plain", b"served") == Error.none
        assert read(broker, "plain") == [b"served"]
        assert read(broker, "orders") == Error.kafka_storage_error
        assert send(broker, "orders", b"refused") == Error.kafka_storage_error
        with raw_client.Connection(broker.bootstrap) as connection:
            assert raw_client.offset_at(connection, "orders", 0).error_code == Error.kafka_storage_error
            assert raw_client.offset_at(connection, "orders", -1).offset == 1
    assert "the topic orders is encrypted under the master key" in caplog.text
    assert "encryption.master.key.file" in caplog.text
    with start(data_dir) as broker:
        assert read(broker, "orders") == [SECRET]


def test_a_topic_cannot_be_encrypted_without_a_master_key(data_dir: Path) -> None:
    with start(data_dir, None) as broker, Client(broker.bootstrap) as client:
        with pytest.raises(TopicFailed, match=r"needs a master key on this broker: set encryption\.master\.key\.file"):
            client.topics.create("orders", settings=ENCRYPTED)
        client.topics.create("orders")
        with pytest.raises(TopicFailed, match="needs a master key"):
            client.topics.alter("orders", settings=ENCRYPTED)
        with pytest.raises(TopicFailed, match="no data key to destroy"):
            client.topics.alter("orders", settings={"encryption.at.rest": "shredded"})


def test_a_new_master_key_wraps_the_data_keys_again(data_dir: Path) -> None:
    with start(data_dir) as broker:
        create(broker, "orders")
        assert send(broker, "orders", SECRET) == Error.none
    with start(data_dir, f"{OTHER_KEY},{KEY}") as broker:
        assert read(broker, "orders") == [SECRET]
    with start(data_dir, OTHER_KEY) as broker:
        assert read(broker, "orders") == [SECRET], "the former key is not needed any more"
    with start(data_dir, KEY) as broker:
        assert read(broker, "orders") == Error.kafka_storage_error


def wrapped_keys(data_dir: Path) -> list[bytes]:
    """The wrapped data keys in the metadata of a stopped broker, as they are written there."""
    connection = sqlite3.connect(data_dir / "metadata.sqlite")
    try:
        rows = connection.execute("SELECT value FROM items WHERE key LIKE '/data-keys/%'").fetchall()
    finally:
        connection.close()
    return [version["wrapped"].encode() for (value,) in rows for version in json.loads(value)["versions"]]


def test_a_shredded_topic_is_unreadable_and_its_key_is_in_no_file(data_dir: Path) -> None:
    with start(data_dir) as broker:
        create(broker, "orders")
        assert send(broker, "orders", SECRET) == Error.none
        broker.stop()
        (wrapped,) = wrapped_keys(data_dir)
        broker.start()
        done = run_cli("topic", "shred", "orders", "--bootstrap", broker.bootstrap)
        assert done.returncode != 0
        assert "--yes" in done.stderr, "it asks first"
        assert read(broker, "orders") == [SECRET]
        assert send(broker, "orders", b"in memory now") == Error.none
        assert read(broker, "orders") == [SECRET, b"in memory now"]
        done = run_cli("topic", "shred", "orders", "--yes", "--bootstrap", broker.bootstrap)
        assert done.returncode == 0, done.stderr
        assert read(broker, "orders") == Error.policy_violation
        assert send(broker, "orders", b"more") == Error.invalid_record
        assert files_with(data_dir, wrapped) == [], "neither in the database nor in its write-ahead log"
        broker.restart()
        assert read(broker, "orders") == Error.policy_violation
        alter(broker, "orders", "true")
        assert send(broker, "orders", b"a new key") == Error.none
        with raw_client.Connection(broker.bootstrap) as connection:
            part = raw_client.fetch(connection, "orders", 2)
        assert [record.value for one in batches.parse(part.records) for record in one.records] == [b"a new key"]
        assert read(broker, "orders") == Error.policy_violation, "what was shredded stays so"


def test_clients_are_told_that_a_topic_was_shredded(encrypted: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """They would retry KAFKA_STORAGE_ERROR for ever, without a word to the application."""
    create(encrypted, "told")
    assert send(encrypted, "told", SECRET) == Error.none
    alter(encrypted, "told", "shredded")
    settings = {"bootstrap.servers": encrypted.bootstrap, "group.id": "g"}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition("told", 0, 0)])
    try:
        message = consumer.poll(60)
    finally:
        consumer.close()
    assert message is not None
    assert message.error().code() == KafkaError.POLICY_VIOLATION

    other = KafkaConsumer("told", bootstrap_servers=encrypted.bootstrap, auto_offset_reset="earliest")
    with closing(other), pytest.raises(PolicyViolationError):
        other.poll(60_000)

    advice = "the topic told was shredded: .*headrace topic truncate told"
    with (
        Client(encrypted.bootstrap) as client,
        pytest.raises(ConsumeFailed, match=advice),
        client.consume("told", group="sdk") as messages,
    ):
        next(messages)
    with Client(encrypted.bootstrap) as client, pytest.raises(DeliveryFailed, match="shredded") as refused:
        client.publish("told", "more")
    assert not isinstance(refused.value, BacklogFull), "no one needs to wait for room"
    done = run_cli("consume", "told", "--from-beginning", "--bootstrap", encrypted.bootstrap)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.search(advice, done.stderr)
    logged = [each.getMessage() for each in caplog.records if "cannot be fetched" in each.getMessage()]
    assert len(logged) == 1, "once, though four clients have asked"
    assert "told-0 cannot be fetched from offset 0 on: the topic told was shredded" in logged[0]


def test_deleting_a_topic_deletes_its_key(encrypted: Broker, data_dir: Path) -> None:
    with Client(encrypted.bootstrap) as client:
        client.topics.delete("orders")
    encrypted.stop()
    assert wrapped_keys(data_dir) == []


def test_queues_work_and_a_shredded_one_gives_nothing_away(data_dir: Path) -> None:
    with start(data_dir, log_encryption_at_rest="true") as broker, Client(broker.bootstrap) as client:
        queue = client.queue("work").create(visibility=1)
        queue.send_many(SECRET.decode() + f" {number}" for number in range(20))
        first = queue.receive(max=5)
        assert len(first) == 5
        for message in first:
            message.ack()
        broker.restart()
        again = queue.receive(max=3)
        assert [message.text.split()[0] for message in again] == [SECRET.decode()] * 3
        assert files_with(data_dir, SECRET) == []
        client.topics.alter("work", settings={"encryption.at.rest": "shredded"})
        with pytest.raises(QueueFailed, match="the topic work was shredded"):
            queue.receive(max=3, wait=0)
    assert files_with(data_dir, SECRET) == []


def test_a_brokers_default_encrypts_groups_and_transactions_too(data_dir: Path) -> None:
    """Also topics that were there before, once the broker has started with the default."""
    with start(data_dir) as broker:
        raw_client.create_topic(broker.bootstrap, "before", 1)
    with start(data_dir, log_encryption_at_rest="true") as broker:
        assert send(broker, "before", SECRET) == Error.none
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": SECRET.decode()})
        producer.init_transactions(60)
        producer.begin_transaction()
        for number in range(4):
            producer.produce("orders", SECRET + b" %d" % number, partition=0)
        producer.commit_transaction(60)
        assert consume(broker, 2) == [SECRET + b" 0", SECRET + b" 1"]
        broker.restart()
        assert consume(broker, 2) == [SECRET + b" 2", SECRET + b" 3"], "from the offset that was committed"
        assert read(broker, "before") == [SECRET]
        broker.stop()
    assert files_with(data_dir, SECRET) == [], "neither a record nor the name of a group"


def consume(broker: Broker, count: int) -> list[bytes]:
    """The next records for a group, which commits them."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": SECRET.decode(), "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "isolation.level": "read_committed"})
    consumer.subscribe(["orders"])
    found: list[bytes] = []
    try:
        while len(found) < count:
            message = consumer.poll(60)
            assert message is not None
            if message.error() is None:
                found.append(message.value())
                consumer.commit(message, asynchronous=False)
    finally:
        consumer.close()
    return found


def run_cli(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "headrace", *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
        timeout=60,
        check=False,
    )


def test_log_dump_decrypts_with_the_master_key(encrypted: Broker, data_dir: Path) -> None:
    assert send(encrypted, "orders", SECRET) == Error.none
    where = ("log", "dump", str(data_dir), "--topic", "orders")
    without = run_cli(*where)
    assert without.returncode == 1
    assert "encrypted" in without.stderr
    assert "HEADRACE_ENCRYPTION_MASTER_KEY" in without.stderr
    with_key = run_cli(*where, "--format", "json", HEADRACE_ENCRYPTION_MASTER_KEY=KEY)
    assert with_key.returncode == 0, with_key.stderr
    assert json.loads(with_key.stdout)["value"] == SECRET.decode()
    batch = json.loads(run_cli(*where, "--batches", "--format", "json").stdout)
    assert (batch["encrypted"], batch["valid"]) == (True, True)
    verified = run_cli("log", "verify", str(data_dir), "--records")
    assert verified.returncode == 0, verified.stdout


def test_a_broken_master_key_stops_the_start_with_a_sentence(data_dir: Path) -> None:
    with pytest.raises(Exception, match="master key 1 is base64 of 3 bytes, not of 32") as raised:
        start(data_dir, "YWJj").start()
    assert "YWJj" not in str(raised.value)
