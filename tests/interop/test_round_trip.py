"""What one client writes every client reads, byte for byte."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from . import batches, clients, raw_client
from .batches import Record
from .clients import Client
from .subject import Subject

NEAR = batches.now_ms() - 60_000

SAMPLES = (
    Record(b"plain", b"key", (), NEAR),
    Record(b"no key", None, (), NEAR + 1),
    Record(b"", b"empty value", (), NEAR + 2),
    Record(None, b"null value", (), NEAR + 3),
    Record(b"x", b"k", (), NEAR + 4),
    Record(b"headers", b"h", (("one", b"1"), ("two", b"zwei"), ("one", b"again")), NEAR + 5),
    Record("Grüße, 水車".encode(), "schlüssel".encode(), (), NEAR + 6),
    Record(bytes(range(256)) * 40, b"binary", (("raw", b"\x01\x02\xfe"),), NEAR + 7),
    Record(b"abc" * 30_000, b"long", (), NEAR + 8),
    Record(b"last", b"key", (), NEAR + 9),
)


def read_by_all(bootstrap: str, topic: str, count: int) -> dict[str, list[Record]]:
    return {reader.name: reader.read(bootstrap, topic, count) for reader in clients.installed()}


def comparable(records: list[Record], *, with_times: bool) -> list[Record]:
    return [record if with_times else replace(record, timestamp_ms=-1) for record in records]


@pytest.mark.parametrize("codec", clients.CODECS)
@pytest.mark.parametrize("writer", clients.parameters())
def test_every_client_reads_what_one_wrote(writer: Client, codec: str, broker: Subject, topic: str) -> None:
    writer.write(broker.bootstrap, topic, SAMPLES, codec=codec)
    expected = [replace(record, offset=at) for at, record in enumerate(SAMPLES)]
    for reader, found in read_by_all(broker.bootstrap, topic, len(SAMPLES)).items():
        assert comparable(found, with_times=writer.sets_timestamps) == comparable(
            expected, with_times=writer.sets_timestamps
        ), f"{writer.name} to {reader}"
    with raw_client.Connection(broker.bootstrap) as connection:
        stored = batches.parse(raw_client.fetch(connection, topic).records)
    assert {one.codec for one in stored} <= {clients.CODECS.index(codec), batches.NONE}
    assert clients.CODECS.index(codec) in {one.codec for one in stored}


@pytest.mark.parametrize("acks", clients.ACKS)
@pytest.mark.parametrize("writer", clients.parameters())
def test_every_acks_level(writer: Client, acks: str, broker: Subject, topic: str) -> None:
    sent = [Record(f"{acks}-{number}".encode()) for number in range(5)]
    writer.write(broker.bootstrap, topic, sent, acks=acks)
    found = clients.Confluent().read(broker.bootstrap, topic, len(sent))
    assert [record.value for record in found] == [record.value for record in sent]


def test_null_header_values_arrive_as_null(broker: Subject, topic: str) -> None:
    sent = Record(b"v", b"k", (("null", None), ("empty", b"")))
    clients.Confluent().write(broker.bootstrap, topic, [sent])
    for reader, (found,) in read_by_all(broker.bootstrap, topic, 1).items():
        assert found.headers == sent.headers, reader


@pytest.mark.parametrize("writer", clients.parameters())
def test_many_partitions_keep_their_own_order(writer: Client, broker: Subject, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=12)
    for partition in range(12):
        writer.write(
            broker.bootstrap, topic, [Record(f"{partition}/{at}".encode()) for at in range(3)], partition=partition
        )
    for partition in (0, 5, 11):
        for reader in clients.installed():
            found = reader.read(broker.bootstrap, topic, 3, partition=partition)
            assert [record.value for record in found] == [f"{partition}/{at}".encode() for at in range(3)], reader.name
            assert [record.offset for record in found] == [0, 1, 2], reader.name
