from headrace.runtime.heap import BUSY_LOOKS_MAX, GROWTH_BYTES, TrimPolicy

MIB = 1 << 20
START = 60 * MIB
BUSY, IDLE = 0.9, 0.01


def test_memory_that_has_not_grown_is_left_alone() -> None:
    policy = TrimPolicy(START)
    assert not policy.is_due(START, IDLE)
    assert not policy.is_due(START + GROWTH_BYTES - 1, IDLE)


def test_after_a_burst_it_is_trimmed_as_soon_as_the_broker_is_idle() -> None:
    policy = TrimPolicy(START)
    assert not policy.is_due(400 * MIB, BUSY)
    assert policy.is_due(400 * MIB, IDLE)


def test_memory_that_is_in_use_is_not_trimmed_again_and_again() -> None:
    policy = TrimPolicy(START)
    assert policy.is_due(400 * MIB, IDLE)
    policy.trimmed(350 * MIB)
    assert not policy.is_due(350 * MIB, IDLE)
    assert policy.is_due(350 * MIB + GROWTH_BYTES, IDLE)


def test_growth_counts_from_the_least_since_the_last_trim() -> None:
    policy = TrimPolicy(START)
    policy.trimmed(350 * MIB)
    assert not policy.is_due(100 * MIB, IDLE)
    assert policy.is_due(100 * MIB + GROWTH_BYTES, IDLE)


def test_a_broker_that_is_never_idle_is_trimmed_in_the_end() -> None:
    policy = TrimPolicy(START)
    looks = [policy.is_due(400 * MIB, BUSY) for _ in range(BUSY_LOOKS_MAX)]
    assert looks == [False] * (BUSY_LOOKS_MAX - 1) + [True]


def test_a_busy_broker_whose_memory_falls_by_itself_is_left_alone() -> None:
    policy = TrimPolicy(START)
    for _ in range(BUSY_LOOKS_MAX - 1):
        assert not policy.is_due(400 * MIB, BUSY)
    assert not policy.is_due(START, BUSY)
    assert not policy.is_due(400 * MIB, BUSY)
