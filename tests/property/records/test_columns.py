"""Arrow columns agree with what other readers make of the same bytes, and no bytes do worse than a `RecordError`."""

import contextlib
from collections.abc import Iterable

import pyarrow as pa
import pytest
from aiokafka.record import MemoryRecords
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kio.records.readers import read_batch
from tests.property.records.mutation import mutate

from headrace.model.errors import DataKeyMissing, RecordError
from headrace.records.batch import check_batch
from headrace.records.builder import build_batch, retain
from headrace.records.columns import decode, encode, schema
from headrace.records.compression import Codec
from headrace.records.reader import Record, decompressed, iter_records, spans
from headrace.records.schema import HEADERS

NOW = 1_700_000_000_000

pytestmark = pytest.mark.timeout(900)
"""The long profile has many examples, and each is read several times."""

fewer = settings(max_examples=settings().max_examples // 2)

payloads = st.none() | st.binary(max_size=40) | st.sampled_from([63, 64, 8_191, 8_192, 20_000]).map(bytes)
timestamps = st.integers(NOW - 10**7, NOW + 10**6) | st.integers(0, 2**52) | st.just(NOW)
header_lists = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=20)), max_size=3).map(tuple)
some_headers = st.just(()) | header_lists
record_lists = st.lists(st.builds(Record, st.just(0), timestamps, payloads, payloads, some_headers), max_size=12)
codecs = st.sampled_from(list(Codec))
chunk_sizes = st.sampled_from([1, 1_000, 4 << 20])


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Batches as a log has them: of any codec, with gaps, some of them compacted, of either kind of time."""
    buffer, offset = b"", draw(st.integers(0, 2**40))
    for records in draw(st.lists(record_lists.filter(bool), min_size=1, max_size=5)):
        batch = build_batch(
            records,
            codec=draw(codecs),
            base_offset=offset,
            log_append_time_ms=draw(st.none() | st.just(NOW + 1)),
        )
        if draw(st.integers(0, 3)) == 0:
            header = check_batch(batch)
            data = decompressed(batch, header)
            batch = retain(header, data, [span for span in spans(data, header) if draw(st.booleans())])
        buffer += batch
        offset += len(records) + draw(st.integers(0, 100))
    return buffer


def rows(batches: Iterable[pa.RecordBatch]) -> list[Record]:
    found = []
    for batch in batches:
        batch.validate(full=True)
        columns = batch.set_column(5, "timestamp", batch.column("timestamp").cast(pa.int64())).to_pydict()
        headers = columns.get("headers", [None] * batch.num_rows)
        found += [
            Record(offset, time // 1000, key, value, tuple((one["key"], one["value"]) for one in each or ()))
            for offset, time, key, value, each in zip(
                columns["offset"], columns["timestamp"], columns["key"], columns["value"], headers, strict=True
            )
        ]
    return found


def by_columns(buffer: bytes) -> list[Record]:
    return rows(decode(buffer, topic="t", partition=0, headers=True))


def by_aiokafka(buffer: bytes) -> list[Record]:
    found = []
    memory = MemoryRecords(buffer)
    while memory.has_next():
        for one in memory.next_batch():
            found.append(Record(one.offset, one.timestamp, one.key, one.value, tuple(one.headers)))
    return found


def by_kafka_python(buffer: bytes) -> list[Record]:
    return [
        Record(one.offset, one.timestamp, one.key, one.value, tuple(one.headers)) for one in KafkaPythonBatch(buffer)
    ]


def by_kio(buffer: bytes) -> list[Record]:
    found, position = [], 0
    while position < len(buffer):
        batch, size = read_batch(buffer, position)
        position += size
        for one in batch.records:
            headers = tuple(((header.key or b"").decode(), header.value) for header in one.headers)
            found.append(Record(one.offset, round(one.timestamp.timestamp() * 1000), one.key, one.value, headers))
    return found


def plain(record: Record) -> Record:
    return record._replace(headers=())


@fewer
@given(logs(), chunk_sizes)
def test_columns_are_what_aiokafka_reads(buffer: bytes, chunk_bytes: int) -> None:
    expected = by_aiokafka(buffer)
    assert rows(decode(buffer, topic="t", partition=0, headers=True, chunk_bytes=chunk_bytes)) == expected
    assert rows(decode(buffer, topic="t", partition=0, chunk_bytes=chunk_bytes)) == [plain(one) for one in expected]


@fewer
@given(record_lists.filter(bool))
def test_columns_are_what_kio_reads(made: list[Record]) -> None:
    """kio knows neither compression nor log-append time, and drops what is below a second."""
    made = [one._replace(timestamp=one.timestamp % 10**10 * 1000) for one in made]
    buffer = build_batch(made, base_offset=17)
    assert rows(decode(buffer, topic="t", partition=0, headers=True)) == by_kio(buffer)


@fewer
@given(record_lists.filter(bool), codecs, st.sampled_from([DefaultRecordBatchBuilder, KafkaPythonBuilder]))
def test_what_other_clients_write_is_read(made: list[Record], codec: Codec, builder_type: type) -> None:
    builder = builder_type(
        magic=2, compression_type=int(codec), is_transactional=False, producer_id=-1, producer_epoch=-1,
        base_sequence=-1, batch_size=1 << 30,
    )  # fmt: skip
    for delta, one in enumerate(made):
        builder.append(delta, one.timestamp, one.key, one.value, list(one.headers))
    found = rows(decode(bytes(builder.build()), topic="t", partition=0, headers=True))
    assert found == [one._replace(offset=delta) for delta, one in enumerate(made)]


@fewer
@given(logs(), st.data())
def test_offsets_cut_where_they_say(buffer: bytes, data: st.DataObject) -> None:
    expected = by_aiokafka(buffer)
    offsets = [0, *(one.offset for one in expected)]
    first = data.draw(st.sampled_from(offsets)) + data.draw(st.integers(0, 2))
    below = data.draw(st.sampled_from(offsets)) + data.draw(st.integers(0, 2))
    found = rows(decode(buffer, topic="t", partition=0, first_offset=first, end_offset=below, headers=True))
    assert found == [one for one in expected if first <= one.offset < below]


def resealed(batch: bytearray) -> bytes:
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big", signed=True)
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


@fewer
@given(logs(), st.data())
def test_damage_is_an_error_or_cut_off(buffer: bytes, data: st.DataObject) -> None:
    """A flipped bit is noticed by the checksum, unless it is in the fields before it; a cut leaves whole batches."""
    position = data.draw(st.integers(0, len(buffer) - 1))
    expected = by_aiokafka(buffer)
    found = rows(decode(buffer[:position], topic="t", partition=0, headers=True))
    assert found == expected[: len(found)]
    damaged = bytearray(buffer)
    damaged[position] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(RecordError):
        found = rows(decode(bytes(damaged), topic="t", partition=0, headers=True))
        assert [one._replace(offset=0) for one in found] == [one._replace(offset=0) for one in expected[: len(found)]]


@fewer
@given(record_lists.filter(bool), st.data())
def test_odd_records_are_read_as_the_slow_reader_reads_them(made: list[Record], data: st.DataObject) -> None:
    """The checksum being right, what a malicious producer can send."""
    batch = bytearray(build_batch(made, codec=Codec.NONE))
    mutate(batch, data, first=21)
    buffer = resealed(batch)
    try:
        header = check_batch(buffer)
        expected = list(iter_records(buffer, header))
    except (RecordError, DataKeyMissing):
        with contextlib.suppress(RecordError, DataKeyMissing):
            # Nothing, as from a control batch; never something else. Without headers they are not looked at.
            assert not list(decode(buffer, topic="t", partition=0, headers=True))
        with contextlib.suppress(RecordError, DataKeyMissing):
            list(decode(buffer, topic="t", partition=0))
        return
    if header.is_control or header.last_offset_delta < 0:
        return
    table = pa.Table.from_batches(decode(buffer, topic="t", partition=0, headers=True), schema(headers=True))
    assert table.column("value").to_pylist() == [one.value for one in expected]
    assert table.column("key").to_pylist() == [one.key for one in expected]
    assert table.column("offset").to_pylist() == [one.offset for one in expected]
    assert [
        tuple((header["key"], header["value"]) for header in each or ()) for each in table.column("headers").to_pylist()
    ] == [one.headers for one in expected]


@given(st.binary(max_size=400), st.integers(-5, 2**31 - 1), codecs)
def test_noise_is_an_error(noise: bytes, count: int, codec: Codec) -> None:
    batch = bytearray(build_batch([], codec=codec))[:61] + noise
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    batch[23:27] = max(count - 1, 0).to_bytes(4, "big", signed=True)
    for buffer in (noise, resealed(batch)):
        with contextlib.suppress(RecordError):
            for one in decode(buffer, topic="t", partition=0, headers=True):
                one.validate(full=True)


@pytest.mark.parametrize("codec", list(Codec))
def test_many_records_are_what_aiokafka_reads(codec: Codec) -> None:
    made = [Record(0, NOW + i, b"key %d" % (i % 50), b"v" * (i % 300)) for i in range(30_000)]
    buffer = b"".join(
        build_batch(made[start : start + 7_000], base_offset=start, codec=codec) for start in range(0, 30_000, 7_000)
    )
    assert rows(decode(buffer, topic="t", partition=0)) == by_aiokafka(buffer)


@fewer
@given(record_lists.filter(bool), codecs, st.sampled_from([300, 20_000, 1_000_000]))
def test_what_is_encoded_is_read_by_others(made: list[Record], codec: Codec, target_bytes: int) -> None:
    columns = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([one.key for one in made], pa.binary()),
            "value": pa.array([one.value for one in made], pa.binary()),
            "timestamp": pa.array([one.timestamp for one in made], pa.timestamp("ms", tz="UTC")),
            "headers": pa.array([one.headers for one in made], HEADERS),
        }
    )
    batches = encode(columns, timestamp_ms=0, target_bytes=target_bytes, codec=codec)
    expected = [one._replace(offset=0) for one in made]
    for reader in (
        by_aiokafka,
        by_kafka_python,
        lambda batch: rows(decode(batch, topic="t", partition=0, headers=True)),
    ):
        assert [one._replace(offset=0) for batch in batches for one in reader(batch)] == expected
    if codec == Codec.NONE and all(one.timestamp % 1000 == 0 for one in made):
        assert [one._replace(offset=0) for batch in batches for one in by_kio(batch)] == expected
    assert [one.offset for one in by_aiokafka(batches[0])] == list(range(check_batch(batches[0]).record_count))
