"""The streams group protocol (KIP-1071) to the letter: topologies, internal topics, tasks that move, fencing, restarts.

What is not marked passes against Apache Kafka 4.3, too (see `subject.py`).
"""

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from . import raw_client, subject
from .classic_members import Member as ClassicMember
from .raw_client import Connection, Error
from .streams_members import PATIENCE_S, StreamsMember, described, owned, plain, statuses, word_count
from .subject import Subject

GROUP_RESOURCE, TOPIC_RESOURCE = 32, 2
STALE, MISSING_SOURCE, INCORRECT, MISSING_INTERNAL, SHUTDOWN, DELAYED = range(6)
QUICK = {
    "group_streams_min_heartbeat_interval_ms": "100",
    "group_streams_heartbeat_interval_ms": "500",
    "group_streams_min_session_timeout_ms": "1000",
    "group_streams_session_timeout_ms": "3000",
    "group_streams_initial_rebalance_delay_ms": "0",
}
ours = pytest.mark.skipif(not subject.IS_HEADRACE, reason="Headrace differs from Kafka here, see the handler")


def configure(connection: Connection, group: str, name: str, value: str) -> Error:
    configs = [{"name": name, "config_operation": 0, "value": value}]
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configs": configs}
    code: Error = connection.call(raw_client.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource]).responses[0].error_code
    return code


def new_group(connection: Connection) -> str:
    name = f"app-{uuid.uuid4().hex[:8]}"
    raw_client.until_coordinated(connection, name=name)
    assert configure(connection, name, "streams.initial.rebalance.delay.ms", "0") is Error.none
    if not subject.IS_HEADRACE:
        # Kafka 4.3 makes one target a second at most.
        configure(connection, name, "streams.assignment.interval.ms", "0")
    return name


@pytest.fixture
def group(connection: Connection) -> str:
    """A group of the test's own that does not wait for more members."""
    return new_group(connection)


@pytest.fixture
def member(connection: Connection, group: str) -> Iterator[Callable[..., StreamsMember]]:
    made: list[StreamsMember] = []

    def make(*args: Any, **kwargs: Any) -> StreamsMember:
        made.append(StreamsMember(connection, group, *args, **kwargs))
        return made[-1]

    yield make
    for one in made:
        one.beat(member_epoch=-1)


def run(one: StreamsMember, topology: dict[str, Any], **fields: Any) -> None:
    """Join, and wait until the internal topics are there and the member has its tasks."""
    told = one.join(topology, **fields)
    end = time.monotonic() + PATIENCE_S
    while statuses(told) or not one.active:
        assert told.error_code is Error.none, told
        assert time.monotonic() < end, told
        time.sleep(0.05)
        told = one.beat()
    one.owns()


def test_the_broker_says_that_it_has_streams_groups(connection: Connection) -> None:
    answer = connection.call(raw_client.API_VERSIONS, 4, client_software_name="wire", client_software_version="1")
    ranges = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    assert ranges[raw_client.STREAMS_GROUP_HEARTBEAT] == ranges[raw_client.STREAMS_GROUP_DESCRIBE] == (0, 0)
    assert {one.name: one.max_version_level for one in answer.finalized_features}["streams.version"] == 1


def test_internal_topics_are_created_and_tasks_assigned(
    connection: Connection, group: str, member: Callable[..., StreamsMember], new_topic: Callable[..., str]
) -> None:
    source = new_topic(3)
    one = member()
    first = one.join(word_count(group, source))
    assert first.error_code is Error.none
    assert first.member_epoch > 0
    assert first.heartbeat_interval.total_seconds() == 5
    assert (statuses(first), one.active) == ([MISSING_INTERNAL], {})
    assert described(connection, group).group_state == "NotReady"
    end = time.monotonic() + PATIENCE_S
    while not one.active:
        assert time.monotonic() < end
        time.sleep(0.05)
        told = one.beat()
    assert (one.active, one.standby, told.warmup_tasks, statuses(told)) == (
        {"0": [0, 1, 2], "1": [0, 1, 2]},
        {},
        (),
        [],
    )
    assert one.owns().active_tasks is None
    words, counted = f"{group}-words-repartition", f"{group}-counted-changelog"
    topics = connection.call(raw_client.METADATA, 12, topics=[{"name": words}, {"name": counted}]).topics
    assert [(topic.error_code, len(topic.partitions)) for topic in topics] == [(Error.none, 3)] * 2
    resources = [{"resource_type": TOPIC_RESOURCE, "resource_name": name} for name in (words, counted)]
    configs = connection.call(raw_client.DESCRIBE_CONFIGS, 4, resources=resources).results
    found = [{config.name: config.value for config in result.configs} for result in configs]
    assert (found[0]["retention.ms"], found[1]["cleanup.policy"]) == ("-1", "compact")


def test_a_group_is_described_and_listed(
    connection: Connection, group: str, member: Callable[..., StreamsMember], new_topic: Callable[..., str]
) -> None:
    source = new_topic(2)
    one = member("process-1")
    run(one, word_count(group, source), user_endpoint={"host": "h", "port": 80}, rack_id="r")
    seen = described(connection, group)
    assert (seen.error_code, seen.group_state, seen.group_epoch) == (Error.none, "Stable", one.epoch)
    assert seen.assignment_epoch == one.epoch
    (only,) = seen.members
    assert (only.member_id, only.member_epoch, only.process_id, only.rack_id) == (
        one.member_id,
        one.epoch,
        "process-1",
        "r",
    )
    assert (only.user_endpoint.host, only.user_endpoint.port, only.is_classic) == ("h", 80, False)
    assert {task.subtopology_id: list(task.partitions) for task in only.assignment.active_tasks} == one.active
    assert only.target_assignment == only.assignment
    by_id = {sub.subtopology_id: sub for sub in seen.topology.subtopologies}
    assert by_id["0"].source_topics == (source,)
    assert by_id["0"].repartition_sink_topics == (f"{group}-words-repartition",)
    assert [(topic.name, topic.partitions) for topic in by_id["1"].state_changelog_topics] == [
        (f"{group}-counted-changelog", 2)
    ]
    for filters in ({"types_filter": ["Streams"]}, {"states_filter": ["stable"]}):
        listed = connection.call(raw_client.LIST_GROUPS, 5, filters).groups
        assert (group, "Stable", "streams") in [(one.group_id, one.group_state, one.group_type) for one in listed]
    listed = connection.call(raw_client.LIST_GROUPS, 5, {"types_filter": ["consumer", "classic", "share"]}).groups
    assert group not in [one.group_id for one in listed]
    assert described(connection, "no-such-group").error_code is Error.group_id_not_found
    assert connection.call(raw_client.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": [group]}).groups[0].error_code in (
        Error.group_id_not_found,
    )


def test_a_task_moves_only_when_its_owner_has_given_it_up(
    member: Callable[..., StreamsMember], new_topic: Callable[..., str]
) -> None:
    topology = plain(new_topic(2))
    one, two = member(), member()
    run(one, topology)
    assert two.join(topology).error_code is Error.none
    assert two.active == {}
    before, epoch = dict(one.active), one.epoch
    told = one.beat()
    assert (told.member_epoch, len(one.active["0"])) == (epoch, 1)
    two.beat()
    assert two.active == {}
    assert one.beat(**owned(before, {})).member_epoch == epoch
    two.beat()
    assert two.active == {}
    assert one.owns().member_epoch == two.epoch
    two.beat()
    assert sorted(one.active["0"] + two.active["0"]) == [0, 1]


def test_standbys_are_in_another_process(
    connection: Connection, group: str, member: Callable[..., StreamsMember], new_topic: Callable[..., str]
) -> None:
    assert configure(connection, group, "streams.num.standby.replicas", "1") is Error.none
    topology = word_count(group, new_topic(2))
    one, two = member("p1"), member("p2")
    run(one, topology)
    assert one.standby == {}
    two.join(topology)
    one.settle(two)
    assert sum(map(len, one.active.values())) == sum(map(len, two.active.values())) == 2
    for mine, other in ((one, two), (two, one)):
        assert mine.standby.get("1", []) == other.active.get("1", [])
        assert "0" not in mine.standby
    assert configure(connection, group, "streams.num.standby.replicas", "0") is Error.none
    one.settle(two)
    assert (one.standby, two.standby) == ({}, {})


def test_members_know_where_the_stores_of_all_are(
    member: Callable[..., StreamsMember], new_topic: Callable[..., str]
) -> None:
    source = new_topic(2)
    one, two = member(), member()
    run(one, plain(source), user_endpoint={"host": "one", "port": 1})
    two.join(plain(source), user_endpoint={"host": "two", "port": 2})
    one.settle(two)
    two.endpoints_epoch = -1
    told = two.beat()
    found = {
        (at.user_endpoint.host, at.user_endpoint.port): [(tp.topic, list(tp.partitions)) for tp in at.active_partitions]
        for at in told.partitions_by_user_endpoint
    }
    assert found == {("one", 1): [(source, one.active["0"])], ("two", 2): [(source, two.active["0"])]}
    assert two.beat().partitions_by_user_endpoint is None


def test_missing_and_misfit_topics_are_named(
    group: str, member: Callable[..., StreamsMember], broker: Subject, new_topic: Callable[..., str]
) -> None:
    one, two = member(), member()
    missing = f"later-{uuid.uuid4().hex[:8]}"
    told = one.join(plain(missing))
    assert (told.error_code, statuses(told), one.active) == (Error.none, [MISSING_SOURCE], {})
    assert missing in told.status[0].status_detail
    raw_client.create_topic(broker.bootstrap, missing, 1, {})
    end = time.monotonic() + PATIENCE_S
    while not one.active:
        assert time.monotonic() < end
        time.sleep(0.05)
        told = one.beat()
    assert (one.active, statuses(told)) == ({"0": [0]}, [])
    one.beat(member_epoch=-1)
    both = {
        "epoch": 0,
        "subtopologies": [
            {
                "subtopology_id": "0",
                "source_topics": [new_topic(1), new_topic(2)],
                "copartition_groups": [{"source_topics": [0, 1]}],
            }
        ],
    }
    if subject.IS_HEADRACE:
        told = two.join(both)
        assert (statuses(told), two.active) == ([INCORRECT], {})


@ours
def test_why_an_internal_topic_cannot_be_created_is_told(
    group: str, member: Callable[..., StreamsMember], new_topic: Callable[..., str]
) -> None:
    one = member()
    told = one.join(word_count(group, new_topic(1), replication_factor=3))
    end = time.monotonic() + PATIENCE_S
    while "cannot be created" not in told.status[0].status_detail:
        assert time.monotonic() < end
        time.sleep(0.05)
        told = one.beat()
    assert statuses(told) == [MISSING_INTERNAL]
    assert f"{group}-counted-changelog: " in told.status[0].status_detail


@ours
def test_topologies_that_cannot_be_are_refused(
    group: str, member: Callable[..., StreamsMember], new_topic: Callable[..., str]
) -> None:
    source = new_topic(1)
    one, two = member(), member()
    orphan = {"subtopology_id": "0", "repartition_source_topics": [{"name": "orphan"}]}
    beyond = {"subtopology_id": "0", "source_topics": [source], "copartition_groups": [{"source_topics": [0, -1]}]}
    for wrong in ([], [orphan], [beyond], [{"subtopology_id": "0", "source_topics": ["__consumer_offsets"]}]):
        told = one.join({"epoch": 0, "subtopologies": wrong})
        assert told.error_code is Error.streams_invalid_topology, wrong
    pattern = {"subtopology_id": "0", "source_topic_regex": ["a.*"]}
    assert one.join({"epoch": 0, "subtopologies": [pattern]}).error_code is Error.invalid_request
    run(one, plain(source, epoch=1))
    assert two.join(word_count(group, source, epoch=1)).error_code is Error.streams_invalid_topology
    assert two.join(plain(source, epoch=2)).error_code is Error.streams_invalid_topology_epoch
    told = two.join(plain(source, epoch=0))
    assert (told.error_code, statuses(told), two.active) == (Error.none, [STALE], {})


@pytest.mark.parametrize(
    "wrong",
    [
        {"member_id": ""},
        {"rebalance_timeout": -1},
        {"topology": None},
        {"active_tasks": None},
        owned({"0": [0]}, {}),
        {"member_epoch": -3},
        {"member_epoch": -2},
        {"instance_id": ""},
    ],
)
def test_what_no_member_may_say_is_refused(
    member: Callable[..., StreamsMember], new_topic: Callable[..., str], wrong: dict[str, Any]
) -> None:
    assert member().join(plain(new_topic(1)), **wrong).error_code is Error.invalid_request


def test_who_is_at_another_epoch_is_fenced(
    group: str, member: Callable[..., StreamsMember], new_topic: Callable[..., str]
) -> None:
    one = member()
    assert one.beat(member_epoch=1).error_code is Error.group_id_not_found
    run(one, plain(new_topic(1)))
    for epoch in (one.epoch + 1, one.epoch - 1):
        assert one.beat(member_epoch=epoch).error_code is Error.fenced_member_epoch
    assert member().beat(member_epoch=one.epoch).error_code is Error.unknown_member_id
    assert one.beat(member_epoch=-1).member_epoch == -1
    assert one.beat().error_code in (Error.unknown_member_id, Error.invalid_request)


@ours
def test_a_static_member_keeps_its_tasks_while_it_is_away(
    connection: Connection, group: str, member: Callable[..., StreamsMember], new_topic: Callable[..., str]
) -> None:
    topology = plain(new_topic(2))
    one, again = member(instance_id="i"), member(instance_id="i")
    run(one, topology)
    assert again.join(topology).error_code is Error.unreleased_instance_id
    epoch = one.epoch
    assert one.beat(member_epoch=-2).member_epoch == -2
    again.join(topology)
    assert again.active == {"0": [0, 1]}
    assert one.beat(member_epoch=epoch).error_code is Error.fenced_instance_id


def test_only_members_commit_and_fetch_offsets(
    connection: Connection, group: str, member: Callable[..., StreamsMember], new_topic: Callable[..., str]
) -> None:
    source = new_topic(1)
    one = member()
    run(one, plain(source))

    def commit(member_id: str, epoch: int) -> Error:
        partitions = [{"partition_index": 0, "committed_offset": 7, "committed_leader_epoch": -1}]
        body = {
            "group_id": group,
            "member_id": member_id,
            "generation_id_or_member_epoch": epoch,
            "group_instance_id": None,
            "topics": [{"name": source, "partitions": partitions}],
        }
        answer = connection.call(raw_client.OFFSET_COMMIT, 9, body)
        code: Error = answer.topics[0].partitions[0].error_code
        return code

    def fetch(member_id: str | None, epoch: int) -> Any:
        asked = {"group_id": group, "member_id": member_id, "member_epoch": epoch, "topics": None}
        return connection.call(raw_client.OFFSET_FETCH, 9, {"groups": [asked]}).groups[0]

    assert commit(one.member_id, one.epoch) is Error.none
    assert commit(one.member_id, one.epoch + 1) is Error.stale_member_epoch
    assert commit("stranger", one.epoch) is Error.unknown_member_id
    assert commit("", -1) is Error.unknown_member_id
    assert fetch(one.member_id, one.epoch).topics[0].partitions[0].committed_offset == 7
    assert fetch(None, -1).error_code is Error.none
    assert fetch(one.member_id, one.epoch + 1).error_code is Error.stale_member_epoch
    assert fetch("stranger", one.epoch).error_code is Error.unknown_member_id
    places = [{"name": source, "partitions": [{"partition_index": 0}]}]
    deleted = connection.call(raw_client.OFFSET_DELETE, 0, {"group_id": group, "topics": places})
    assert deleted.topics[0].partitions[0].error_code is Error.group_subscribed_to_topic
    assert (
        connection.call(raw_client.DELETE_GROUPS, 2, groups_names=[group]).results[0].error_code
        is Error.non_empty_group
    )
    one.beat(member_epoch=-1)
    assert commit("", -1) is Error.none
    deleted = connection.call(raw_client.OFFSET_DELETE, 0, {"group_id": group, "topics": places})
    assert deleted.topics[0].partitions[0].error_code is Error.none
    assert connection.call(raw_client.DELETE_GROUPS, 2, groups_names=[group]).results[0].error_code is Error.none
    assert described(connection, group).error_code is Error.group_id_not_found


def test_one_member_ends_the_application_for_all(
    member: Callable[..., StreamsMember], new_topic: Callable[..., str]
) -> None:
    topology = plain(new_topic(1))
    one, two = member(), member()
    run(one, topology)
    two.join(topology)
    assert SHUTDOWN in statuses(one.beat(shutdown_application=True))
    assert SHUTDOWN in statuses(two.beat())


def test_settings_of_groups_have_bounds(connection: Connection, group: str) -> None:
    for name, right, wrong in (
        ("streams.session.timeout.ms", "50000", "44999"),
        ("streams.heartbeat.interval.ms", "6000", "15001"),
        ("streams.num.standby.replicas", "2", "3"),
        ("streams.initial.rebalance.delay.ms", "10", "-1"),
    ):
        assert configure(connection, group, name, right) is Error.none
        assert configure(connection, group, name, wrong) is Error.invalid_config
        resource = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configuration_keys": [name]}
        (result,) = connection.call(raw_client.DESCRIBE_CONFIGS, 4, resources=[resource]).results
        assert [(config.name, config.value) for config in result.configs] == [(name, right)]


def test_the_first_members_wait_for_more(
    connection: Connection, group: str, member: Callable[..., StreamsMember], new_topic: Callable[..., str]
) -> None:
    assert configure(connection, group, "streams.initial.rebalance.delay.ms", "1000") is Error.none
    topology = plain(new_topic(2))
    one, two = member(), member()
    for each in (one, two):
        told = each.join(topology)
        assert (statuses(told), each.active) == ([DELAYED], {})
    end = time.monotonic() + PATIENCE_S
    while not (one.active and two.active):
        assert time.monotonic() < end
        time.sleep(0.05)
        one.beat()
        two.beat()
    assert sorted(one.active["0"] + two.active["0"]) == [0, 1]


def test_an_application_changes_its_protocol_while_it_is_stopped(
    broker: Subject,
    connection: Connection,
    group: str,
    member: Callable[..., StreamsMember],
    new_topic: Callable[..., str],
) -> None:
    source = new_topic(1)
    classic = ClassicMember(broker.bootstrap, group, 9)
    classic.join()
    classic.leave()
    one = member()
    run(one, plain(source))
    one.beat(member_epoch=-1)
    again = ClassicMember(broker.bootstrap, group, 9)
    again.join()
    listed = connection.call(raw_client.LIST_GROUPS, 5).groups
    assert {one.group_id: one.group_type for one in listed}[group] == "classic"
    again.leave()
    for each in (classic, again):
        each.connection.close()


@ours
def test_a_restart_finds_members_where_they_were(own_broker: Callable[..., Subject]) -> None:
    broker = own_broker(**QUICK)
    source = f"source-{uuid.uuid4().hex[:8]}"
    raw_client.create_topic(broker.bootstrap, source, 4, {})
    with Connection(broker.bootstrap) as connection:
        group = new_group(connection)
        one, two = StreamsMember(connection, group, "p1"), StreamsMember(connection, group, "p2")
        run(one, word_count(group, source))
        two.join(word_count(group, source))
        one.beat()
        held = dict(one.active)
    broker.kill()
    broker.start()
    with Connection(broker.bootstrap) as connection:
        raw_client.until_coordinated(connection, name=group)
        one.connection = two.connection = connection
        assert two.beat().error_code is Error.none
        assert two.active == {}
        assert one.beat().error_code is Error.none
        assert one.active == held
        one.settle(two)
        assert sum(map(len, one.active.values())) == sum(map(len, two.active.values())) == 4


@ours
def test_the_tasks_of_a_silent_member_go_to_others(own_broker: Callable[..., Subject]) -> None:
    broker = own_broker(**QUICK)
    source = f"source-{uuid.uuid4().hex[:8]}"
    raw_client.create_topic(broker.bootstrap, source, 2, {})
    with Connection(broker.bootstrap) as connection:
        group = new_group(connection)
        one, two = StreamsMember(connection, group), StreamsMember(connection, group)
        run(one, plain(source))
        two.join(plain(source))
        one.settle(two)
        end = time.monotonic() + PATIENCE_S
        while two.active != {"0": [0, 1]}:
            assert time.monotonic() < end
            time.sleep(0.1)
            two.owns()
        assert one.beat().error_code is Error.unknown_member_id
