from headrace.runtime.heap import BUSY_SAMPLES_MAX, GROWTH_BYTES, TrimPolicy

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


def test_memory_that_is_in_use_is_trimmed_less_and_less_often_and_never_given_up() -> None:
    """It may be free later."""
    policy = TrimPolicy(START)
    looks = []
    for look in range(1, 70):
        if policy.is_due(400 * MIB, IDLE):
            policy.trimmed()
            looks.append(look)
    assert looks == [1, 3, 7, 15, 30, 45, 60]


def test_a_burst_after_all_was_given_back_is_trimmed_at_once() -> None:
    policy = TrimPolicy(START)
    for _ in range(5):
        policy.is_due(400 * MIB, IDLE)
        policy.trimmed()
    assert not policy.is_due(START, IDLE)
    assert policy.is_due(400 * MIB, IDLE)


def test_growth_counts_from_the_least_so_far() -> None:
    policy = TrimPolicy(400 * MIB)
    assert not policy.is_due(100 * MIB, IDLE)
    assert policy.is_due(100 * MIB + GROWTH_BYTES, IDLE)


def test_a_broker_that_is_never_idle_is_trimmed_in_the_end() -> None:
    policy = TrimPolicy(START)
    looks = [policy.is_due(400 * MIB, BUSY) for _ in range(BUSY_SAMPLES_MAX)]
    assert looks == [False] * (BUSY_SAMPLES_MAX - 1) + [True]


def test_a_busy_broker_whose_memory_falls_by_itself_is_left_alone() -> None:
    policy = TrimPolicy(START)
    for _ in range(BUSY_SAMPLES_MAX - 1):
        assert not policy.is_due(400 * MIB, BUSY)
    assert not policy.is_due(START, BUSY)
    assert not policy.is_due(400 * MIB, BUSY)
