"""Four Kafka clients behind one small interface: write these records, read those offsets.

Nobody here joins a group: readers name their partition and offset.
"""

import asyncio
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, Producer, TopicPartition

from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition

from .batches import Record

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = ("0", "1", "all")
READ_TIMEOUT_S = 60.0
EARLIEST, LATEST = -2, -1


class Client(Protocol):
    name: str
    sets_timestamps: bool

    def write(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: str = "all",
        partition: int = 0,
    ) -> None:
        """Send all and return when every one is acknowledged, or sent where `acks` is 0."""
        ...

    def read(
        self, bootstrap: str, topic: str, count: int, *, offset: int = EARLIEST, partition: int = 0
    ) -> list[Record]:
        """`count` records from `offset`."""
        ...


class Confluent:
    name = "confluent-kafka"
    sets_timestamps = True

    def write(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: str = "all",
        partition: int = 0,
    ) -> None:
        errors: list[Any] = []
        settings = {"compression.type": codec, "acks": acks, "linger.ms": 20, "message.max.bytes": 8 << 20}
        producer = Producer({"bootstrap.servers": bootstrap, **settings})
        for record in records:
            producer.produce(
                topic,
                record.value,
                record.key,
                partition=partition,
                timestamp=max(record.timestamp_ms, 0),
                headers=list(record.headers),
                on_delivery=lambda error, _: errors.append(error) if error else None,
            )
        assert producer.flush(READ_TIMEOUT_S) == 0
        assert not errors, errors

    def read(
        self, bootstrap: str, topic: str, count: int, *, offset: int = EARLIEST, partition: int = 0
    ) -> list[Record]:
        settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
        found: list[Record] = []
        with closing(Consumer(settings)) as consumer:
            consumer.assign([TopicPartition(topic, partition, offset)])
            while len(found) < count:
                message = consumer.poll(READ_TIMEOUT_S)
                assert message is not None, f"{len(found)} of {count} records came"
                assert message.error() is None, message.error()
                headers = tuple(message.headers() or ())
                found.append(Record(message.value(), message.key(), headers, message.timestamp()[1], message.offset()))
        return found


class KafkaPython:
    name = "kafka-python"
    sets_timestamps = True

    def write(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: str = "all",
        partition: int = 0,
    ) -> None:
        settings: dict[str, Any] = {"acks": "all" if acks == "all" else int(acks), "linger_ms": 20}
        if acks != "all":
            settings["enable_idempotence"] = False
        if codec != "none":
            settings["compression_type"] = codec
        with closing(KafkaProducer(bootstrap_servers=bootstrap, **settings)) as producer:
            futures = [
                producer.send(
                    topic,
                    record.value,
                    record.key,
                    list(record.headers),
                    partition,
                    record.timestamp_ms if record.timestamp_ms >= 0 else None,
                )
                for record in records
            ]
            producer.flush(READ_TIMEOUT_S)
            for future in futures:
                future.get(READ_TIMEOUT_S)

    def read(
        self, bootstrap: str, topic: str, count: int, *, offset: int = EARLIEST, partition: int = 0
    ) -> list[Record]:
        where = PythonPartition(topic, partition)
        settings: dict[str, Any] = {
            "consumer_timeout_ms": int(READ_TIMEOUT_S * 1000),
            "group_id": None,
            "max_partition_fetch_bytes": 8 << 20,
        }
        found: list[Record] = []
        with closing(KafkaConsumer(bootstrap_servers=bootstrap, **settings)) as consumer:
            consumer.assign([where])
            if offset == EARLIEST:
                consumer.seek_to_beginning(where)
            elif offset == LATEST:
                consumer.seek_to_end(where)
            else:
                consumer.seek(where, offset)
            for message in consumer:
                headers = tuple(message.headers or ())
                found.append(Record(message.value, message.key, headers, message.timestamp, message.offset))
                if len(found) == count:
                    return found
        raise AssertionError(f"{len(found)} of {count} records came")


class AioKafka:
    name = "aiokafka"
    sets_timestamps = True

    def write(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: str = "all",
        partition: int = 0,
    ) -> None:
        asyncio.run(self._write(bootstrap, topic, records, codec, acks, partition))

    async def _write(
        self, bootstrap: str, topic: str, records: Sequence[Record], codec: str, acks: str, partition: int
    ) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all" if acks == "all" else int(acks),
            compression_type=None if codec == "none" else codec,
            linger_ms=20,
            max_request_size=8 << 20,
        )
        await producer.start()
        try:
            sent = [
                await producer.send(
                    topic,
                    record.value,
                    record.key,
                    partition,
                    record.timestamp_ms if record.timestamp_ms >= 0 else None,
                    list(record.headers),
                )
                for record in records
            ]
            await asyncio.wait_for(asyncio.gather(*sent), READ_TIMEOUT_S)
        finally:
            await producer.stop()

    def read(
        self, bootstrap: str, topic: str, count: int, *, offset: int = EARLIEST, partition: int = 0
    ) -> list[Record]:
        return asyncio.run(self._read(bootstrap, topic, count, offset, partition))

    async def _read(self, bootstrap: str, topic: str, count: int, offset: int, partition: int) -> list[Record]:
        where = AioPartition(topic, partition)
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False)
        await consumer.start()
        try:
            consumer.assign([where])
            if offset == EARLIEST:
                await consumer.seek_to_beginning(where)
            elif offset == LATEST:
                await consumer.seek_to_end(where)
            else:
                consumer.seek(where, offset)
            found: list[Record] = []
            while len(found) < count:
                message = await asyncio.wait_for(consumer.getone(), READ_TIMEOUT_S)
                found.append(
                    Record(message.value, message.key, tuple(message.headers), message.timestamp, message.offset)
                )
            return found
        finally:
            await consumer.stop()


class Kcat:
    name = "kcat"
    sets_timestamps = False

    def write(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: str = "all",
        partition: int = 0,
    ) -> None:
        for record in records:
            self._write_one(bootstrap, topic, record, codec, acks, partition)

    def _write_one(self, bootstrap: str, topic: str, record: Record, codec: str, acks: str, partition: int) -> None:
        settings = ["-X", f"acks={acks}", "-X", "message.max.bytes=8388608"]
        command = ["kcat", "-P", "-q", "-b", bootstrap, "-t", topic, "-p", str(partition), "-z", codec, *settings]
        for name, value in record.headers:
            command += ["-H", name if value is None else f"{name}={os.fsdecode(value)}"]
        with tempfile.TemporaryDirectory() as folder:
            line = b""
            if record.value:
                # A named file is one message, whatever is in it.
                file = Path(folder, "value")
                file.write_bytes(record.value)
                command += ["-k", os.fsdecode(record.key), str(file)] if record.key is not None else [str(file)]
            else:
                # An empty file is no message at all; a line with a key and nothing behind it is. -Z makes it a null.
                assert record.key is not None, "kcat cannot send an empty value without a key"
                command += ["-K", "|"] if record.value is not None else ["-K", "|", "-Z"]
                line = record.key + b"|\n"
            subprocess.run(command, check=True, timeout=READ_TIMEOUT_S, capture_output=True, input=line)

    def read(
        self, bootstrap: str, topic: str, count: int, *, offset: int = EARLIEST, partition: int = 0
    ) -> list[Record]:
        start = {EARLIEST: "beginning", LATEST: "end"}.get(offset, str(offset))
        # Lengths come before the bytes, so that keys and values may hold anything.
        layout = r"%o %T %K %S [%h]\n%k%s"
        command = ["kcat", "-C", "-q", "-u", "-b", bootstrap, "-t", topic, "-p", str(partition), "-o", start]
        command += ["-c", str(count), "-f", layout, "-X", "fetch.message.max.bytes=8388608"]
        done = subprocess.run(command, check=True, timeout=READ_TIMEOUT_S, capture_output=True)
        return list(self._parse(done.stdout))

    @staticmethod
    def _parse(output: bytes) -> list[Record]:
        found, at = [], 0
        while at < len(output):
            line = re.compile(rb"(\d+) (-?\d+) (-?\d+) (-?\d+) \[(.*)\]\n").match(output, at)
            assert line is not None, output[at : at + 100]
            offset, when, key_size, value_size = (int(line[number]) for number in range(1, 5))
            pairs = (part.partition(b"=") for part in line[5].split(b",")) if line[5] else ()
            headers = tuple((name.decode(), None if value == b"NULL" else value) for name, _, value in pairs)
            at = line.end()
            key = output[at : at + key_size] if key_size >= 0 else None
            at += max(key_size, 0)
            value = output[at : at + value_size] if value_size >= 0 else None
            at += max(value_size, 0)
            found.append(Record(value, key, headers, when, offset))
        return found


_ALL: tuple[Client, ...] = (Confluent(), KafkaPython(), AioKafka(), Kcat())
NO_KCAT = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed: apt-get install kcat")


def parameters() -> list[Any]:
    """Every client, for `pytest.mark.parametrize`."""
    return [pytest.param(one, id=one.name, marks=NO_KCAT if one.name == "kcat" else ()) for one in _ALL]


def installed() -> list[Client]:
    """The clients that are there: kcat comes from the operating system and may be missing."""
    return [one for one in _ALL if one.name != "kcat" or shutil.which("kcat")]
