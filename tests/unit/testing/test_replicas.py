"""Copies of a partition are compared byte by byte, up to the high watermark and no further."""

import shutil
from pathlib import Path

import pytest

from headrace.runtime.disk import OsDisk
from headrace.testing.logs import PARTITION, LogBench
from headrace.testing.replicas import find_divergence

NAME = str(PARTITION)


@pytest.fixture
def copies(tmp_path: Path) -> dict[str, Path]:
    """The same partition on three brokers, 40 records in several segments."""
    first = tmp_path / "1"
    first.mkdir()
    bench = LogBench(OsDisk(), root=first)
    for number in range(40):
        bench.append(b"%04d" % number + b"." * 50)
    bench.manager.stop()
    for name in ("2", "3"):
        shutil.copytree(first, tmp_path / name)
    return {name: tmp_path / name for name in ("1", "2", "3")}


def segments(data_dir: Path) -> list[Path]:
    found = sorted((data_dir / NAME).glob("*.log"))
    assert len(found) > 2
    return found


def test_equal_copies_do_not_differ(copies: dict[str, Path]) -> None:
    assert find_divergence(copies, {NAME: 40}) == []


def test_one_bit_is_found_in_whatever_copy_it_is(copies: dict[str, Path]) -> None:
    segment = segments(copies["2"])[1]
    data = bytearray(segment.read_bytes())
    data[-5] ^= 1
    segment.write_bytes(data)
    (line,) = find_divergence(copies, {NAME: 40})
    assert line.startswith(f"{NAME} on 1 and 2: they differ in the batch at offset")


def test_past_the_high_watermark_a_copy_may_differ_and_be_shorter(copies: dict[str, Path]) -> None:
    last = segments(copies["3"])[-1]
    base = int(last.stem)
    last.write_bytes(b"")
    assert find_divergence(copies, {NAME: base}) == []
    assert find_divergence(copies, {NAME: base + 1}) == [
        f"{NAME} on 1 and 3: only one has offset {base}, below the high watermark {base + 1}"
    ]


def test_a_copy_may_begin_later(copies: dict[str, Path]) -> None:
    segments(copies["1"])[0].unlink()
    assert find_divergence(copies, {NAME: 40}) == []


def test_other_partitions_are_left_alone(copies: dict[str, Path]) -> None:
    segments(copies["1"])[-1].write_bytes(b"")
    assert find_divergence(copies, {"orders-1": 40}) == []
