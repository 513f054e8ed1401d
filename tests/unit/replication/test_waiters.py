from headrace.replication.waiters import CommitWaiters, DataWaiters


def test_commits_are_told_in_order_and_only_when_covered() -> None:
    told: list[tuple[int, BaseException | None]] = []
    waiters = CommitWaiters()
    for offset in (5, 5, 9):
        waiters.add(offset, lambda error, offset=offset: told.append((offset, error)))  # type: ignore[misc]
    waiters.advanced(4)
    assert told == []
    waiters.advanced(8)
    assert told == [(5, None), (5, None)]
    failure = OSError("disk")
    waiters.fail(failure)
    waiters.advanced(100)
    assert told[2:] == [(9, failure)]


def test_a_waiter_may_leave_while_being_told() -> None:
    class Once:
        def __init__(self) -> None:
            self.count = 0

        def data_arrived(self) -> None:
            self.count += 1
            waiters.remove(self)

    waiters = DataWaiters()
    both = [Once(), Once()]
    for waiter in both:
        waiters.add(waiter)
    waiters.advanced()
    waiters.advanced()
    assert [waiter.count for waiter in both] == [1, 1]
