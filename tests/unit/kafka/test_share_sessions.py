"""Share sessions: epochs, limits, and what ends with them."""

from uuid import UUID

import pytest

from headrace.kafka import share_sessions
from headrace.kafka.share_acks import check
from headrace.kafka.share_sessions import (
    InvalidShareSessionEpoch,
    SharePlace,
    ShareSessionLimit,
    ShareSessionNotFound,
    ShareSessions,
)
from headrace.model.errors import ProtocolError
from headrace.queues.share.acks import AckBatch

A, B = (SharePlace(UUID(int=number), 0) for number in (1, 2))


def test_a_session_goes_on_epoch_by_epoch_until_it_ends() -> None:
    sessions = ShareSessions(lambda: 10)
    session = sessions.begin("g", "m")
    sessions.change(session, [A, B], [])
    for epoch in (1, 2):
        assert sessions.go_on("g", "m", epoch) is session
    with pytest.raises(InvalidShareSessionEpoch):
        sessions.go_on("g", "m", 2)
    session.next_epoch = 2**31 - 1
    sessions.go_on("g", "m", 2**31 - 1)
    assert session.next_epoch == 1
    with pytest.raises(ShareSessionNotFound):
        sessions.go_on("other", "m", 1)
    assert sessions.end("g", "m") is session
    with pytest.raises(ShareSessionNotFound):
        sessions.end("g", "m")


def test_a_session_that_begins_again_ends_the_wait_of_the_former() -> None:
    sessions = ShareSessions(lambda: 1)
    former = sessions.begin("g", "m")
    ended: list[str] = []
    former.waiting = lambda: ended.append("wait")
    former.on_end = lambda: ended.append("session")
    assert sessions.begin("g", "m") is not former
    assert ended == ["wait", "session"]
    assert not sessions.drop(former)
    with pytest.raises(ShareSessionLimit):
        sessions.begin("g", "another")


def test_partitions_take_turns_and_are_not_without_number(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = ShareSessions(lambda: 10)
    session = sessions.begin("g", "m")
    sessions.change(session, [A, B], [])
    session.served(A)
    assert list(session.places) == [B, A]
    sessions.change(session, [A], [B])
    assert list(session.places) == [A]
    monkeypatch.setattr(share_sessions, "PLACES_MAX", 1)
    other = sessions.begin("g", "n")
    with pytest.raises(ShareSessionLimit):
        sessions.change(other, [B], [])
    assert len(sessions) == 1


@pytest.mark.parametrize(
    "batches",
    [
        [AckBatch(1, 0, [1])],
        [AckBatch(-1, 0, [1])],
        [AckBatch(0, 1, [1, 1, 1])],
        [AckBatch(0, 1, [])],
        [AckBatch(0, 0, [4])],
        [AckBatch(0, 0, [-1])],
        [AckBatch(5, 6, [1]), AckBatch(6, 7, [1])],
    ],
)
def test_acknowledgements_that_cannot_be_meant_are_refused(batches: list[AckBatch]) -> None:
    with pytest.raises(ProtocolError):
        check(batches, may_renew=False)


def test_acknowledgements_with_a_type_for_all_or_for_each() -> None:
    check([AckBatch(0, 2**60, [1]), AckBatch(2**60 + 1, 2**60 + 2, [0, 3])], may_renew=False)
    check([AckBatch(0, 0, [4])], may_renew=True)
    assert list(AckBatch(10, 14, [1, 1, 2, 2, 1]).runs(11)) == [(11, 11, 1), (12, 13, 2), (14, 14, 1)]
    assert list(AckBatch(10, 14, [1]).runs(15)) == []
