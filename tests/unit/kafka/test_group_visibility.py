"""Groups and offsets that a client may not see or change: it learns nothing about them, and they stay as they are."""

from typing import Any
from uuid import UUID, uuid4

import pytest
from kio.schema.errors import ErrorCode

from headrace.kafka.authorized_operations import NOT_ASKED
from headrace.kafka.permissions import (
    CREATE_CLUSTER,
    CREATE_TOPIC,
    DESCRIBE_CLUSTER,
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    READ_GROUP,
    READ_TOPIC,
)

from .guarded_broker import ADMIN, ALICE, BOB, GuardedBroker
from .permission_requests_groups import (
    TOPIC,
    GuardedNames,
    codes,
    consumer_heartbeat,
    named_groups,
    offset_commit,
    offset_committed,
    offset_fetch,
    streams_heartbeat,
)

COMMIT, FETCH, LIST, DESCRIBE, DELETE, OFFSET_DELETE, BEAT = 8, 9, 16, 15, 42, 47, 68
_DENIED_TOPIC, _DENIED_GROUP = ErrorCode.topic_authorization_failed, ErrorCode.group_authorization_failed


def committed(guarded: GuardedBroker, names: GuardedNames, topic: str = TOPIC) -> int:
    topics = [{"name": topic, "partition_indexes": [0]}]
    answer = guarded.call(ADMIN, FETCH, 8, groups=[{"group_id": names.name, "topics": topics}])
    offset: int = answer.groups[0].topics[0].partitions[0].committed_offset
    return offset


def test_offsets_of_forbidden_topics_are_not_committed_and_the_rest_is(
    guarded: GuardedBroker, names: GuardedNames
) -> None:
    other = f"{names.name}-other"
    guarded.create(other)
    guarded.allow(ALICE, READ_GROUP, names.name)
    guarded.allow(ALICE, READ_TOPIC, TOPIC)
    fields: Any = offset_commit(names, 9)
    named = [{**fields["topics"][0], "name": name} for name in (TOPIC, other, "nowhere")]
    answer = guarded.call(ALICE, COMMIT, 9, **{**fields, "topics": named})
    found = {topic.name: topic.partitions[0].error_code for topic in answer.topics}
    assert found == {TOPIC: ErrorCode.none, other: _DENIED_TOPIC, "nowhere": _DENIED_TOPIC}
    assert committed(guarded, names) == 5
    assert committed(guarded, names, other) == -1


def test_a_topic_id_is_no_way_around_the_topic(guarded: GuardedBroker, names: GuardedNames) -> None:
    guarded.allow(ALICE, READ_GROUP, names.name)
    fields: Any = offset_commit(names, 10)
    by_id = [{**fields["topics"][0], "topic_id": topic_id} for topic_id in (names.topic_id, uuid4())]
    answer = guarded.call(ALICE, COMMIT, 10, **{**fields, "topics": by_id})
    assert [topic.partitions[0].error_code for topic in answer.topics] == [_DENIED_TOPIC, ErrorCode.unknown_topic_id]
    assert committed(guarded, names) == -1
    fetched = guarded.call(ALICE, FETCH, 10, **offset_fetch(names, 10))
    assert fetched.groups[0].topics[0].partitions[0].error_code is _DENIED_TOPIC


def test_of_all_offsets_only_those_of_described_topics_are_returned(
    guarded: GuardedBroker, names: GuardedNames
) -> None:
    offset_committed(guarded, names)
    everything = {"group_id": names.name, "topics": None}
    guarded.allow(ALICE, DESCRIBE_GROUP, names.name)
    for version in (2, 7, 8, 10):
        answer = guarded.call(ALICE, FETCH, version, **everything, groups=[everything])
        (group,) = answer.groups if version >= 8 else [answer]
        assert (group.error_code, group.topics) == (ErrorCode.none, ())
    guarded.allow(ALICE, DESCRIBE_TOPIC, TOPIC)
    (group,) = guarded.call(ALICE, FETCH, 8, groups=[everything]).groups
    assert [topic.name for topic in group.topics] == [TOPIC]


def test_a_list_of_groups_leaves_out_what_may_not_be_seen(guarded: GuardedBroker, names: GuardedNames) -> None:
    others = GuardedNames(f"{names.name}-hidden", names.topic_id)
    for each in (names, others):
        offset_committed(guarded, each)

    def listed() -> set[str]:
        answer = guarded.call(ALICE, LIST, 5)
        assert answer.error_code is ErrorCode.none
        return {group.group_id for group in answer.groups}

    assert listed() == set()
    guarded.allow(ALICE, DESCRIBE_GROUP, names.name)
    assert listed() == {names.name}
    guarded.allow(ALICE, DESCRIBE_CLUSTER)
    assert listed() >= {names.name, others.name}


@pytest.mark.parametrize("key", [DESCRIBE, 69, 77, 89])
def test_a_forbidden_group_is_described_as_one_that_does_not_exist(
    guarded: GuardedBroker, names: GuardedNames, key: int
) -> None:
    offset_committed(guarded, names)
    both = [names.name, "nowhere"]
    asked = {"groups": both, "group_ids": both, "include_authorized_operations": True}
    version = {DESCRIBE: 6, 77: 1}.get(key, 0)
    is_there, is_not = guarded.call(ALICE, key, version, **asked).groups
    assert is_there.error_code is is_not.error_code is _DENIED_GROUP
    assert is_there.members == is_not.members == ()
    assert is_there.group_state == is_not.group_state == ""
    assert is_there.authorized_operations == is_not.authorized_operations == NOT_ASKED


def test_what_may_not_be_deleted_stays(guarded: GuardedBroker, names: GuardedNames) -> None:
    offset_committed(guarded, names)
    guarded.allow(ALICE, READ_GROUP, names.name)
    guarded.allow(ALICE, READ_TOPIC, TOPIC)
    answer = guarded.call(ALICE, DELETE, 2, **named_groups(names, 2))
    assert codes(answer) == {_DENIED_GROUP}
    topics = [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]
    answer = guarded.call(ALICE, OFFSET_DELETE, 0, group_id=names.name, topics=topics)
    assert (answer.error_code, answer.topics) == (_DENIED_GROUP, ())
    assert committed(guarded, names) == 5


def test_a_revoked_permission_ends_a_membership_at_the_next_heartbeat(
    guarded: GuardedBroker, names: GuardedNames
) -> None:
    for need in (READ_GROUP, DESCRIBE_TOPIC):
        guarded.allow(ALICE, need, names.named(need))
    joined = guarded.call(ALICE, BEAT, 1, **consumer_heartbeat(names, 1))
    assert joined.error_code is ErrorCode.none
    beat = {"group_id": names.name, "member_id": joined.member_id, "member_epoch": joined.member_epoch}
    unchanged = {"rebalance_timeout": -1, "subscribed_topic_names": None, "topic_partitions": None}
    assert guarded.call(ALICE, BEAT, 1, **beat, **unchanged).error_code is ErrorCode.none
    guarded.revoke(ALICE, READ_GROUP, names.name)
    assert guarded.call(ALICE, BEAT, 1, **beat, **unchanged).error_code is _DENIED_GROUP


class PatternMember:
    """A member of a consumer group that subscribes by a pattern, and owns what it is assigned."""

    def __init__(self, guarded: GuardedBroker, principal: str, group: str, pattern: str) -> None:
        self._guarded, self._principal, self._group, self._pattern = guarded, principal, group, pattern
        self._member_id, self._epoch = str(uuid4()), 0
        self._owned: set[tuple[UUID, int]] = set()

    def beat(self) -> set[UUID]:
        """Send a heartbeat; returns the ids of the topics that the member has by now."""
        owned = [{"topic_id": topic_id, "partitions": [index]} for topic_id, index in sorted(self._owned)]
        answer = self._guarded.call(
            self._principal, BEAT, 1, group_id=self._group, member_id=self._member_id, member_epoch=self._epoch,
            rebalance_timeout=10_000, subscribed_topic_names=None, subscribed_topic_regex=self._pattern,
            topic_partitions=owned,
        )  # fmt: skip
        assert answer.error_code is ErrorCode.none, answer
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            topics = answer.assignment.topic_partitions
            self._owned = {(topic.topic_id, index) for topic in topics for index in topic.partitions}
        return {topic_id for topic_id, _ in self._owned}

    def settled(self) -> set[UUID]:
        return [self.beat() for _ in range(3)][-1]


def test_a_pattern_matches_only_topics_that_the_member_may_describe(
    guarded: GuardedBroker, names: GuardedNames
) -> None:
    ids = {name: guarded.create(f"{names.name}.{name}", partitions=2) for name in ("open", "secret")}
    for principal in (ALICE, BOB):
        guarded.allow(principal, READ_GROUP, names.name)
        guarded.allow(principal, DESCRIBE_TOPIC, f"{names.name}.open")
    alice = PatternMember(guarded, ALICE, names.name, f"{names.name}[.].*")
    assert alice.beat() == {ids["open"]}

    ids["new"] = guarded.create(f"{names.name}.new")
    assert alice.settled() == {ids["open"]}, "it learns nothing of a topic that is created"
    guarded.allow(ALICE, DESCRIBE_TOPIC, f"{names.name}.new")
    assert alice.settled() == {ids["open"], ids["new"]}, "a permission that is added takes effect"

    guarded.allow(BOB, DESCRIBE_TOPIC, f"{names.name}.secret")
    bob = PatternMember(guarded, BOB, names.name, f"{names.name}[.].*")
    for _ in range(4):
        of_alice, of_bob = alice.beat(), bob.beat()
        assert ids["secret"] not in of_alice
        assert ids["new"] not in of_bob
    assert (of_alice | of_bob, ids["secret"] in of_bob, ids["new"] in of_alice) == ({*ids.values()}, True, True)

    guarded.revoke(BOB, DESCRIBE_TOPIC, f"{names.name}.secret")
    assert ids["secret"] not in bob.settled()


def test_a_pattern_stays_hidden_over_the_coordinators_other_heartbeats(
    guarded: GuardedBroker, names: GuardedNames
) -> None:
    """A member whose permissions are not known yet (they are not persisted) may have a topic in its target, and never
    gets it."""
    secret = guarded.create(f"{names.name}.secret")
    guarded.allow(ALICE, READ_GROUP, names.name)
    alice = PatternMember(guarded, ALICE, names.name, f"{names.name}[.].*")
    admin = PatternMember(guarded, ADMIN, names.name, f"{names.name}[.].*")
    assert alice.beat() == set()
    group = guarded.services.groups.consumer(names.name)
    group._roster.topics.retain(())
    assert admin.settled() <= {secret}
    assert alice.beat() == set()
    assert admin.settled() == {secret}


@pytest.mark.parametrize("version", [0, 1])
def test_a_description_does_not_show_topics_of_others(
    guarded: GuardedBroker, names: GuardedNames, version: int
) -> None:
    secret = f"{names.name}.secret"
    guarded.create(secret)
    fields = {**consumer_heartbeat(names, 1), "subscribed_topic_names": [TOPIC, secret]}
    assert guarded.call(ADMIN, BEAT, 1, **fields).error_code is ErrorCode.none
    guarded.allow(ALICE, DESCRIBE_GROUP, names.name)
    guarded.allow(ALICE, DESCRIBE_TOPIC, TOPIC)
    (described,) = guarded.call(ALICE, 69, version, group_ids=[names.name]).groups
    assert (described.error_code, described.members) == (_DENIED_TOPIC, ())
    assert secret not in str(described)
    guarded.allow(ALICE, DESCRIBE_TOPIC, secret)
    (described,) = guarded.call(ALICE, 69, version, group_ids=[names.name]).groups
    assert (described.error_code, len(described.members)) == (ErrorCode.none, 1)


@pytest.mark.parametrize("grant", [CREATE_TOPIC, CREATE_CLUSTER], ids=str)
def test_internal_topics_are_created_only_for_a_member_that_may(
    guarded: GuardedBroker, names: GuardedNames, grant: Any
) -> None:
    app = GuardedNames(f"app-{names.name}", names.topic_id)
    changelog = f"{app.name}-changelog"
    guarded.allow(ALICE, READ_GROUP, app.name)
    for name in (TOPIC, changelog):
        guarded.allow(ALICE, DESCRIBE_TOPIC, name)
    answer = guarded.call(ALICE, 88, 0, **streams_heartbeat(app, 0))
    (status,) = [each for each in answer.status if each.status_code == 3]
    assert f"Unauthorized to CREATE on topics {changelog}." in status.status_detail
    assert app.name not in guarded.services.groups._internal_topics._tasks
    assert changelog not in guarded.services.metadata.image.topics

    guarded.allow(ALICE, grant, changelog if grant is CREATE_TOPIC else "kafka-cluster")
    answer = guarded.call(ALICE, 88, 0, **streams_heartbeat(app, 0))
    assert all("Unauthorized" not in each.status_detail for each in answer.status)
    guarded.wait_led(changelog)
