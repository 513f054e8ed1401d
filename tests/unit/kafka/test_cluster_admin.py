"""Reassignments, elections, brokers and draining as clients ask for them, on brokers of a cluster."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kio.index import load_payload_module
from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType

import headrace.kafka.handlers  # noqa: F401  (registers the handlers)
from headrace.kafka.departures import Departures
from headrace.kafka.dispatch import APIS, Context, Peer
from headrace.model.ids import NO_LEADER, BrokerId
from headrace.model.image import Endpoint
from headrace.protocol.codec import RequestHeader, make, write_response
from headrace.protocol.units import from_ms
from headrace.security.security import Security
from tests.unit.cluster.members import Member, Members, run
from tests.waiting import until_async as until

METADATA, ELECT, ALTER_CONFIGS, REASSIGN, LIST, DESCRIBE = 3, 43, 44, 45, 46, 60
PREFERRED, UNCLEAN = 0, 1
TIMEOUT = from_ms(10_000)


async def ask(member: Member, key: int, version: int, build: Callable[[Any], Any]) -> Any:
    request = build(load_payload_module(key, version, EntityType.request))
    services: Any = SimpleNamespace(
        metadata=member.metadata,
        settings=member.metadata.settings,
        departures=Departures(member.clock),
        security=Security(),
    )
    header = RequestHeader(key, version, 1, "test", 0)
    answer: Any = APIS[key].handler(Context(header, Peer("10.1.2.3:5", Endpoint("seen", 1)), services), request)
    if hasattr(answer, "__await__"):
        answer = await answer
    write_response(header, answer)
    return answer


async def move(member: Member, index: int, replicas: tuple[int, ...] | None, **others: Any) -> ErrorCode:
    answer = await ask(
        member,
        REASSIGN,
        1,
        lambda schema: make(
            schema.AlterPartitionReassignmentsRequest,
            timeout=TIMEOUT,
            topics=(
                schema.ReassignableTopic(
                    name="a",
                    partitions=(schema.ReassignablePartition(partition_index=index, replicas=replicas),),
                ),
            ),
            **others,
        ),
    )
    assert answer.error_code == ErrorCode.none
    ((found,),) = [one.partitions for one in answer.responses]
    assert (found.error_message is None) == (found.error_code == ErrorCode.none)
    return ErrorCode(found.error_code)


async def moving(member: Member) -> dict[int, tuple[set[int], tuple[int, ...], tuple[int, ...]]]:
    answer = await ask(
        member, LIST, 0, lambda schema: schema.ListPartitionReassignmentsRequest(timeout=TIMEOUT, topics=None)
    )
    return {
        part.partition_index: (set(part.replicas), part.adding_replicas, part.removing_replicas)
        for topic in answer.topics
        for part in topic.partitions
    }


async def elect(member: Member, kind: int, indexes: tuple[int, ...] | None) -> dict[int, ErrorCode]:
    answer = await ask(
        member,
        ELECT,
        2,
        lambda schema: schema.ElectLeadersRequest(
            election_type=kind,
            timeout=TIMEOUT,
            topic_partitions=None if indexes is None else (schema.TopicPartitions(topic="a", partitions=indexes),),
        ),
    )
    assert answer.error_code == ErrorCode.none
    return {
        part.partition_id: ErrorCode(part.error_code)
        for topic in answer.replica_election_results
        for part in topic.partition_result
    }


def test_a_partition_moves_and_a_move_is_cancelled(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        one, two, _ = await members.start_all(1, 2, 3)
        await one.metadata.create_topic("a", assignment={0: [1, 2], 1: [1, 2]})
        await until(lambda: "a" in two.metadata.image.topics)
        # Any broker can be asked.
        assert await move(two, 0, (3, 2)) == ErrorCode.none
        assert await moving(two) == {0: ({1, 2, 3}, (3,), (1,))}
        assert await move(two, 1, None) == ErrorCode.no_reassignment_in_progress
        assert await move(two, 0, (3, 3)) == ErrorCode.invalid_replica_assignment
        assert await move(two, 0, ()) == ErrorCode.invalid_replica_assignment
        assert await move(two, 0, (9,)) == ErrorCode.invalid_replica_assignment
        assert await move(two, 7, (1,)) == ErrorCode.unknown_topic_or_partition
        factor = {"allow_replication_factor_change": False}
        assert await move(two, 0, (1, 2, 3), **factor) == ErrorCode.invalid_replication_factor
        assert await move(two, 0, None) == ErrorCode.none
        assert await moving(two) == {}
        assert set(two.state("a").replicas) == {1, 2}
        assert await move(two, 0, (3, 2)) == ErrorCode.none
        await two.catch_up("a")
        await until(lambda: two.state("a").replicas == (3, 2))
        assert set(two.state("a").isr) == {2, 3}
        assert two.state("a").leader in (2, 3)
        # Fewer replicas, more replicas, another order.
        assert await move(two, 0, (2,)) == ErrorCode.none
        await until(lambda: two.state("a").replicas == (2,))
        assert (two.state("a").isr, two.state("a").leader) == ((2,), 2)
        assert await move(two, 1, (2, 1)) == ErrorCode.none
        assert two.state("a", 1).replicas == (2, 1)
        assert not two.state("a", 1).is_reassigning

    run(tmp_path, scenario)


def test_leadership_goes_to_the_first_replica_if_it_can(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        one, two, _ = await members.start_all(1, 2, 3)
        await one.metadata.create_topic("a", assignment={0: [1, 2], 1: [2, 1], 2: [3, 1]})
        await until(lambda: "a" in two.metadata.image.topics)
        assert await move(two, 0, (2, 1)) == ErrorCode.none
        assert await elect(two, PREFERRED, (0, 1, 9)) == {
            0: ErrorCode.none,
            1: ErrorCode.election_not_needed,
            9: ErrorCode.unknown_topic_or_partition,
        }
        assert (two.state("a").leader, two.state("a").leader_epoch) == (2, 1)
        assert await elect(two, PREFERRED, None) == {}
        assert await elect(two, UNCLEAN, (0,)) == {0: ErrorCode.election_not_needed}

    run(tmp_path, scenario)


def test_who_is_not_in_sync_is_not_elected(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        one, two = await members.start_all(1, 2)
        await one.metadata.create_topic("a", assignment={0: [2, 1], 1: [2, 1]})
        assert await move(one, 1, (2,)) == ErrorCode.none
        await until(lambda: one.state("a", 1).isr == (2,))
        await two.stop()
        await until(lambda: one.state("a").leader == 1 and one.state("a", 1).leader == NO_LEADER)
        assert await elect(one, PREFERRED, (0,)) == {0: ErrorCode.preferred_leader_not_available}
        assert await elect(one, UNCLEAN, None) == {1: ErrorCode.eligible_leaders_not_available}
        answer = await ask(
            one,
            METADATA,
            12,
            lambda schema: make(
                schema.MetadataRequest,
                topics=None,
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=False,
            ),
        )
        assert [broker.node_id for broker in answer.brokers] == [1]
        assert answer.controller_id == 1
        parts = {part.partition_index: part for part in answer.topics[0].partitions}
        assert (parts[0].leader_id, parts[0].leader_epoch, parts[0].offline_replicas) == (1, 1, (2,))
        assert (parts[1].leader_id, parts[1].error_code) == (-1, ErrorCode.leader_not_available)

    run(tmp_path, scenario)


def test_a_client_is_sent_to_the_broker_it_asks_with_what_others_send_to_the_controller(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        for member in await members.start_all(1, 2):
            answer = await ask(
                member,
                METADATA,
                12,
                lambda schema: make(
                    schema.MetadataRequest,
                    topics=(),
                    allow_auto_topic_creation=False,
                    include_topic_authorized_operations=False,
                ),
            )
            assert answer.controller_id == member.metadata.broker_id

    run(tmp_path, scenario)


def test_brokers_that_are_down_are_told_as_fenced_and_one_that_is_down_can_be_drained(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        one, two, _ = await members.start_all(1, 2, 3)
        await one.metadata.create_topic("a", assignment={0: [1, 2]})
        await two.stop()
        await until(lambda: not one.metadata.image.is_alive(BrokerId(2)))

        async def brokers(*, include_fenced: bool) -> dict[int, bool]:
            answer = await ask(
                one,
                DESCRIBE,
                2,
                lambda schema: make(schema.DescribeClusterRequest, include_fenced_brokers=include_fenced,
                                    include_cluster_authorized_operations=False),
            )  # fmt: skip
            assert answer.controller_id == one.metadata.image.controller_id
            return {broker.broker_id: broker.is_fenced for broker in answer.brokers}

        assert await brokers(include_fenced=False) == {1: False, 3: False}
        assert await brokers(include_fenced=True) == {1: False, 2: True, 3: False}

        answer = await ask(
            one,
            ALTER_CONFIGS,
            1,
            lambda schema: schema.IncrementalAlterConfigsRequest(
                resources=(
                    schema.AlterConfigsResource(
                        resource_type=4,
                        resource_name="2",
                        configs=(schema.AlterableConfig(name="broker.draining", config_operation=0, value="true"),),
                    ),
                ),
                validate_only=False,
            ),
        )
        assert [each.error_code for each in answer.responses] == [ErrorCode.none]
        await until(lambda: set(one.state("a").replicas) == {1, 2, 3})
        await one.catch_up("a")
        await until(lambda: set(one.state("a").replicas) == {1, 3})
        await until(lambda: BrokerId(2) not in one.metadata.image.brokers)

    run(tmp_path, scenario)


def test_clients_are_always_told_of_somebody_to_turn_to(tmp_path: Path) -> None:
    """librdkafka forgets every broker that it is not told of. Told of none while leases are taken anew, it may never
    ask again (with `metadata.recovery.strategy=none`; see also its issue 5301)."""

    async def scenario(members: Members) -> None:
        async def told(member: Member) -> dict[int, tuple[str, int]]:
            answer = await ask(
                member,
                METADATA,
                12,
                lambda schema: make(
                    schema.MetadataRequest,
                    topics=None,
                    allow_auto_topic_creation=False,
                    include_topic_authorized_operations=False,
                ),
            )
            assert [topic.name for topic in answer.topics] == ["a"]
            has_leader = any(broker.is_alive for broker in member.metadata.image.brokers.values())
            assert all((part.leader_id >= 0) == has_leader for topic in answer.topics for part in topic.partitions)
            return {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}

        one, two, three = await members.start_all(1, 2, 3)
        seen, of_two, of_three = ("seen", 1), ("127.0.0.1", 9002), ("127.0.0.1", 9003)
        await one.metadata.create_topic("a", assignment={0: [1, 2, 3]})
        await one.catch_up("a")
        assert await told(one) == {1: seen, 2: of_two, 3: of_three}
        await three.crash()
        await until(lambda: not one.metadata.image.is_alive(BrokerId(3)))
        assert await told(one) == {1: seen, 2: of_two}

        # It has lost its lease, and answers nevertheless.
        await one.controlling.stop()
        await one.membership.close()
        await until(lambda: not one.metadata.image.is_alive(BrokerId(1)) and one.state("a").leader == 2)
        assert await told(one) == {1: seen, 2: of_two}

        # All have: whoever comes back first is among those who are told.
        await two.crash()
        await until(lambda: not one.metadata.image.alive_brokers())
        assert await told(one) == {1: seen, 2: of_two, 3: of_three}

    run(tmp_path, scenario)
