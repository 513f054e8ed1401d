"""Record batches as Arrow columns: what is read, what is left out, and what is refused."""

from typing import NamedTuple

import pyarrow as pa
import pytest
from crc32c import crc32c

from headrace.model.errors import CorruptBatch, InvalidRecord, RecordError
from headrace.records.batch import HEADER_SIZE, Buffer, check_batch
from headrace.records.builder import build_batch, retain
from headrace.records.columns import decode, next_offset, schema
from headrace.records.compression import Codec
from headrace.records.fetched import read_records
from headrace.records.markers import Marker, build_marker
from headrace.records.reader import Record, decompressed, spans

NOW = 1_700_000_000_000


class Aborted(NamedTuple):
    producer_id: int
    first_offset: int


def record(value: bytes | None, key: bytes | None = None, timestamp: int = NOW, **headers: bytes | None) -> Record:
    return Record(0, timestamp, key, value, tuple(headers.items()))


def batch(*values: bytes, base_offset: int = 0, **options: object) -> bytes:
    return build_batch([record(value) for value in values], base_offset=base_offset, **options)  # type: ignore[arg-type]


def read(buffer: Buffer, **options: object) -> pa.Table:
    options = {"topic": "orders", "partition": 3, **options}
    found = list(decode(buffer, **options))  # type: ignore[arg-type]
    for one in found:
        one.validate(full=True)
        assert one.num_rows
    return pa.Table.from_batches(found, schema(headers=bool(options.get("headers"))))


def values(buffer: Buffer, **options: object) -> list[bytes | None]:
    """The values in bulk, and the same record by record: whatever is left out of one is left out of the other."""
    found: list[bytes | None] = read(buffer, **options).column("value").to_pylist()
    limits = {name: options[name] for name in ("first_offset", "end_offset", "aborted") if name in options}
    assert [each.value for each in read_records(buffer, **limits)] == found  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("codec", list(Codec))
def test_columns_are_those_of_sparks_kafka_source(codec: Codec) -> None:
    made = [record(b"one", b"a"), record(None, b"b", NOW + 5), record(b"", None, NOW - 7)]
    table = read(build_batch(made, codec=codec, base_offset=40))
    assert table.schema.names == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert table.column("key").to_pylist() == [b"a", b"b", None]
    assert table.column("value").to_pylist() == [b"one", None, b""]
    assert table.column("topic").to_pylist() == ["orders"] * 3
    assert table.column("partition").to_pylist() == [3] * 3
    assert table.column("offset").to_pylist() == [40, 41, 42]
    assert table.column("timestamp").cast(pa.int64()).to_pylist() == [NOW * 1000, (NOW + 5) * 1000, (NOW - 7) * 1000]
    assert table.column("timestampType").to_pylist() == [0] * 3


def test_log_append_time_is_the_brokers() -> None:
    table = read(batch(b"a", b"b", log_append_time_ms=NOW + 9) + batch(b"c", base_offset=2))
    assert table.column("timestampType").to_pylist() == [1, 1, 0]
    assert table.column("timestamp").cast(pa.int64()).to_pylist() == [(NOW + 9) * 1000] * 2 + [NOW * 1000]


def test_a_time_beyond_microseconds_is_null() -> None:
    made = [record(b"a"), record(b"b", timestamp=2**62), record(b"c", timestamp=-(2**63)), record(b"d", timestamp=-1)]
    times = read(build_batch(made)).column("timestamp").cast(pa.int64()).to_pylist()
    assert times == [NOW * 1000, None, None, -1000]


@pytest.mark.parametrize("codec", list(Codec))
def test_headers_come_when_they_are_asked_for(codec: Codec) -> None:
    made = [record(b"1", trace=b"x", empty=None), record(b"2"), record(b"3", blank=b"")]
    buffer = build_batch(made, codec=codec)
    assert read(buffer, headers=True).column("headers").to_pylist() == [
        [{"key": "trace", "value": b"x"}, {"key": "empty", "value": None}],
        None,
        [{"key": "blank", "value": b""}],
    ]
    assert values(buffer) == [b"1", b"2", b"3"]


def test_header_keys_that_are_not_text_are_shown_as_well_as_can_be() -> None:
    buffer = bytearray(build_batch([record(b"v", abc=b"x")]))
    at = buffer.index(b"abc")
    buffer[at] = 0xFF
    [headers] = read(resealed(buffer), headers=True).column("headers").to_pylist()
    assert headers == [{"key": "\ufffdbc", "value": b"x"}]


def test_a_record_of_very_many_headers_is_read() -> None:
    many = Record(0, NOW, None, b"v", tuple((f"h{i}", b"%d" % i) for i in range(3_000)))
    [headers] = read(build_batch([many]), headers=True).column("headers").to_pylist()
    assert [(one["key"], one["value"]) for one in headers] == list(many.headers)


def test_records_outside_the_wanted_offsets_are_cut_off() -> None:
    buffer = b"".join(batch(*(b"%d" % (10 * n + i) for i in range(10)), base_offset=10 * n) for n in range(4))
    assert values(buffer, first_offset=8, end_offset=12) == [b"8", b"9", b"10", b"11"]
    assert values(buffer, first_offset=39) == [b"39"]
    assert values(buffer, first_offset=40) == []
    assert values(buffer, end_offset=0) == []
    assert values(buffer, first_offset=5, end_offset=5) == []


def test_gaps_that_compaction_left_stay_gaps() -> None:
    whole = batch(*(b"%d" % i for i in range(100)), base_offset=1000)
    header = check_batch(whole)
    data = decompressed(whole, header)
    kept = [span for span in spans(data, header) if span.offset_delta % 7 == 3]
    emptied = retain(check_batch(batch(b"x", base_offset=1100)), b"", [])
    buffer = retain(header, data, kept) + emptied + batch(b"last", base_offset=1101)
    assert read(buffer).column("offset").to_pylist() == [*(1000 + i for i in range(100) if i % 7 == 3), 1101]
    assert next_offset(buffer, 0) == 1102


def test_a_batch_that_is_cut_off_at_the_end_is_left_out() -> None:
    first, second = batch(b"a"), batch(b"b", base_offset=1)
    for cut in range(len(second)):
        assert values(first + second[:cut]) == [b"a"]
    assert next_offset(first + second[:-1], 0) == 1
    assert next_offset(second[:-1], 1) == 1


def test_control_batches_are_left_out_but_count_for_the_next_offset() -> None:
    marker = bytearray(build_marker(7, 0, Marker(committed=True, coordinator_epoch=0), NOW))
    marker[:8] = (1).to_bytes(8, "big")
    buffer = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True) + bytes(marker)
    assert values(buffer) == [b"a"]
    assert next_offset(buffer, 0) == 2


def test_aborted_transactions_are_left_out_under_read_committed() -> None:
    def part(offset: int, producer_id: int, value: bytes) -> bytes:
        return batch(value, base_offset=offset, producer_id=producer_id, producer_epoch=0, base_sequence=0,
                     transactional=True)  # fmt: skip

    def ended(offset: int, producer_id: int, committed: bool) -> bytes:
        marker = bytearray(build_marker(producer_id, 0, Marker(committed, 0), NOW))
        marker[:8] = offset.to_bytes(8, "big")
        return bytes(marker)

    buffer = b"".join(
        (
            part(0, 1, b"aborted 1"), part(1, 2, b"kept 2"), batch(b"plain", base_offset=2), ended(3, 1, False),
            part(4, 1, b"kept 1"), ended(5, 2, True), ended(6, 1, True), part(7, 2, b"aborted 2"),
            part(8, 1, b"aborted again"), ended(9, 2, False), part(10, 2, b"kept again"), ended(11, 1, False),
        )
    )  # fmt: skip
    aborted = [Aborted(1, 8), Aborted(1, 0), Aborted(2, 7)]
    assert values(buffer, aborted=aborted) == [b"kept 2", b"plain", b"kept 1", b"kept again"]
    assert len(values(buffer)) == len(values(buffer, aborted=[])) == 7
    assert values(buffer, aborted=aborted, first_offset=8) == [b"kept again"]


def test_a_buffer_comes_in_chunks() -> None:
    buffer = b"".join(batch(b"x" * 1000, base_offset=n, codec=(n // 3) % 5) for n in range(60))
    found = list(decode(buffer, topic="t", partition=0, chunk_bytes=5_000))
    assert len(found) > 10
    assert [offset for one in found for offset in one.column("offset").to_pylist()] == list(range(60))


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 8_191, 8_193, 20_000])
@pytest.mark.parametrize("sizes", [(0,), (1, 50, 70), (5_000, 0, 63)])
def test_numbers_of_every_length_are_read(count: int, sizes: tuple[int, ...]) -> None:
    count = min(count, 300) if max(sizes) > 1000 else count
    made = [record(bytes(sizes[i % len(sizes)]), b"k" * (i % 130), NOW + (i * 7919) % 100_000) for i in range(count)]
    table = read(build_batch(made))
    assert table.column("value").to_pylist() == [one.value for one in made]
    assert table.column("key").to_pylist() == [one.key for one in made]
    assert table.column("timestamp").cast(pa.int64()).to_pylist() == [one.timestamp * 1000 for one in made]


def test_large_values_are_read() -> None:
    big = [bytes([n]) * size for n, size in enumerate((2**14, 2**20, 2**21 + 1, 9_000_000))]
    assert values(batch(*big)) == big


def test_many_small_batches_are_read_side_by_side() -> None:
    made = [[record(b"%d.%d" % (n, i) * (i % 40), b"%d" % i) for i in range(1 + n % 3)] for n in range(2_000)]
    buffer, offset = [], 0
    for one in made:
        buffer.append(build_batch(one, base_offset=offset))
        offset += len(one)
    assert values(b"".join(buffer)) == [each.value for one in made for each in one]


def test_any_kind_of_buffer_will_do() -> None:
    buffer = batch(b"a", b"b")
    for kind in (bytes, bytearray, memoryview):
        assert values(kind(buffer)) == [b"a", b"b"]
    assert values(memoryview(b"??" + buffer)[2:]) == [b"a", b"b"]


def test_nothing_gives_nothing() -> None:
    assert values(b"") == []


def resealed(one: bytearray) -> bytes:
    """With length and checksum right, so that what lies behind them is reached."""
    one[8:12] = (len(one) - 12).to_bytes(4, "big", signed=True)
    one[17:21] = crc32c(bytes(one[21:])).to_bytes(4, "big")
    return bytes(one)


def test_a_wrong_checksum_names_the_offset() -> None:
    damaged = bytearray(batch(b"good") + batch(b"bad", base_offset=1))
    damaged[-2] ^= 1
    with pytest.raises(CorruptBatch, match=r"batch at offset 1 .*checksum"):
        read(bytes(damaged))


@pytest.mark.parametrize("magic", [0, 1])
def test_records_from_before_kafka_0_11_are_refused(magic: int) -> None:
    legacy = bytes(8) + (20).to_bytes(4, "big") + bytes(4) + bytes([magic]) + bytes(15)
    with pytest.raises(CorruptBatch, match=f"version {magic}"):
        read(legacy)


def test_an_unknown_codec_is_refused() -> None:
    odd = bytearray(batch(b"a"))
    odd[22] |= 6
    with pytest.raises(RecordError, match="codec 6"):
        read(resealed(odd))


@pytest.mark.parametrize(
    ("at", "to", "reason"),
    [
        (61, 0x7E, "claims 63 bytes"),
        (61, 0xFF, "claims"),
        (62, 0xFF, None),
        (64, 0x07, "offset delta"),
        (65, 0x7E, "key"),
        (66, 0x7E, "value"),
        (60, 0x02, "claims 2 records|number"),
        (-1, 0x02, "headers"),
        (-1, 0x80, None),
    ],
)
def test_records_that_make_no_sense_are_refused(at: int, to: int, reason: str | None) -> None:
    odd = bytearray(batch(b"abc"))
    odd[at] = to
    if reason is None:
        outcome = None
        try:
            outcome = values(resealed(odd), headers=True)
        except InvalidRecord:
            return
        assert outcome == [b"abc"]
        return
    with pytest.raises(InvalidRecord, match=f"batch at offset 0 .*({reason})"):
        read(resealed(odd), headers=True)


def test_offsets_beyond_their_type_are_refused() -> None:
    odd = bytearray(batch(b"a", b"b"))
    odd[:8] = (2**63 - 2).to_bytes(8, "big")
    with pytest.raises(CorruptBatch, match="claims the offsets"):
        read(bytes(odd))


@pytest.mark.parametrize("count", [1, 63, 64, 65, 66, 127, 128, 129, 700, 5_000])
def test_records_of_one_size_and_others_among_them(count: int) -> None:
    """Those of one size are found at once, up to one of another size, which may be anywhere."""
    for odd in sorted({0, 1, 62, 63, 64, 65, 66, 128, 129, count // 2, count - 1, count}):
        made = [b"%0100d" % number + b"x" * 30 * (number == odd) for number in range(count)]
        assert values(batch(*made)) == made
    varied = [b"x" * (number * 7 % 90) for number in range(count)]
    assert values(batch(*varied)) == varied
    long = [b"%020000d" % number for number in range(min(count, 130))]
    assert values(batch(*long)) == long


def test_a_record_of_one_size_that_lies_about_its_length_is_refused() -> None:
    whole = batch(*(b"%0100d" % number for number in range(300)))
    header = check_batch(whole)
    # Behind each value stands the number of headers, none, in one byte.
    ends = [HEADER_SIZE + span.value_end + 1 for span in spans(decompressed(whole, header), header)]
    starts = [HEADER_SIZE, *ends]
    for length in (0, 1, 0x7F, 0x80, 0xFF):
        for place in (starts[at] for at in (0, 20, 63, 64, 65, 150, 299)):
            broken = bytearray(whole)
            broken[place : place + 2] = bytes([length, length])
            broken[17:21] = crc32c(bytes(broken[21:])).to_bytes(4)
            with pytest.raises(RecordError):
                values(bytes(broken))
