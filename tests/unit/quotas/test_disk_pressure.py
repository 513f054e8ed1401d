"""How much producers are slowed down by a disk that is nearly full."""

from headrace.quotas.broker_quotas import BrokerQuotas
from headrace.quotas.disk_pressure import DRAIN_S, MAX_DELAY_MS, REFUSED_DELAY_MS, DiskPressure

MIB = 1 << 20
GIB = 1 << 30


def pressure(free_bytes: int, total_bytes: int = 1000 * GIB) -> DiskPressure:
    found = DiskPressure()
    found.update(free_bytes, total_bytes, slow_below_bytes=GIB, refuse_below_bytes=128 * MIB)
    return found


def test_with_room_nobody_waits() -> None:
    assert not pressure(GIB).is_slowing
    assert pressure(GIB).produced(MIB, 0.0) == 0


def test_the_delay_of_a_request_grows_as_the_room_shrinks() -> None:
    delays = [pressure(free * MIB).produced(MIB, 0.0) for free in (1000, 500, 200, 140, 129)]
    assert delays == sorted(delays)
    assert 0 < delays[0] < 20
    assert delays[-1] == MAX_DELAY_MS


def test_producers_together_write_what_would_last_for_a_while() -> None:
    disk, now_ms, written = pressure(640 * MIB), 0.0, 0
    while now_ms < 1000:
        # Each of many connections is muted for its delay: their writes follow one another at the allowed rate.
        delay_ms = disk.produced(MIB, now_ms)
        now_ms += delay_ms
        written += MIB
    assert 0.8 < written / (512 * MIB / DRAIN_S) < 1.1


def test_below_the_second_bound_they_are_refused_and_wait_before_they_retry() -> None:
    disk = pressure(100 * MIB)
    assert disk.is_refusing
    assert disk.produced(MIB, 0.0) == REFUSED_DELAY_MS
    disk.update(2 * GIB, 1000 * GIB, slow_below_bytes=GIB, refuse_below_bytes=128 * MIB)
    assert not disk.is_refusing
    assert not disk.is_slowing


def test_the_bounds_are_a_small_part_of_a_small_disk() -> None:
    assert not pressure(60 * MIB, total_bytes=GIB).is_slowing
    assert pressure(50 * MIB, total_bytes=GIB).is_slowing
    assert not pressure(11 * MIB, total_bytes=GIB).is_refusing
    assert pressure(10 * MIB, total_bytes=GIB).is_refusing


def test_a_bound_of_zero_turns_it_off() -> None:
    disk = DiskPressure()
    disk.update(0, GIB, slow_below_bytes=0, refuse_below_bytes=0)
    assert not disk.is_slowing


def test_requests_are_counted_only_while_there_is_little_room() -> None:
    quotas = BrokerQuotas()
    assert not quotas.is_active
    quotas.disk.update(MIB, GIB, slow_below_bytes=GIB, refuse_below_bytes=0)
    quotas.disk_changed()
    assert quotas.is_active
    quotas.sweep(0)
    assert quotas.is_active
    quotas.disk.update(GIB, GIB, slow_below_bytes=GIB, refuse_below_bytes=0)
    quotas.disk_changed()
    assert not quotas.is_active
