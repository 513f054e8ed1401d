from hypothesis import given
from hypothesis import strategies as st

from headrace.client.consume.ack_tracker import AckTracker


def test_only_the_contiguous_prefix_counts() -> None:
    ledger = AckTracker()
    for offset in (5, 6, 9):
        ledger.handed(offset)
    ledger.done(6)
    assert ledger.to_commit() is None
    ledger.done(5)
    assert ledger.to_commit() == 7
    ledger.committed(7)
    assert ledger.to_commit() is None
    ledger.done(9)
    assert ledger.to_commit() == 10
    assert ledger.open_count == 0


def test_strange_acknowledgements_change_nothing() -> None:
    ledger = AckTracker()
    ledger.done(3)
    ledger.handed(4)
    ledger.done(9)
    ledger.done(3)
    assert ledger.to_commit() is None
    ledger.done(4)
    ledger.done(4)
    assert ledger.to_commit() == 5


def test_a_seek_back_starts_anew() -> None:
    ledger = AckTracker()
    ledger.handed(10)
    ledger.done(10)
    ledger.committed(11)
    ledger.handed(3)
    assert ledger.to_commit() is None
    ledger.done(3)
    assert ledger.to_commit() == 4


@given(st.sets(st.integers(0, 60), min_size=1), st.data())
def test_never_commits_past_an_open_message_and_never_goes_back(offsets: set[int], data: st.DataObject) -> None:
    ledger = AckTracker()
    waiting = sorted(offsets)
    handed: list[int] = []
    done: set[int] = set()
    last = -1
    while waiting or len(done) < len(handed):
        open_now = [each for each in handed if each not in done]
        if waiting and (not open_now or data.draw(st.booleans())):
            handed.append(waiting.pop(0))
            ledger.handed(handed[-1])
        else:
            finished = data.draw(st.sampled_from(open_now))
            done.add(finished)
            ledger.done(finished)
        still_open = [each for each in handed if each not in done]
        assert ledger.open_count == len(still_open)
        position = ledger.to_commit()
        if position is not None:
            assert position > last
            assert all(each >= position for each in still_open)
            ledger.committed(position)
            last = position
    assert last == max(offsets) + 1
