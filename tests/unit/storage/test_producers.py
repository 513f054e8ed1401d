import pytest

from headrace.model.errors import FencedCoordinator, FencedProducer, OutOfOrderSequence
from headrace.records.batch import TRANSACTIONAL
from headrace.records.markers import Marker
from headrace.storage.producers import Producers, SnapshotDamaged

LAST = 2**31 - 1


def written(*batches: tuple[int, int], epoch: int = 0, base_offset: int = 100) -> Producers:
    """A producer 7 with batches of (base sequence, records), at offsets from `base_offset` on."""
    producers = Producers()
    for sequence, count in batches:
        assert producers.check(7, epoch, sequence, count - 1) is None
        producers.record(7, epoch, sequence, count - 1, base_offset, 0, timestamp=5, now_ms=1000)
        base_offset += count
    return producers


def test_any_of_the_last_five_batches_is_recognized_when_it_comes_again() -> None:
    producers = written(*[(i * 10, 10) for i in range(7)])
    for i in range(2, 7):
        original = producers.check(7, 0, i * 10, 9)
        assert original is not None
        assert (original.base_offset, original.last_offset) == (100 + i * 10, 109 + i * 10)


def test_an_older_duplicate_is_out_of_order() -> None:
    with pytest.raises(OutOfOrderSequence):
        written(*[(i * 10, 10) for i in range(7)]).check(7, 0, 10, 9)


@pytest.mark.parametrize(("sequence", "count"), [(21, 1), (30, 5), (15, 5), (10, 5)])
def test_gaps_and_other_ranges_are_refused(sequence: int, count: int) -> None:
    with pytest.raises(OutOfOrderSequence, match="where 20 was expected"):
        written((0, 10), (10, 10)).check(7, 0, sequence, count - 1)


def test_sequences_wrap_around() -> None:
    producers = written((LAST - 4, 5), (0, 3))
    assert producers.check(7, 0, 3, 0) is None
    across = written((LAST - 4, 10))
    assert across.check(7, 0, 5, 0) is None
    duplicate = across.check(7, 0, LAST - 4, 9)
    assert duplicate is not None
    assert duplicate.base_offset == 100


def test_a_new_epoch_starts_at_zero_and_fences_the_old_one() -> None:
    producers = written((0, 10))
    with pytest.raises(OutOfOrderSequence, match="instead of 0"):
        producers.check(7, 1, 10, 0)
    assert producers.check(7, 1, 0, 0) is None
    producers.record(7, 1, 0, 0, 110, 0, timestamp=5, now_ms=0)
    with pytest.raises(FencedProducer):
        producers.check(7, 0, 10, 0)
    assert producers.check(7, 1, 1, 0) is None


def test_an_unknown_producer_may_start_anywhere() -> None:
    assert Producers().check(7, 3, 12345, 4) is None


def test_producers_expire_by_when_they_were_last_seen() -> None:
    producers = written((0, 1))
    producers.record(8, 0, 0, 0, 200, 0, timestamp=5, now_ms=5000)
    assert producers.expire(before_ms=1001) == 1
    assert [producer_id for producer_id, _ in producers.items()] == [8]


def test_a_snapshot_holds_everything() -> None:
    producers = written(*[(i * 10, 10) for i in range(7)], epoch=3)
    producers.record(9, 0, 0, 0, 500, 0x10, timestamp=5, now_ms=77)
    copy = Producers.from_snapshot(producers.to_snapshot(501), 501)
    assert copy.to_snapshot(501) == producers.to_snapshot(501)
    assert dict(copy.items())[9].first_offset == copy.first_open_offset == 500
    original = copy.check(7, 3, 20, 9)
    assert original is not None
    assert original.base_offset == 120


def test_a_damaged_snapshot_is_refused() -> None:
    data = written((0, 10), (10, 5)).to_snapshot(115)
    with pytest.raises(SnapshotDamaged):
        Producers.from_snapshot(data, 116)
    for length in range(len(data)):
        with pytest.raises(SnapshotDamaged):
            Producers.from_snapshot(data[:length], 115)
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x40
        with pytest.raises(SnapshotDamaged):
            Producers.from_snapshot(bytes(damaged), 115)


COMMIT, ABORT = Marker(committed=True, coordinator_epoch=1), Marker(committed=False, coordinator_epoch=1)


def in_transactions() -> Producers:
    """Producers 7 and 8 have transactions open since offsets 100 and 110."""
    producers = Producers()
    for producer_id, offset in ((7, 100), (8, 110), (7, 120)):
        producers.record(producer_id, 0, offset, 9, offset, TRANSACTIONAL, timestamp=1, now_ms=1000)
    return producers


def test_the_first_unstable_offset_moves_when_a_marker_is_committed() -> None:
    producers = in_transactions()
    assert producers.first_unstable_offset(130) == 100
    assert producers.end(7, 0, COMMIT, 130, 1000) == (7, 100, 130, True)
    assert producers.first_unstable_offset(130) == 100, "the marker itself is not committed yet"
    assert producers.first_unstable_offset(131) == 110
    assert producers.end(8, 0, ABORT, 131, 1000) == (8, 110, 131, False)
    assert producers.first_unstable_offset(132) is None


def test_a_marker_ends_only_what_is_open_and_fences_older_epochs() -> None:
    producers = in_transactions()
    assert producers.end(9, 3, COMMIT, 130, 1000) is None
    assert producers.end(7, 1, ABORT, 131, 1000) is not None
    with pytest.raises(FencedProducer):
        producers.check(7, 0, 130, 0)
    with pytest.raises(FencedProducer):
        producers.check_marker(7, 0, COMMIT)
    with pytest.raises(FencedCoordinator):
        producers.check_marker(7, 1, Marker(committed=True, coordinator_epoch=0))
    assert producers.check(7, 1, 0, 0) is None, "the new epoch starts at zero"
    assert not producers.is_open(7, 1)
    assert producers.is_open(8, 0)
    assert not producers.is_open(8, 1)


def test_an_open_transaction_does_not_expire() -> None:
    producers = in_transactions()
    producers.end(8, 0, COMMIT, 130, 1000)
    assert producers.expire(before_ms=2000) == 1
    assert producers.first_open_offset == 100
