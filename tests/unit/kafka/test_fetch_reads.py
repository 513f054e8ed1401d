"""Encrypted slices are decrypted in turns that take about as long, whatever the size of their batches."""

import pytest

from headrace.config.topic import TopicSettings
from headrace.kafka.fetch_reads import PartitionSlice, read_in_turns
from headrace.kafka.fetch_sessions import PartitionKey
from headrace.protocol.fast import FetchedPartition
from headrace.testing.logs import DATA_KEYS, LogBench


@pytest.mark.parametrize(("value_bytes", "batches", "turns_max"), [(60_000, 16, 1), (1_000, 900, 5)])
def test_turns_are_bounded_by_bytes_and_batches(value_bytes: int, batches: int, turns_max: int) -> None:
    bench = LogBench(keys=DATA_KEYS, settings=TopicSettings())
    for _ in range(batches):
        bench.append(bytes(value_bytes))
    cut = bench.log.slice(0, 1 << 20, bench.log.end_offset, at_least_one=True)
    assert cut is not None
    part = FetchedPartition(0, 0)
    turns, read = 1, read_in_turns([PartitionSlice(PartitionKey("t", 0), None, part, cut)], [part])
    while True:
        try:
            next(read)
        except StopIteration as done:
            (found,) = done.value
            break
        turns += 1
    assert b"".join(found.records) == bytes(cut.read())
    assert turns <= turns_max
    assert (turns > 1) is (turns_max > 1)
