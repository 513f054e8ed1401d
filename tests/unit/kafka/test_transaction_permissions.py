"""Attempts to use transactions without permission: what others began stays as it is."""

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headrace.kafka.permissions import (
    DESCRIBE_TOPIC,
    DESCRIBE_TRANSACTIONAL_ID,
    IDEMPOTENT_WRITE,
    READ_GROUP,
    READ_TOPIC,
    TWO_PHASE_COMMIT,
    WRITE_TOPIC,
    WRITE_TRANSACTIONAL_ID,
)

from .guarded_broker import ADMIN, ALICE, BOB, GuardedBroker
from .permission_requests_groups import TOPIC, GuardedNames, codes, init_producer, init_two_phase, offset_commit

INIT, ADD, ADD_OFFSETS, END, COMMIT, DESCRIBE, LIST = 22, 24, 25, 26, 28, 65, 66
_DENIED = ErrorCode.transactional_id_authorization_failed
_DENIED_TOPIC, _DENIED_GROUP = ErrorCode.topic_authorization_failed, ErrorCode.group_authorization_failed
_OFFSETS = "__consumer_offsets"


class KnownProducer:
    """A transactional producer whose id and epoch an attacker knows."""

    def __init__(self, guarded: GuardedBroker, principal: str, names: GuardedNames) -> None:
        self._guarded, self._principal, self._names = guarded, principal, names
        started = guarded.call(principal, INIT, 4, **init_producer(names, 4))
        assert started.error_code is ErrorCode.none
        self.ids = {
            "transactional_id": names.name, "producer_id": started.producer_id,
            "producer_epoch": started.producer_epoch,
        }  # fmt: skip

    def add(self, *topics: str, by: str | None = None, version: int = 3) -> dict[str, ErrorCode]:
        named = {"topics": [{"name": topic, "partitions": [0]} for topic in topics]}
        early = {f"v3_and_below_{name}": value for name, value in {**self.ids, **named}.items()}
        late = {"transactions": [{**self.ids, **named, "verify_only": False}]}
        answer = self._guarded.call(by or self._principal, ADD, version, **early, **late)
        results = answer.results_by_topic_v3_and_below
        return {each.name: each.results_by_partition[0].partition_error_code for each in results}

    def commit_offset(self, by: str | None = None, version: int = 5) -> ErrorCode:
        fields = {**offset_commit(self._names, version), **self.ids, "generation_id": -1}
        answer = self._guarded.call(by or self._principal, COMMIT, version, **fields)
        code: ErrorCode = answer.topics[0].partitions[0].error_code
        return code

    def end(self, by: str | None = None) -> ErrorCode:
        code: ErrorCode = self._guarded.call(by or self._principal, END, 4, **self.ids, committed=True).error_code
        return code


def described(guarded: GuardedBroker, names: GuardedNames, by: str = ADMIN) -> Any:
    return guarded.call(by, DESCRIBE, 0, transactional_ids=[names.name]).transaction_states[0]


def topics_of(guarded: GuardedBroker, names: GuardedNames, by: str = ADMIN) -> list[str]:
    return [topic.topic for topic in described(guarded, names, by).topics]


def test_nobody_uses_the_transactional_id_of_another(guarded: GuardedBroker, names: GuardedNames) -> None:
    for principal in (ALICE, BOB):
        for need in (WRITE_TOPIC, READ_TOPIC, READ_GROUP):
            guarded.allow(principal, need, names.named(need))
    guarded.allow(ALICE, WRITE_TRANSACTIONAL_ID, names.name)
    alice = KnownProducer(guarded, ALICE, names)
    assert alice.add(TOPIC) == {TOPIC: ErrorCode.none}
    before = described(guarded, names)

    other = f"{names.name}-other"
    guarded.create(other)
    guarded.allow(BOB, WRITE_TOPIC, other)
    assert alice.add(other, by=BOB) == {other: _DENIED}
    assert alice.commit_offset(by=BOB) is _DENIED
    assert alice.end(by=BOB) is _DENIED
    assert codes(guarded.call(BOB, ADD_OFFSETS, 4, **alice.ids, group_id=names.name)) == {_DENIED}
    fenced = guarded.call(BOB, INIT, 4, **init_producer(names, 4))
    assert (fenced.error_code, fenced.producer_id, fenced.producer_epoch) == (_DENIED, -1, -1)

    assert described(guarded, names) == before
    assert alice.end() is ErrorCode.none


def test_offsets_of_a_group_without_read_do_not_join_a_transaction(guarded: GuardedBroker, names: GuardedNames) -> None:
    for need in (WRITE_TRANSACTIONAL_ID, WRITE_TOPIC, READ_TOPIC):
        guarded.allow(ALICE, need, names.named(need))
    alice = KnownProducer(guarded, ALICE, names)
    assert alice.add(TOPIC) == {TOPIC: ErrorCode.none}
    assert alice.commit_offset() is _DENIED_GROUP
    assert codes(guarded.call(ALICE, ADD_OFFSETS, 4, **alice.ids, group_id=names.name)) == {_DENIED_GROUP}
    assert topics_of(guarded, names) == [TOPIC]

    guarded.allow(ALICE, READ_GROUP, names.name)
    guarded.revoke(ALICE, READ_TOPIC, TOPIC)
    assert alice.commit_offset() is _DENIED_TOPIC
    assert topics_of(guarded, names) == [TOPIC], "nothing was to be written, so nothing was added"

    guarded.allow(ALICE, READ_TOPIC, TOPIC)
    assert alice.commit_offset() is ErrorCode.none
    assert topics_of(guarded, names) == [_OFFSETS, TOPIC]


def test_partitions_are_added_all_or_none(guarded: GuardedBroker, names: GuardedNames) -> None:
    for need in (WRITE_TRANSACTIONAL_ID, WRITE_TOPIC):
        guarded.allow(ALICE, need, names.named(need))
    secret = f"{names.name}-secret"
    guarded.create(secret)
    alice = KnownProducer(guarded, ALICE, names)
    assert alice.add(TOPIC, secret, "nowhere") == {
        TOPIC: ErrorCode.operation_not_attempted, secret: _DENIED_TOPIC, "nowhere": _DENIED_TOPIC,
    }  # fmt: skip
    assert topics_of(guarded, names) == []


def test_internal_topics_are_not_added_by_clients(guarded: GuardedBroker, names: GuardedNames) -> None:
    guarded.allow(ALICE, WRITE_TRANSACTIONAL_ID, names.name)
    guarded.allow(ALICE, WRITE_TOPIC, "*")
    alice = KnownProducer(guarded, ALICE, names)
    assert alice.add("__transaction_state", _OFFSETS) == {
        "__transaction_state": _DENIED_TOPIC, _OFFSETS: _DENIED_TOPIC,
    }  # fmt: skip
    assert topics_of(guarded, names) == []


@pytest.mark.parametrize("version", [4, 5])
def test_the_requests_of_brokers_are_not_a_way_around(
    guarded: GuardedBroker, names: GuardedNames, version: int
) -> None:
    """They do not check topics: the broker that the client produces to has done that."""
    for need in (WRITE_TRANSACTIONAL_ID, WRITE_TOPIC):
        guarded.allow(ALICE, need, names.named(need))
    alice = KnownProducer(guarded, ALICE, names)
    transaction = {**alice.ids, "topics": [{"name": TOPIC, "partitions": [0]}], "verify_only": False}
    answer = guarded.call(ALICE, ADD, version, transactions=[transaction])
    assert (answer.error_code, answer.results_by_transaction) == (ErrorCode.cluster_authorization_failed, ())
    assert topics_of(guarded, names) == []


def test_an_idempotent_producer_needs_to_write_somewhere(guarded: GuardedBroker, names: GuardedNames) -> None:
    def started() -> ErrorCode:
        fields = {"transactional_id": None, "transaction_timeout": 0, "producer_id": -1, "producer_epoch": -1}
        code: ErrorCode = guarded.call(ALICE, INIT, 4, **fields).error_code
        return code

    guarded.allow(ALICE, READ_TOPIC, TOPIC)
    assert started() is ErrorCode.cluster_authorization_failed
    guarded.allow(ALICE, WRITE_TOPIC, "any")
    assert started() is ErrorCode.none
    guarded.revoke_all()
    assert started() is ErrorCode.cluster_authorization_failed
    guarded.allow(ALICE, IDEMPOTENT_WRITE)
    assert started() is ErrorCode.none


def test_a_transaction_without_a_timeout_needs_a_permission_of_its_own(
    guarded: GuardedBroker, names: GuardedNames
) -> None:
    guarded.allow(ALICE, WRITE_TRANSACTIONAL_ID, names.name)
    assert guarded.call(ALICE, INIT, 6, **init_two_phase(names, 6)).error_code is _DENIED
    assert guarded.call(ALICE, INIT, 6, **init_producer(names, 6)).error_code is ErrorCode.none
    guarded.allow(ALICE, TWO_PHASE_COMMIT, names.name)
    assert guarded.call(ALICE, INIT, 6, **init_two_phase(names, 6)).error_code is ErrorCode.none


def test_only_what_may_be_described_is_listed_and_shown(guarded: GuardedBroker, names: GuardedNames) -> None:
    producer = KnownProducer(guarded, ADMIN, names)
    secret = f"{names.name}-secret"
    guarded.create(secret)
    assert producer.add(TOPIC, secret) == {TOPIC: ErrorCode.none, secret: ErrorCode.none}

    def listed() -> list[str]:
        answer = guarded.call(ALICE, LIST, 2)
        assert answer.error_code is ErrorCode.none
        return [each.transactional_id for each in answer.transaction_states]

    assert listed() == []
    nowhere = GuardedNames("nowhere", names.topic_id)
    forbidden, unknown = (described(guarded, each, by=ALICE) for each in (names, nowhere))
    assert forbidden.error_code is unknown.error_code is _DENIED
    assert (forbidden.producer_id, forbidden.topics) == (unknown.producer_id, unknown.topics)

    guarded.allow(ALICE, DESCRIBE_TRANSACTIONAL_ID, names.name)
    assert listed() == [names.name]
    assert topics_of(guarded, names, by=ALICE) == []
    guarded.allow(ALICE, DESCRIBE_TOPIC, TOPIC)
    assert topics_of(guarded, names, by=ALICE) == [TOPIC]
