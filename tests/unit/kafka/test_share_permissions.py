"""Share groups and their sessions without permission: no record is delivered, acknowledged or reset."""

import asyncio
from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid4

import pytest
from kio.schema.errors import ErrorCode

from headrace.kafka.permissions import DESCRIBE_GROUP, DESCRIBE_TOPIC, READ_GROUP, READ_TOPIC

from .guarded_broker import ADMIN, ALICE, BOB, GuardedBroker
from .permission_requests_groups import GuardedNames, share_fetch

FETCH, ACKNOWLEDGE, DESCRIBE_OFFSETS, ALTER_OFFSETS, DELETE_OFFSETS = 78, 79, 90, 91, 92
_DENIED, _NONE = ErrorCode.topic_authorization_failed, ErrorCode.none


class ShareMember:
    """A member of a share group that fetches from one topic."""

    def __init__(self, guarded: GuardedBroker, group: str, topic_id: UUID) -> None:
        self._guarded, self._names = guarded, GuardedNames(group, topic_id)
        self._epoch = 0
        self.member_id = str(uuid4())

    def fields(self, **fields: Any) -> Mapping[str, Any]:
        own = {"member_id": self.member_id, "share_session_epoch": self._epoch}
        return {**share_fetch(self._names, 2), **own, **fields}

    def noted(self, answer: Any) -> Any:
        assert answer.error_code is _NONE, answer
        self._epoch += 1
        (topic,) = answer.responses or [None]
        return None if topic is None else topic.partitions[0]

    def fetch(self, principal: str, **fields: Any) -> Any:
        """The partition of the answer; None if there is nothing in it."""
        return self.noted(self._guarded.call(principal, FETCH, 2, **self.fields(**fields)))

    def acquire(self, principal: str) -> Any:
        """Fetch until a record comes: the first fetch of a group opens its state."""
        while (found := self.fetch(principal, max_wait=1000)) is None:
            pass
        return found

    def acknowledge(self, principal: str, topic_id: UUID | None = None, *, with_fetch: bool = False) -> ErrorCode:
        batches = [{"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}]
        partition = {"partition_index": 0, "acknowledgement_batches": batches}
        topics = [{"topic_id": topic_id or self._names.topic_id, "partitions": [partition]}]
        key = FETCH if with_fetch else ACKNOWLEDGE
        found = self.noted(self._guarded.call(principal, key, 2, **self.fields(topics=topics)))
        return ErrorCode(found.acknowledge_error_code) if with_fetch else found.error_code


@pytest.fixture
def topic(guarded: GuardedBroker, names: GuardedNames) -> str:
    """A topic with a record, and a group that begins with it; Alice may read both."""
    name = f"{names.name}-shared"
    guarded.create(name)
    guarded.append(name, b"secret")
    fields = {"topic_name": name, "partitions": [{"partition_index": 0, "start_offset": 0}]}
    answer = guarded.call(ADMIN, ALTER_OFFSETS, 0, group_id=names.name, topics=[fields])
    assert answer.responses[0].partitions[0].error_code is _NONE
    guarded.allow(ALICE, READ_GROUP, names.name)
    guarded.allow(ALICE, READ_TOPIC, name)
    return name


@pytest.fixture
def member(guarded: GuardedBroker, names: GuardedNames, topic: str) -> ShareMember:
    return ShareMember(guarded, names.name, guarded.topic_id(topic))


def test_a_session_does_not_go_on_delivering_a_topic_whose_read_was_revoked(
    guarded: GuardedBroker, topic: str, member: ShareMember
) -> None:
    assert b"secret" in bytes(member.acquire(ALICE).records)
    guarded.append(topic, b"second secret")
    guarded.revoke(ALICE, READ_TOPIC, topic)
    denied = member.fetch(ALICE, topics=[])
    assert (denied.error_code, bytes(denied.records), denied.acquired_records) == (_DENIED, b"", ())
    guarded.allow(ALICE, READ_TOPIC, topic)
    assert [each.delivery_count for each in member.fetch(ALICE).acquired_records] == [1], "nothing was acquired before"


def test_a_fetch_that_waits_ends_without_records_of_a_topic_whose_read_was_revoked(
    guarded: GuardedBroker, topic: str, member: ShareMember
) -> None:
    member.acquire(ALICE)

    async def wait() -> "asyncio.Task[Any]":
        asked = guarded.ask(ALICE, FETCH, 2, member.fields(topics=[], max_wait=60_000))
        task = asyncio.get_running_loop().create_task(asked)
        await asyncio.sleep(0)
        return task

    async def answered(task: "asyncio.Task[Any]") -> Any:
        return await asyncio.wait_for(task, 60)

    waiting = guarded.run(wait())
    guarded.revoke(ALICE, READ_TOPIC, topic)
    guarded.append(topic, b"second secret")
    denied = member.noted(guarded.run(answered(waiting)))
    assert (denied.error_code, bytes(denied.records)) == (_DENIED, b"")


def test_the_session_of_another_member_gives_nothing(
    guarded: GuardedBroker, names: GuardedNames, topic: str, member: ShareMember
) -> None:
    """Bob may use the group and knows Alice's member id, but may not read the topic."""
    guarded.allow(BOB, READ_GROUP, names.name)
    member.acquire(ALICE)
    guarded.append(topic, b"second secret")
    denied = member.fetch(BOB, topics=[])
    assert (denied.error_code, bytes(denied.records)) == (_DENIED, b"")
    assert member.acknowledge(BOB) is _DENIED
    assert member.acknowledge(BOB, with_fetch=True) is _DENIED
    assert member.acknowledge(ALICE) is _NONE, "the record was still hers to acknowledge"


def test_without_read_on_the_group_a_session_is_left_alone(
    guarded: GuardedBroker, topic: str, member: ShareMember
) -> None:
    member.acquire(ALICE)
    guarded.allow(BOB, READ_TOPIC, topic)
    for key in (FETCH, ACKNOWLEDGE):
        for epoch in (0, 2, -1):
            answer = guarded.call(BOB, key, 2, **member.fields(share_session_epoch=epoch))
            assert answer.error_code is ErrorCode.group_authorization_failed
    assert member.acknowledge(ALICE) is _NONE


def test_a_topic_id_is_no_way_around_the_topic(
    guarded: GuardedBroker, names: GuardedNames, member: ShareMember
) -> None:
    member.acquire(ALICE)
    secret = f"{names.name}-secret"
    secret_id = guarded.create(secret)
    guarded.append(secret, b"secret")
    assert member.acknowledge(ALICE, secret_id) is _DENIED
    assert member.acknowledge(ALICE, uuid4()) is ErrorCode.unknown_topic_id
    other = ShareMember(guarded, names.name, secret_id)
    assert other.fetch(ALICE).error_code is _DENIED


def test_offsets_of_forbidden_topics_are_not_shown_set_or_deleted(
    guarded: GuardedBroker, names: GuardedNames, topic: str
) -> None:
    def shown(principal: str, topics: Any) -> dict[str, tuple[ErrorCode, int]]:
        asked = [{"group_id": names.name, "topics": topics}]
        (group,) = guarded.call(principal, DESCRIBE_OFFSETS, 1, groups=asked).groups
        assert group.error_code is _NONE
        return {
            each.topic_name: (each.partitions[0].error_code, each.partitions[0].start_offset) for each in group.topics
        }

    named = [{"topic_name": name, "partitions": [0]} for name in (topic, "nowhere")]
    guarded.revoke(ALICE, READ_TOPIC, topic)
    guarded.allow(ALICE, DESCRIBE_GROUP, names.name)
    assert shown(ALICE, None) == {}
    assert shown(ALICE, named) == {topic: (_DENIED, -1), "nowhere": (_DENIED, -1)}

    partitions = [{"partition_index": 0, "start_offset": 1}]
    asked = [{"topic_name": name, "partitions": partitions} for name in (topic, "nowhere")]
    answer = guarded.call(ALICE, ALTER_OFFSETS, 0, group_id=names.name, topics=asked)
    assert [each.partitions[0].error_code for each in answer.responses] == [_DENIED, _DENIED]
    answer = guarded.call(ALICE, DELETE_OFFSETS, 0, group_id=names.name, topics=[{"topic_name": topic}])
    assert answer.error_code is ErrorCode.group_authorization_failed
    assert shown(ADMIN, None) == {topic: (_NONE, 0)}

    guarded.allow(ALICE, DESCRIBE_TOPIC, topic)
    assert shown(ALICE, None) == {topic: (_NONE, 0)}
