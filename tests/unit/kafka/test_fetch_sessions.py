from types import SimpleNamespace
from typing import Any

import pytest

from headrace.kafka import fetch_sessions
from headrace.kafka.fetch_sessions import (
    FetchSessions,
    InvalidSessionEpoch,
    PartitionKey,
    SessionNotFound,
    SessionTopicIdMismatch,
)
from headrace.protocol.fast import FetchedPartition


def request(session_id: int, epoch: int, wanted: dict[int, int], forgotten: tuple[int, ...] = ()) -> Any:
    partitions = [
        SimpleNamespace(partition=index, fetch_offset=offset, partition_max_bytes=100, current_leader_epoch=-1)
        for index, offset in wanted.items()
    ]
    topics = [SimpleNamespace(topic="t", partitions=partitions)] if wanted else []
    gone = [SimpleNamespace(topic="t", partitions=forgotten)] if forgotten else []
    return SimpleNamespace(session_id=session_id, session_epoch=epoch, topics=topics, forgotten_topics_data=gone)


def sessions(slots: int = 2) -> FetchSessions:
    ids = iter(range(1, 100))
    return FetchSessions(slots, lambda: next(ids))


def plan(cache: FetchSessions, asked: Any, now_ms: float = 0.0, by_id: bool = False) -> Any:
    return cache.plan(asked, by_id=by_id, now_ms=now_ms)


def offsets(planned: Any) -> dict[int, int]:
    return {key.partition: wanted.offset for key, wanted in planned.wanted}


def test_sessionless_requests_leave_nothing_behind() -> None:
    cache = sessions()
    planned = plan(cache, request(0, -1, {0: 5}))
    assert (planned.session, planned.session_id, offsets(planned)) == (None, 0, {0: 5})
    assert len(cache) == 0


def test_an_incremental_request_changes_what_the_session_remembers() -> None:
    cache = sessions()
    first = plan(cache, request(0, 0, {0: 5, 1: 6, 2: 7}))
    assert first.session_id == 1
    assert not first.is_incremental
    second = plan(cache, request(1, 1, {1: 60}, forgotten=(2,)))
    assert second.is_incremental
    assert offsets(second) == {0: 5, 1: 60}
    assert offsets(plan(cache, request(1, 2, {}))) == {0: 5, 1: 60}


def test_a_wrong_epoch_and_an_unknown_session_are_told_apart() -> None:
    cache = sessions()
    plan(cache, request(0, 0, {0: 5}))
    with pytest.raises(InvalidSessionEpoch):
        plan(cache, request(1, 2, {}))
    with pytest.raises(SessionNotFound):
        plan(cache, request(9, 1, {}))
    with pytest.raises(SessionTopicIdMismatch):
        plan(cache, request(1, 1, {}), by_id=True)


def test_epoch_minus_one_ends_the_session_and_zero_replaces_it() -> None:
    cache = sessions()
    plan(cache, request(0, 0, {0: 5}))
    assert plan(cache, request(1, 0, {0: 8})).session_id == 2
    with pytest.raises(SessionNotFound):
        plan(cache, request(1, 1, {}))
    plan(cache, request(2, -1, {}))
    assert len(cache) == 0


def test_a_full_cache_serves_without_a_session_and_evicts_only_the_idle() -> None:
    cache = sessions(slots=1)
    plan(cache, request(0, 0, {0: 5}), now_ms=0)
    assert plan(cache, request(0, 0, {0: 5}), now_ms=1000).session_id == 0
    assert plan(cache, request(0, 0, {0: 5}), now_ms=200_000).session_id == 2
    assert len(cache) == 1


def test_only_changed_partitions_are_news() -> None:
    cache = sessions()
    session = plan(cache, request(0, 0, {0: 5})).session
    key = PartitionKey("t", 0)
    quiet = FetchedPartition(0, 0, 10, 10, 0)
    assert session.is_news(key, quiet)
    assert not session.is_news(key, quiet)
    assert session.is_news(key, quiet._replace(high_watermark=11))
    assert session.is_news(key, quiet._replace(high_watermark=11, log_start_offset=3))
    assert session.is_news(key, quiet._replace(records=(b"x",)))
    assert session.is_news(key, FetchedPartition(0, 3))
    assert session.is_news(key, quiet)


def test_a_served_partition_goes_to_the_back() -> None:
    cache = sessions()
    first = plan(cache, request(0, 0, {0: 5, 1: 6, 2: 7}))
    first.session.served(PartitionKey("t", 0))
    later = plan(cache, request(1, 1, {}))
    assert [key.partition for key, _ in later.wanted] == [1, 2, 0]


def test_sessions_remember_a_limited_number_of_partitions_in_total(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of partitions are cheap to send, and nobody checks that there are such."""
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_MAX", 5)
    cache = sessions(slots=10)
    assert plan(cache, request(0, 0, dict.fromkeys(range(4), 0))).session_id == 1
    assert plan(cache, request(0, 0, {0: 0, 1: 0})).session_id == 0
    assert offsets(plan(cache, request(1, 1, {0: 7, 4: 0}))) == {0: 7, 1: 0, 2: 0, 3: 0, 4: 0}
    with pytest.raises(SessionNotFound, match="no room"):
        plan(cache, request(1, 2, {5: 0}))
    assert len(cache) == 0
