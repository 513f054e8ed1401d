"""Which ranges of a file the page cache has, by cachestat(2) and by probes."""

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.waiting import until

from headrace.runtime import page_cache
from headrace.runtime.disk import OsDisk
from headrace.runtime.page_cache import bring_in, has_any, is_cached

MIB = 1024 * 1024


@pytest.fixture(params=["cachestat", "probes"])
def file(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A file of 4 MiB on disk; the kernel either answers cachestat or does not have it."""
    if request.param == "probes":
        monkeypatch.setattr(page_cache, "_cached_pages", lambda *_: None)
    with tempfile.TemporaryFile(dir=Path(__file__).parent) as made:  # temporary folders are in memory on some machines
        made.write(bytes(4 * MIB))
        made.flush()
        os.fsync(made.fileno())
        yield made.fileno()


def leave_cached(fd: int, *ranges: tuple[int, int]) -> None:
    """Have nothing but these ranges, each a position and a length, in the page cache."""
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # reads nothing ahead
    for position, length in ranges:
        os.pread(fd, length, position)


def test_what_was_just_written_is_cached(file: int) -> None:
    assert is_cached(file, 0, 4 * MIB)
    assert is_cached(file, 12_345, 1)
    assert is_cached(file, 5_000, 3_000)


@pytest.mark.parametrize(
    ("position", "length"), [(0, 4 * MIB), (2 * MIB + 5, 100), (2 * MIB - 10, 20), (3 * MIB - 10, 20)]
)
def test_a_hole_anywhere_in_the_range_is_noticed(file: int, position: int, length: int) -> None:
    def is_noticed() -> bool:
        leave_cached(file, (0, 2 * MIB), (3 * MIB, MIB))
        assert is_cached(file, 0, 2 * MIB)
        assert is_cached(file, 3 * MIB, MIB)
        return not is_cached(file, position, length)

    # A probe makes the kernel read what it misses, and a quick disk may have it before the probe returns.
    assert any(is_noticed() for _ in range(20))


def test_a_range_beyond_the_end_is_not_cached(file: int) -> None:
    assert not is_cached(file, 3 * MIB, 2 * MIB)


def test_an_empty_range_needs_nothing(file: int) -> None:
    assert is_cached(file, 10 * MIB, 0)


def test_a_descriptor_that_cannot_be_read_is_not_cached(tmp_path: Path) -> None:
    closed = os.open(tmp_path / "gone", os.O_RDWR | os.O_CREAT)
    os.close(closed)
    assert not is_cached(closed, 0, 10)


def test_bytes_are_brought_in_up_to_the_end_of_the_file(file: int) -> None:
    leave_cached(file)
    assert bring_in(file, MIB, MIB) == MIB
    assert is_cached(file, MIB, MIB)
    assert bring_in(file, 3 * MIB, 5 * MIB) == MIB
    assert bring_in(file, 9 * MIB, 1) == 0


def test_bytes_are_brought_in_where_the_file_system_has_no_sendfile(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> int:
        raise OSError(errno.EINVAL, "played")

    monkeypatch.setattr(os, "sendfile", refuse)
    leave_cached(file)
    assert bring_in(file, MIB, MIB + 1) == MIB + 1
    assert is_cached(file, MIB, MIB + 1)
    assert bring_in(file, 3 * MIB, 5 * MIB) == MIB


def test_errors_of_the_disk_are_raised(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: int) -> int:
        raise OSError(errno.EIO, "played")

    monkeypatch.setattr(os, "sendfile", fail)
    with pytest.raises(OSError, match="played"):
        bring_in(file, 0, 1)


def test_a_range_without_any_cached_bytes(file: int) -> None:
    leave_cached(file, (MIB, 1))
    assert has_any(file, 0, 2 * MIB)
    if page_cache._cached_pages(file, 0, 1) is None:
        assert has_any(file, 2 * MIB, MIB), "the kernel does not tell"
    else:
        assert not has_any(file, 2 * MIB, MIB)


def test_a_file_is_reopened_in_order_though_its_name_is_gone_and_dropped_from_the_page_cache() -> None:
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as folder:
        path = Path(folder) / "segment"
        path.write_bytes(os.urandom(4 * MIB))
        file = OsDisk().open_read_only(path)
        file.sync_data()
        file.disable_read_ahead()
        path.rename(path.with_suffix(".deleted"))
        path.write_bytes(b"another")
        ordered = file.reopened_in_order()
        assert ordered.read(0, MIB) == file.read(0, MIB)
        file.drop_cached(0, 4 * MIB)
        if page_cache._cached_pages(0, 0, 1) is not None:
            assert not file.has_any_cached(MIB, MIB)
        assert ordered.bring_in(0, 5 * MIB) == 4 * MIB
        assert file.is_cached(0, 4 * MIB)
        file.drop_cached(0, 4 * MIB)
        assert file.bring_in(MIB, MIB) == MIB
        assert file.is_cached(MIB, MIB)


def test_a_file_without_reading_ahead_reads_what_is_asked_for() -> None:
    """The event loop reads headers of old segments one after the other, and must not start the reading of megabytes."""
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as folder:
        path = Path(folder) / "segment"
        path.write_bytes(bytes(8 * MIB))
        file = OsDisk().open_read_only(path)
        file.sync_data()
        file.disable_read_ahead()
        fd = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            for position in range(0, MIB, 4096):
                file.read(position, 4096)
            assert is_cached(fd, 0, MIB)
            assert not any(is_cached(fd, at, 1) for at in range(MIB, 8 * MIB, 64 * 1024))
            file.read_ahead(2 * MIB, MIB)
            until(lambda: is_cached(fd, 2 * MIB, MIB), "what was to be read ahead")
            assert not is_cached(fd, 4 * MIB, 1)
        finally:
            os.close(fd)
