"""Damage to the files of a log, done by hand: a torn tail is cut off, anything else is set aside and said aloud."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.history import read_partition
from tests.interop import batches, raw_client, subject
from tests.interop.subject import Subject

Error = raw_client.Error
pytestmark = pytest.mark.skipif(not subject.IS_HEADRACE, reason="about the files of Headrace")

COUNT = 50
PER_SEGMENT = 10


@pytest.fixture
def broker_with_log(own_broker: Callable[..., Subject]) -> Subject:
    """Fifty records of 100 kB in a topic with segments of a megabyte."""
    broker = own_broker()
    raw_client.create_topic(broker.bootstrap, "damaged", 1, {"segment.bytes": "1048576"})
    with raw_client.Connection(broker.bootstrap) as connection:
        for number in range(COUNT):
            sent = batches.batch([b"%d-" % number + b"x" * 100_000])
            assert raw_client.produce(connection, "damaged", sent).error_code == Error.none
    return broker


def segments(broker: Subject) -> list[Path]:
    """The segment files of the topic, oldest first."""
    (folder,) = {file.parent for file in broker.data_dir.rglob("*.log") if "damaged-" in file.parent.name}
    return sorted(folder.glob("*.log"))


def numbers(broker: Subject) -> list[int]:
    return [
        int((value or b"").split(b"-")[0]) for _, value in sorted(read_partition(broker.bootstrap, "damaged").items())
    ]


@pytest.mark.parametrize(
    "tail",
    [b"\x00", bytes(70), os.urandom(500), bytes(5000), batches.batch([b"half of it" * 100])[:-200], b"\xff" * 61],
    ids=["byte", "zeros", "random", "page", "half a batch", "ones"],
)
def test_a_torn_tail_is_cut_off(tail: bytes, broker_with_log: Subject) -> None:
    broker = broker_with_log
    broker.kill()
    with segments(broker)[-1].open("ab") as file:
        file.write(tail)
    broker.start()
    assert numbers(broker) == list(range(COUNT))
    with raw_client.Connection(broker.bootstrap) as connection:
        assert raw_client.produce(connection, "damaged", batches.batch([b"50-next"])).base_offset == COUNT
    assert numbers(broker) == list(range(COUNT + 1))


def flip(file: Path, at: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(at)
        (byte,) = opened.read(1)
        opened.seek(at)
        opened.write(bytes([byte ^ 0x10]))


def test_a_flipped_bit_in_the_middle_costs_that_batch_alone(broker_with_log: Subject) -> None:
    broker = broker_with_log
    broker.kill()
    # The broker was killed, so the active segment is checked as a whole when it starts.
    active = segments(broker)[-1]
    first = int(active.stem)
    assert first < COUNT - 2
    flip(active, 50_000)
    said = len(broker.stderr)
    broker.start()
    assert str(active.name) in broker.stderr[said:]
    assert numbers(broker) == [number for number in range(COUNT) if number != first]
    assert list(active.parent.glob("*.corrupt*"))
    with raw_client.Connection(broker.bootstrap) as connection:
        assert raw_client.produce(connection, "damaged", batches.batch([b"50-next"])).base_offset == COUNT


def test_lost_indexes_are_made_anew(broker_with_log: Subject) -> None:
    broker = broker_with_log
    broker.kill()
    folder = segments(broker)[0].parent
    removed = [file for file in folder.iterdir() if file.suffix in (".index", ".timeindex")]
    assert removed
    for file in removed:
        file.unlink()
    broker.start()
    assert numbers(broker) == list(range(COUNT))
    with raw_client.Connection(broker.bootstrap) as connection:
        for offset in (0, 17, COUNT - 1):
            (found, *_) = batches.parse(raw_client.fetch(connection, "damaged", offset, partition_max_bytes=1).records)
            assert found.base_offset == offset
        assert raw_client.offset_at(connection, "damaged", batches.now_ms() + 1000).offset == -1


@pytest.mark.parametrize("content", [b"", b"\xff" * 100, os.urandom(64)], ids=["empty", "ones", "random"])
def test_damaged_caches_are_made_anew(content: bytes, broker_with_log: Subject) -> None:
    broker = broker_with_log
    broker.kill()
    for file in segments(broker)[0].parent.iterdir():
        if file.suffix != ".log":
            file.write_bytes(content)
    broker.start()
    assert numbers(broker) == list(range(COUNT))
    with raw_client.Connection(broker.bootstrap) as connection:
        assert raw_client.produce(connection, "damaged", batches.batch([b"50-next"])).base_offset == COUNT


def test_a_read_that_meets_damage_does_not_pass_it_on(broker_with_log: Subject) -> None:
    """After a clean stop nothing is checked at the start. The client's own checksum meets the flipped bit."""
    broker = broker_with_log
    assert broker.terminate() == 0
    flip(segments(broker)[0], 50_000)
    broker.start()
    with raw_client.Connection(broker.bootstrap) as connection:
        raw_client.wait_topic(connection, "damaged", 1)
        found = raw_client.fetch(connection, "damaged", 1)
        assert (batches.values(found.records)[0] or b"").startswith(b"1-")
        assert raw_client.produce(connection, "damaged", batches.batch([b"50-next"])).base_offset == COUNT
