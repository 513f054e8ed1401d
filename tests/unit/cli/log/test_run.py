"""`headrace log dump` and `headrace log verify`, run as processes on folders made here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.records.batch import check_batch
from headrace.records.builder import build_batch
from headrace.records.compression import Codec
from headrace.records.reader import Record
from headrace.storage.index import OFFSET_ENTRY, TIME_ENTRY

NOW = 1_700_000_000_000


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "headrace", "log", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "NO_COLOR": "1", "COLUMNS": "160"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    with start(*arguments) as process:
        stdout, stderr = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def record(number: int) -> Record:
    return Record(0, NOW + number * 1000, f"key-{number}".encode(), f"value-{number}".encode())


def batches(first: int, count: int, codec: int = 0) -> list[bytes]:
    """Batches of two records each."""
    return [
        build_batch([record(offset), record(offset + 1)], base_offset=offset, codec=codec, leader_epoch=0)
        for offset in range(first, first + 2 * count, 2)
    ]


def write_segment(folder: Path, base: int, stored: list[bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{base:020d}.log"
    path.write_bytes(b"".join(stored))
    offsets, times, position = b"", b"", 0
    for batch in stored:
        header = check_batch(batch)
        offsets += OFFSET_ENTRY.pack(header.last_offset - base, position)
        times += TIME_ENTRY.pack(header.max_timestamp, header.last_offset - base)
        position += len(batch)
    path.with_suffix(".index").write_bytes(offsets)
    path.with_suffix(".timeindex").write_bytes(times)
    return path


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A topic of two partitions, the first of two segments of ten records each, and a topic with special records."""
    write_segment(tmp_path / "orders-0", 0, batches(0, 5, Codec.LZ4))
    write_segment(tmp_path / "orders-0", 10, batches(10, 5))
    write_segment(tmp_path / "orders-1", 0, batches(0, 1))
    special = [
        Record(0, NOW, None, b"\xff\x00", (("trace", b"abc"), ("none", None))),
        Record(1, -1, "größe".encode(), None),
        Record(2, NOW, b"", b"line\nbreak"),
    ]
    write_segment(tmp_path / "my-topic-7", 0, [build_batch(special, producer_id=5, producer_epoch=1, base_sequence=9)])
    return tmp_path


def json_lines(*arguments: object) -> list[dict[str, object]]:
    done = run("dump", *arguments, "--format", "json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_dump_a_data_directory(data_dir: Path) -> None:
    lines = json_lines(data_dir)
    assert [(line["topic"], line["partition"], line["offset"]) for line in lines] == [
        *(("my-topic", 7, offset) for offset in range(3)),
        *(("orders", 0, offset) for offset in range(20)),
        *(("orders", 1, offset) for offset in range(2)),
    ]
    assert lines[5] == {
        "topic": "orders", "partition": 0, "offset": 2, "timestamp": NOW + 2000,
        "key": "key-2", "value": "value-2", "headers": [],
    }  # fmt: skip


def test_dump_part_of_it(data_dir: Path) -> None:
    def offsets(*arguments: object) -> list[object]:
        return [line["offset"] for line in json_lines(data_dir, "--topic", "orders", "--partition", 0, *arguments)]

    assert offsets("--from", 7, "--to", 13) == list(range(7, 13))
    assert offsets("--from", 18) == [18, 19]
    assert offsets("--max", 3) == [0, 1, 2]
    assert offsets("--since", NOW + 15_000) == list(range(15, 20))
    assert offsets("--since", NOW + 3_000, "--until", NOW + 6_000) == [3, 4, 5]
    assert offsets("--from", 99) == []


def test_dump_a_folder_or_a_file(data_dir: Path) -> None:
    assert len(json_lines(data_dir / "orders-0")) == 20
    assert [line["offset"] for line in json_lines(data_dir / "orders-0" / f"{10:020d}.log")] == list(range(10, 20))


def test_dump_as_text(data_dir: Path) -> None:
    done = run("dump", data_dir / "my-topic-7")
    assert done.stdout.splitlines() == [
        "my-topic-7 offset 0  2023-11-14T22:13:20.000Z  key null  value 0xff00  headers trace=abc, none=null",
        "my-topic-7 offset 1  no time  key größe  value null",
        'my-topic-7 offset 2  2023-11-14T22:13:20.000Z  key ""  value "line\\nbreak"',
    ]
    assert "value 0x6c696e650a627265616b" in run("dump", data_dir / "my-topic-7", "--format", "hex").stdout


def test_dump_json_keeps_what_is_not_text(data_dir: Path) -> None:
    first = json_lines(data_dir / "my-topic-7")[0]
    assert first["value"] == {"base64": "/wA="}
    assert first["headers"] == [["trace", "abc"], ["none", None]]


def test_dump_batches(data_dir: Path) -> None:
    (line,) = run("dump", data_dir / "my-topic-7", "--batches").stdout.splitlines()
    assert "offsets 0 to 2  position 0" in line
    assert "3 records  codec none" in line
    assert "producer 5/1 sequence 9" in line
    documents = json_lines(data_dir / "orders-0", "--batches", "--from", 5, "--to", 11)
    assert [(d["base_offset"], d["last_offset"], d["codec"], d["valid"]) for d in documents] == [
        (4, 5, "lz4", True), (6, 7, "lz4", True), (8, 9, "lz4", True), (10, 11, "none", True),
    ]  # fmt: skip


def test_dump_names_damage_and_goes_on(data_dir: Path) -> None:
    path = data_dir / "orders-0" / f"{10:020d}.log"
    content = bytearray(path.read_bytes())
    content[65] ^= 0xFF
    path.write_bytes(content)
    done = run("dump", data_dir / "orders-0", "--format", "json")
    assert done.returncode == 1
    assert [json.loads(line)["offset"] for line in done.stdout.splitlines()] == [*range(10), *range(12, 20)]
    assert f"{path} at byte 0: a record batch has a wrong checksum (offsets 10 to 11)" in done.stderr


def test_dump_ends_quietly_before_a_batch_that_is_being_written(data_dir: Path) -> None:
    path = data_dir / "orders-1" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes() + batches(2, 1)[0][:80])
    assert [line["offset"] for line in json_lines(data_dir / "orders-1")] == [0, 1]


@pytest.mark.parametrize("command", ["dump", "verify"])
def test_nothing_there(command: str, tmp_path: Path, data_dir: Path) -> None:
    for arguments, complaint in (
        ([tmp_path / "nowhere"], "does not exist"),
        ([data_dir, "--topic", "unknown"], "has no topic unknown"),
        ([data_dir, "--topic", "orders", "--partition", 4], "has no topic orders with partition 4"),
    ):
        done = run(command, *arguments)
        assert done.returncode == 2
        assert complaint in done.stderr
        assert "Traceback" not in done.stderr
    (tmp_path / "empty").mkdir()
    assert "holds no logs" in run(command, tmp_path / "empty").stderr


def test_verify_finds_nothing_wrong(data_dir: Path) -> None:
    done = run("verify", data_dir, "--records")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("All is well: 3 logs, 4 segments, ")


def damage(path: Path, position: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


def verify(path: Path, *arguments: str) -> str:
    done = run("verify", path, *arguments)
    assert done.returncode == 1
    assert "problem" in done.stderr
    return done.stdout


def test_verify_finds_wrong_checksums(data_dir: Path) -> None:
    path = data_dir / "orders-0" / f"{10:020d}.log"
    damage(path, 100, b"\xff\xff")
    assert f"{path} at byte 0: a record batch has a wrong checksum (offsets 10 to 11)" in verify(data_dir)


def test_verify_finds_bytes_that_are_no_batch(data_dir: Path) -> None:
    path = data_dir / "orders-1" / f"{0:020d}.log"
    end = path.stat().st_size
    path.write_bytes(path.read_bytes() + b"\0" * 100)
    assert f"{path} at byte {end}: there is no record batch" in verify(data_dir)


def test_verify_finds_a_torn_end(data_dir: Path) -> None:
    path = data_dir / "orders-0" / f"{10:020d}.log"
    os.truncate(path, path.stat().st_size - 5)
    assert "bytes are not a whole batch; a broker that was killed leaves that" in verify(data_dir)


def test_verify_is_not_fooled_by_a_log_that_grows(data_dir: Path) -> None:
    path = data_dir / "orders-1" / f"{0:020d}.log"
    more = b"".join(batches(2, 2000))
    with path.open("ab", buffering=0) as file, start("verify", data_dir) as process:
        position = 0
        while process.poll() is None:
            position += file.write(more[position : position + 77]) if position < len(more) else 0
        file.write(more[position:])
    assert process.returncode == 0


def test_verify_finds_offsets_out_of_order(data_dir: Path) -> None:
    path = data_dir / "orders-0" / f"{10:020d}.log"
    damage(path, 0, (3).to_bytes(8, "big"))
    assert f"{path} at byte 0: offsets 3 to 4 are out of order, 10 is next" in verify(data_dir)


def test_verify_finds_segments_that_overlap(data_dir: Path) -> None:
    (data_dir / "orders-0" / f"{10:020d}.log").rename(data_dir / "orders-0" / f"{8:020d}.log")
    assert "starts at offset 8, the segment before goes on to 9" in verify(data_dir)


def test_verify_finds_indexes_that_disagree(data_dir: Path) -> None:
    path = data_dir / "orders-0" / f"{10:020d}.index"
    damage(path, 12, (7).to_bytes(4, "big"))
    assert f"{path}: entry 1: no batch that ends with offset 13 is at byte 7 of the log" in verify(data_dir)
    path = path.with_suffix(".timeindex")
    damage(path, 0, (NOW).to_bytes(8, "big"))
    assert f"{path}: entry 0: {NOW} is not the newest timestamp up to offset 11" in verify(data_dir)


def test_verify_decodes_records_when_asked(data_dir: Path) -> None:
    from crc32c import crc32c

    path = data_dir / "orders-1" / f"{0:020d}.log"
    damage(path, 61, b"\x00")
    damage(path, 17, crc32c(path.read_bytes()[21:]).to_bytes(4, "big"))
    assert run("verify", data_dir).returncode == 0
    assert "record 0 of a batch claims 0 bytes" in verify(data_dir, "--records")


def test_help_teaches() -> None:
    text = run("dump", "--help").stdout
    assert "--batches" in text
    assert "headrace log dump headrace-data/orders-0" in text
    assert "Exit code 0" in run("verify", "--help").stdout
