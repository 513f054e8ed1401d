"""The audit log as a file."""

import stat

from headrace.app.audit_file import AuditFile


def lines(path):
    return path.read_bytes().splitlines()


def test_events_are_lines_that_only_the_owner_may_read(tmp_path):
    path = tmp_path / "new" / "audit.log"
    AuditFile(path).append([b"one", b"two"], max_bytes=100, max_files=3)
    AuditFile(path).append([b"three"], max_bytes=100, max_files=3)
    assert lines(path) == [b"one", b"two", b"three"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_full_file_is_renamed_and_the_oldest_deleted(tmp_path):
    path = tmp_path / "audit.log"
    file = AuditFile(path)
    for number in range(10):
        file.append([b"event %d" % number], max_bytes=16, max_files=2)
    assert lines(path) == [b"event 8", b"event 9"]
    assert lines(tmp_path / "audit.log.1") == [b"event 6", b"event 7"]
    assert lines(tmp_path / "audit.log.2") == [b"event 4", b"event 5"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["audit.log", "audit.log.1", "audit.log.2"]


def test_one_write_may_fill_several_files(tmp_path):
    path = tmp_path / "audit.log"
    AuditFile(path).append([b"event %d" % number for number in range(5)], max_bytes=16, max_files=5)
    assert lines(path) == [b"event 4"]
    assert lines(tmp_path / "audit.log.2") == [b"event 0", b"event 1"]


def test_an_event_larger_than_a_file_is_written_all_the_same(tmp_path):
    path = tmp_path / "audit.log"
    AuditFile(path).append([b"x" * 100, b"y"], max_bytes=16, max_files=5)
    assert lines(path) == [b"y"]
    assert lines(tmp_path / "audit.log.1") == [b"x" * 100]
