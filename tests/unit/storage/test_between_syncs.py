"""Whether logs are being synced, and how often."""

from headrace.storage.between_syncs import BUSY_S, BUSY_SYNCS, BetweenSyncs


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def sync(between_syncs: BetweenSyncs) -> None:
    between_syncs.note_begun()
    between_syncs.note_idle()


def test_it_is_quiet_between_rare_syncs_only() -> None:
    clock = Clock()
    between_syncs = BetweenSyncs(clock)
    assert between_syncs.is_quiet
    for _ in range(3 * BUSY_SYNCS):
        between_syncs.note_begun()
        assert between_syncs.is_syncing
        assert not between_syncs.is_quiet
        between_syncs.note_idle()
        assert not between_syncs.is_syncing
        assert between_syncs.is_quiet
        clock.now_s += BUSY_S / (BUSY_SYNCS - 1)


def test_after_many_syncs_it_is_busy_also_between_them() -> None:
    clock = Clock()
    between_syncs = BetweenSyncs(clock)
    for _ in range(BUSY_SYNCS - 1):
        sync(between_syncs)
    assert between_syncs.is_quiet
    sync(between_syncs)
    assert not between_syncs.is_quiet
    assert not between_syncs.is_syncing
    clock.now_s += BUSY_S / 2
    assert not between_syncs.is_quiet
    clock.now_s += BUSY_S / 2
    assert between_syncs.is_quiet


def test_a_wait_ends_with_the_last_sync_or_its_time() -> None:
    between_syncs = BetweenSyncs()
    assert between_syncs.wait(60)
    between_syncs.note_begun()
    assert not between_syncs.wait(0.001)
    between_syncs.note_idle()
    assert between_syncs.wait(60)
