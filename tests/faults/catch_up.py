"""A consumer that reads a topic from its start as fast as it can, in a process of its own, and looks at nothing.

python -m tests.faults.catch_up ADDRESS TOPIC PARTITIONS      prints the bytes and seconds as JSON
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.faults.json_process import JsonProcess
from tests.interop import raw_client

FETCH_BYTES = 4 << 20
_HEADER_BYTES = 61


class CaughtUp(NamedTuple):
    bytes: int
    seconds: float


def read_all(address: str, topic: str, partitions: int) -> CaughtUp:
    began_s, size = time.monotonic(), 0
    with raw_client.Connection(address) as connection:
        for partition in range(partitions):
            offset, end = 0, raw_client.offset_at(connection, topic, -1, partition=partition).offset
            while offset < end:
                found = raw_client.fetch(
                    connection, topic, offset, partition=partition, partition_max_bytes=FETCH_BYTES
                )
                assert found.error_code is raw_client.Error.none, found.error_code
                records = memoryview(found.records)
                size += len(records)
                for batch in whole_batches(records):
                    offset = batch.next_offset
    return CaughtUp(size, time.monotonic() - began_s)


class WholeBatch(NamedTuple):
    base_offset: int
    next_offset: int
    data: memoryview


def whole_batches(records: memoryview) -> Iterator[WholeBatch]:
    """The batches of a fetch without one that is cut off at the end; there must be one at least."""
    at = 0
    while (left := len(records) - at) >= _HEADER_BYTES and left >= (
        size := 12 + int.from_bytes(records[at + 8 : at + 12])
    ):
        base = int.from_bytes(records[at : at + 8])
        yield WholeBatch(base, base + int.from_bytes(records[at + 23 : at + 27]) + 1, records[at : at + size])
        at += size
    assert at, "a fetch without a whole batch"


class CatchUpProcess(JsonProcess):
    """A consumer of old data in a process of its own."""

    def __init__(self, address: str, topic: str, partitions: int) -> None:
        super().__init__(__name__, address, topic, str(partitions))

    def wait(self, timeout_s: float = 600) -> CaughtUp:
        return CaughtUp(*self.result(timeout_s))


def make_cold(folder: Path) -> None:
    """Remove the files of a topic's partition from the page cache."""
    for path in folder.glob("*.log"):
        file = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)


def main() -> None:
    address, topic, partitions = sys.argv[1:]
    print(json.dumps(read_all(address, topic, int(partitions))))


if __name__ == "__main__":
    main()
