"""Quotas of what topics with a prefix store: what counts, when producers are slowed down, when they are refused."""

import pytest

from headrace.model.errors import InvalidQuota
from headrace.model.quotas import QuotaKind
from headrace.quotas.alteration import altered, checked_entity
from headrace.quotas.broker_quotas import BrokerQuotas
from headrace.quotas.disk_pressure import MAX_DELAY_MS
from headrace.quotas.limits import QuotaTable
from headrace.quotas.stored_bytes import StoredBytes, StoredRoom

STORED = QuotaKind.STORED.value


def quotas_of(**limits: float) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    return {(("topic-prefix", prefix),): {STORED: limit} for prefix, limit in limits.items()}


def stored_of(**limits: float) -> StoredBytes:
    stored = StoredBytes()
    stored.update(quotas_of(**limits))
    return stored


def room_of(stored: StoredBytes, topic: str) -> StoredRoom:
    room = stored.room(topic)
    assert room is not None
    return room


def test_topics_with_the_prefix_share_its_limit() -> None:
    stored = stored_of(a=100)
    assert stored.room("b1") is None
    one, other = room_of(stored, "a1"), room_of(stored, "a2")
    one.add(60)
    assert other.refusal(40) is None
    refusal = other.refusal(41)
    assert "begin with 'a' store 60 bytes of at most 100: 41 more do not fit" in str(refusal)
    assert "headrace quota set --topic-prefix a --stored" in str(refusal)
    one.add(-60)
    assert other.refusal(100) is None


def test_every_prefix_of_a_topic_binds_it() -> None:
    stored = stored_of(a=100, aa=30)
    narrow, wide = room_of(stored, "aa1"), room_of(stored, "a1")
    assert "begin with 'aa'" in str(narrow.refusal(31))
    wide.add(90)
    assert narrow.refusal(10) is None
    assert "begin with 'a' store 90 bytes" in str(narrow.refusal(11))
    narrow.add(5)
    assert stored.report == {"a": 95, "aa": 5}


def test_counting_anew_forgets_what_was_deleted() -> None:
    stored = stored_of(a=100)
    room = room_of(stored, "a1")
    room.add(100)
    stored.count([(room, 20), (room, 30)])
    assert stored.report == {"a": 50}


def test_what_other_brokers_store_counts_until_they_are_gone() -> None:
    stored = stored_of(a=100)
    room = room_of(stored, "a1")
    stored.heard(2, {"a": 50, "unknown": 1000})
    stored.heard(3, {"a": 40})
    stored.heard(3, {"a": 45})
    assert room.refusal(5) is None
    assert room.refusal(6) is not None
    stored.count([])
    assert room.refusal(6) is not None
    stored.keep_only((3,))
    assert room.refusal(55) is None
    assert stored.report == {}, "a broker reports only what it stores itself"


def test_a_changed_limit_holds_at_once_and_keeps_what_was_counted() -> None:
    stored = stored_of(a=100)
    room = room_of(stored, "a1")
    room.add(100)
    stored.update(quotas_of(a=200))
    assert room.refusal(100) is None
    assert room.refusal(101) is not None
    stored.update({})
    assert not stored.is_active
    assert stored.room("a1") is None


def test_above_nine_tenths_producers_wait_the_longer_the_less_is_left() -> None:
    delays = []
    for used in (800, 900, 950, 980, 999):
        stored = stored_of(a=1000)
        room = room_of(stored, "a1")
        room.add(used)
        delays.append(room.delay(1, 0.0)[1])
    assert delays[:2] == [0, 0]
    assert delays[2:] == [200, 500, MAX_DELAY_MS]


def test_the_longest_delay_of_all_prefixes_counts() -> None:
    stored = stored_of(a=10_000, aa=100)
    room = room_of(stored, "aa1")
    room.add(95)
    account, delay_ms = room.delay(1, 0.0)
    assert account.prefix == "aa"
    assert delay_ms == 2000


def test_producers_are_metered_only_while_a_prefix_has_a_quota() -> None:
    quotas = BrokerQuotas()
    quotas.update(quotas_of(a=1000), 2**31 - 1, {}, 0)
    assert quotas.is_active
    assert quotas.meters_producers
    assert not QuotaTable(quotas_of(a=1000)).limits_clients
    room_of(quotas.stored, "a1").add(700)
    quotas.stored.heard(2, {"a": 200})
    (use,) = quotas.use(0)
    assert (use.kind, use.client_id, use.used, use.limit, use.part) == (STORED, "topic-prefix a", 700, 1000, 800)
    quotas.update({}, 2**31 - 1, {}, 0)
    assert not quotas.is_active


def test_entities_and_values_that_make_no_sense() -> None:
    entity = checked_entity([("topic-prefix", "a.")])
    assert altered(entity, {}, [(STORED, 50.0)]) == {STORED: 50.0}
    with pytest.raises(InvalidQuota, match="has no default"):
        checked_entity([("topic-prefix", None)])
    with pytest.raises(InvalidQuota, match="cannot be combined"):
        checked_entity([("topic-prefix", "a."), ("user", "alice")])
    with pytest.raises(InvalidQuota, match="use stored_bytes"):
        altered(entity, {}, [("producer_byte_rate", 1.0)])
    with pytest.raises(InvalidQuota, match="whole number"):
        altered(entity, {}, [(STORED, 1.5)])
    with pytest.raises(InvalidQuota, match="use producer_byte_rate"):
        altered(checked_entity([("user", "alice")]), {}, [(STORED, 1.0)])
