"""Promotion of a mirror's log: open transactions, the reset marker, and producers with clashing ids."""

import pytest

from headrace.model.errors import CorruptBatch, InvalidRecord, OutOfOrderSequence
from headrace.model.invariants import InvariantViolation
from headrace.records.batch import iter_headers, read_header
from headrace.records.builder import build_batch
from headrace.records.markers import RESET_MARKER, build_reset_marker, read_control, read_marker
from headrace.records.reader import Record
from headrace.storage.log import Log
from headrace.storage.promotion import is_promoted, promote, promotion_offset
from headrace.testing.disks import ModelDisk
from headrace.testing.logs import DATA_KEYS, SMALL, LogBench

LOCAL = 100


def bytes_of(log: Log) -> bytes:
    parts, offset = [], log.start_offset
    while offset < log.end_offset:
        cut = log.slice(offset, 1 << 20, log.end_offset, at_least_one=True)
        assert cut is not None
        data = bytes(cut.read())
        parts.append(data)
        offset = [header for _, header in iter_headers(data)][-1].next_offset
    return b"".join(parts)


def source() -> LogBench:
    bench = LogBench(ModelDisk())
    bench.append(b"a", producer=1, sequence=0, epoch=3)
    bench.append(b"b", producer=2, sequence=0, transactional=True, epoch=3)
    bench.append(b"c", producer=3, sequence=0, transactional=True, epoch=7)
    bench.end_transaction(2, committed=False, epoch=7)
    return bench


def mirror_of(bench: LogBench, **options: object) -> LogBench:
    mirror = LogBench(ModelDisk(), **options)  # type: ignore[arg-type]
    mirror.log.append_mirrored(bytes_of(bench.log))
    return mirror


def test_a_mirrored_log_has_the_bytes_and_epochs_of_its_source() -> None:
    original = source()
    mirror = mirror_of(original)
    assert bytes_of(mirror.log) == bytes_of(original.log)
    assert mirror.log.epochs.entries() == original.log.epochs.entries() == [(3, 0), (7, 2)]
    assert mirror.log.producers.first_open_offset == 2
    assert list(mirror.log.aborted) == list(original.log.aborted)


def test_an_encrypted_mirror_reads_as_its_source() -> None:
    original = source()
    mirror = mirror_of(original, keys=DATA_KEYS)
    assert mirror.log.size_bytes > original.log.size_bytes
    assert bytes_of(mirror.log) == bytes_of(original.log)


def test_promotion_aborts_what_is_open_and_resets_producers() -> None:
    mirror = mirror_of(source())
    assert not is_promoted(mirror.log, LOCAL)
    assert promotion_offset(mirror.log, LOCAL) is None
    assert promote(mirror.log, LOCAL, LOCAL + 1) == 1
    assert is_promoted(mirror.log, LOCAL)
    assert promotion_offset(mirror.log, LOCAL) == 4
    assert [entry.producer_id for entry in mirror.log.aborted] == [2, 3]
    assert mirror.log.producers.first_open_offset is None
    assert len(mirror.log.producers) == 0
    assert promote(mirror.log, LOCAL, LOCAL + 2) == 0
    assert mirror.log.end_offset == 6


def test_a_local_producer_with_a_mirrored_id_is_no_duplicate() -> None:
    mirror = mirror_of(source())
    with_same_id = mirror.log.producers.check(1, 0, 0, 0)
    assert with_same_id is not None, "without the promotion it would be a duplicate"
    promote(mirror.log, LOCAL, LOCAL)
    first = mirror.append(b"local", producer=1, sequence=0, epoch=LOCAL)
    assert (first.duplicate, first.base_offset) == (False, 6)
    assert mirror.append(b"local", producer=1, sequence=0, epoch=LOCAL).duplicate


@pytest.mark.parametrize("how", ["recovery", "clean", "without snapshots", "rolled", "compacted epochs"])
def test_the_reset_is_replayed(how: str) -> None:
    mirror = mirror_of(source())
    if how == "rolled":
        mirror.log.roll()
    promote(mirror.log, LOCAL, LOCAL)
    mirror.append(b"local", producer=3, sequence=0, epoch=LOCAL)
    if how == "clean":
        again = mirror.reopen_cleanly()
    else:
        mirror.flush()
        if how == "without snapshots":
            mirror.checkpoint()
            for name in mirror.disk.files(mirror.folder):
                if name.endswith(".snapshot"):
                    mirror.disk.unlink(mirror.folder / name)
        if how == "compacted epochs":
            mirror.disk.unlink(mirror.folder / "leader-epoch-checkpoint")
        again = mirror.reopen()
    assert [producer for producer, _ in again.log.producers.items()] == [3]
    assert is_promoted(again.log, LOCAL)
    assert promotion_offset(again.log, LOCAL) == 4


def test_a_follower_replays_the_reset_and_a_truncation_undoes_it() -> None:
    mirror = mirror_of(source())
    follower = mirror_of(mirror)
    promote(mirror.log, LOCAL, LOCAL)
    follower.log.append_replicated(bytes_of(mirror.log)[follower.log.size_bytes :])
    assert len(follower.log.producers) == 0
    follower.log.truncate_to(4)
    assert {producer for producer, _ in follower.log.producers.items()} == {1, 2, 3}
    assert not is_promoted(follower.log, LOCAL)


def test_a_promotion_that_stopped_between_its_markers_goes_on() -> None:
    bench = source()
    bench.append(b"d", producer=4, sequence=0, transactional=True, epoch=7)
    mirror = mirror_of(bench)
    (producer_id, entry), _ = mirror.log.producers.open_transactions()
    mirror.end_transaction(producer_id, committed=False, producer_epoch=entry.epoch, epoch=LOCAL)
    assert promotion_offset(mirror.log, LOCAL) == 5
    assert not is_promoted(mirror.log, LOCAL)
    assert promote(mirror.log, LOCAL, LOCAL + 1) == 1
    assert promotion_offset(mirror.log, LOCAL) == 5
    assert len(mirror.log.producers) == 0


def test_a_promoted_log_that_lost_everything_to_retention_stays_promoted() -> None:
    mirror = mirror_of(source())
    promote(mirror.log, LOCAL, LOCAL)
    mirror.flush()
    mirror.log.advance_start(mirror.log.end_offset)
    assert is_promoted(mirror.log, LOCAL)


def test_promotion_in_a_mirrored_epoch_is_a_violation() -> None:
    mirror = mirror_of(source())
    with pytest.raises(InvariantViolation, match="invariant 94"):
        promote(mirror.log, LOCAL, 7)


def test_a_control_batch_of_a_client_is_read_as_what_it_is() -> None:
    batch = build_reset_marker(1000)
    header = read_header(batch)
    assert header.is_control
    assert not header.is_transactional
    assert read_control(batch, header) is RESET_MARKER
    assert read_marker(batch, header) is None


def test_batches_that_no_log_has_are_refused() -> None:
    mirror = LogBench(ModelDisk(), SMALL)
    record = Record(0, 1000, None, b"v")
    with pytest.raises(CorruptBatch, match="offset 0"):
        mirror.log.append_mirrored(build_batch([record]))
    with pytest.raises(CorruptBatch, match="was not read from a log"):
        mirror.log.append_mirrored(build_batch([record], leader_epoch=0, base_offset=2**63 - 1))
    with pytest.raises(CorruptBatch, match="was not read from a log"):
        mirror.log.append_mirrored(build_batch([record], leader_epoch=0, base_offset=2**53))
    with pytest.raises(CorruptBatch, match="was not read from a log"):
        mirror.log.append_mirrored(build_batch([record], leader_epoch=0, base_offset=-1))
    with pytest.raises(InvalidRecord, match="four bytes"):
        mirror.log.append_mirrored(build_batch([record], leader_epoch=0, control=True))
    broken = bytearray(build_batch([record], leader_epoch=0))
    broken[-1] ^= 1
    with pytest.raises(CorruptBatch, match="checksum"):
        mirror.log.append_mirrored(bytes(broken))
    assert mirror.log.end_offset == 0


def test_one_answer_begins_a_few_segments_and_the_rest_is_asked_for_again() -> None:
    mirror = LogBench(ModelDisk(), SMALL)
    far = b"".join(
        build_batch([Record(0, 1000, None, b"v")], leader_epoch=0, base_offset=each * 2**32) for each in range(30)
    )
    mirror.log.append_mirrored(far)
    assert mirror.log.end_offset == 8 * 2**32 + 1
    assert len(mirror.log.segments) <= 10


def test_the_sequence_of_a_mirrored_producer_goes_on_until_the_promotion() -> None:
    mirror = mirror_of(source())
    with pytest.raises(OutOfOrderSequence):
        mirror.log.producers.check(1, 0, 5, 0)
