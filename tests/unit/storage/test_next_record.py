"""The first record at or after an offset that consumers are to read, and its time."""

import pytest

from headrace.records.batch import read_header
from headrace.records.builder import build_batch, retain
from headrace.records.reader import Record, decompressed, spans
from headrace.storage.times import NextRecord
from headrace.testing.logs import DATA_KEYS, LogBench

START_MS = 1_700_000_000_000


def append(bench: LogBench, *ages: int, codec: int = 0, append_time_ms: int | None = None) -> None:
    """Append one batch with records of these times."""
    batch = build_batch(
        [Record(0, START_MS + age, b"k", b"v") for age in ages], codec=codec, log_append_time_ms=append_time_ms
    )
    bench.log.append(batch, read_header(batch), 0)


def times(bench: LogBench) -> list[int | None]:
    end = bench.log.end_offset
    found = [bench.log.next_record(offset, end).timestamp for offset in range(end + 1)]
    return [None if time_ms is None else time_ms - START_MS for time_ms in found]


@pytest.mark.parametrize("codec", [0, 1, 4])
@pytest.mark.parametrize("is_encrypted", [False, True])
def test_every_record_of_every_batch(codec: int, is_encrypted: bool) -> None:
    bench = LogBench(keys=DATA_KEYS if is_encrypted else None)
    expected: list[int | None] = []
    for number in range(40):
        ages = [number * 100 + step * 7 for step in range(number % 4 + 1)]
        append(bench, *ages, codec=codec)
        expected += ages
    assert len(bench.log.segments) > 3
    assert times(bench) == [*expected, None]


def test_records_with_the_time_of_the_broker_are_not_decoded() -> None:
    bench = LogBench()
    append(bench, 1, 2, 3, append_time_ms=START_MS + 50)
    assert [bench.log.next_record(offset, 3, decodes=False) for offset in range(3)] == [
        NextRecord(offset, START_MS + 50) for offset in range(3)
    ]


def test_without_decoding_the_time_is_that_of_the_batch() -> None:
    bench = LogBench()
    append(bench, 10, 20, 30)
    assert bench.log.next_record(0, 3, decodes=False) == NextRecord(0, START_MS + 10)
    assert bench.log.next_record(2, 3, decodes=False) == NextRecord(2, START_MS + 10, is_exact=False)
    assert bench.log.next_record(2, 3) == NextRecord(2, START_MS + 30)


def test_markers_and_aborted_records_are_passed_over() -> None:
    bench = LogBench()
    bench.append(b"a", b"b", producer=1, sequence=0, transactional=True, timestamp=START_MS + 1)
    bench.end_transaction(1, committed=False)
    bench.append(b"c", producer=1, sequence=2, transactional=True, timestamp=START_MS + 4)
    bench.end_transaction(1, committed=True)
    # a and b are at 0 and 1, the marker at 2, c at 3, its marker at 4.
    assert times(bench) == [4, 4, 4, 4, None, None]
    assert bench.log.next_record(4, 5) == NextRecord(5, None)


def test_nothing_past_the_limit_is_found() -> None:
    bench = LogBench()
    append(bench, 1)
    append(bench, 2)
    assert bench.log.next_record(1, 1) == NextRecord(1, None)
    assert bench.log.next_record(0, 1).timestamp == START_MS + 1


def test_where_compaction_removed_records_the_next_one_counts() -> None:
    bench = LogBench()
    batches = [build_batch([Record(0, START_MS + 100 * n + at, b"k", b"v") for at in range(3)]) for n in range(3)]
    # Of the first batch the last record is left, of the second one none, of the third one the first.
    for number, left in enumerate([{2}, set[int](), {0}]):
        header = read_header(batches[number])._replace(base_offset=3 * number, leader_epoch=0)
        data = decompressed(batches[number], header)
        retained = [span for span in spans(data, header) if span.offset_delta in left]
        bench.log.append_replicated(retain(header, data, retained))
    append(bench, 999)
    assert bench.log.end_offset == 10
    assert times(bench) == [2] * 3 + [200] * 4 + [999] * 3 + [None]


def test_a_delete_horizon_is_no_time_of_a_record() -> None:
    bench = LogBench()
    batch = build_batch([Record(0, START_MS + at, b"k", None) for at in range(2)])
    header = read_header(batch)._replace(leader_epoch=0)
    data = decompressed(batch, header)
    bench.log.append_replicated(retain(header, data, list(spans(data, header)), delete_horizon_ms=START_MS * 2))
    assert times(bench) == [0, 1, None]
