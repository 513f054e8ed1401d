"""The work of `headrace group`: list, describe and delete groups, and reset their offsets."""

from collections.abc import Iterable
from typing import Any

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from headrace.cli.admin import REQUEST_TIMEOUT_S, Admin
from headrace.cli.cluster.view import connected
from headrace.cli.errors import CommandFailed
from headrace.cli.group.offset_reset import parse_topic
from headrace.cli.group.share import describe_share, set_started, share_group, started
from headrace.cli.group.streams import state_word, streams_group
from headrace.cli.names import nearest, no_such
from headrace.cli.output import count, setting_text, table
from headrace.groups.offset_reset import Bounds, OffsetMove, ResetTarget, new_offset
from headrace.wire import Unsupported

Where = tuple[str, int]


def list_all(bootstrap: str) -> list[dict[str, Any]]:
    """Every group of every broker. One that has just died is waited for until the cluster knows that it is away."""
    broker = Admin(bootstrap)
    broker.cluster()
    with connected(bootstrap) as cluster:
        try:
            return [
                {"group": each.name, "state": state_word(each.state), "type": each.kind} for each in cluster.groups()
            ]
        except Unsupported:
            return _consumer_groups(broker)


def _consumer_groups(broker: Admin) -> list[dict[str, Any]]:
    """For brokers that do not know of types of groups."""
    found = broker.wait(broker.call(broker.admin.list_consumer_groups, request_timeout=REQUEST_TIMEOUT_S))
    for each in found.errors or ():
        error = each.args[0] if isinstance(each, KafkaException) else each
        raise broker.failed(error, "listing the groups failed")
    groups = [
        {"group": each.group_id, "state": _word(each.state), "type": _word(getattr(each, "type", None))}
        for each in found.valid or ()
    ]
    return sorted(groups, key=lambda each: str(each["group"]))


def describe_group(bootstrap: str, group: str) -> dict[str, Any]:
    """Everything about a group, ready for JSON."""
    broker = Admin(bootstrap)
    described = _described(broker, group)
    if described is not None:
        members = [
            _member(
                member,
                member.group_instance_id,
                [(each.topic, each.partition) for each in member.assignment.topic_partitions],
            )
            for member in described.members
        ]
        head = {"state": _word(described.state), "type": _word(getattr(described, "type", None))}
        return _description(broker, group, {**head, "assignor": described.partition_assignor}, members)
    share = share_group(bootstrap, group)
    if share is not None:
        return describe_share(share, _offsets(broker, sorted(share.positions), OffsetSpec.latest()))
    streams = streams_group(bootstrap, group)
    if streams is None:
        raise CommandFailed(_no_such_group(bootstrap, group))
    members = [_member(member, member.instance_id, member.partitions) for member in streams.members]
    return _description(
        broker, group, {"state": state_word(streams.state), "type": "streams", "assignor": "sticky"}, members
    )


def _member(member: Any, instance_id: str | None, partitions: Iterable[Where]) -> dict[str, Any]:
    return {
        "member": member.member_id,
        "instance": instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "partitions": [[topic, partition] for topic, partition in partitions],
    }


def _description(broker: Admin, group: str, head: dict[str, Any], members: list[dict[str, Any]]) -> dict[str, Any]:
    """How far a group is in each partition that it has committed or reads, and who reads it."""
    committed = _committed(broker, group)
    owners: dict[Where, dict[str, Any]] = {
        (topic, partition): member for member in members for topic, partition in member["partitions"]
    }
    rows = []
    there = {name: set(topic.partitions) for name, topic in broker.cluster().topics.items()}
    known = sorted(where for where in committed.keys() | owners.keys() if where[1] in there.get(where[0], ()))
    ends = _offsets(broker, known, OffsetSpec.latest())
    firsts = _offsets(broker, known, OffsetSpec.earliest())
    for where in known:
        offset, owner = committed.get(where), owners.get(where, {})
        rows.append(
            {
                "topic": where[0],
                "partition": where[1],
                "committed": offset,
                "end_offset": ends[where],
                "lag": max(0, ends[where] - (firsts[where] if offset is None else offset)),
                "member": owner.get("member"),
                "client_id": owner.get("client_id"),
                "host": owner.get("host"),
            }
        )
    return {"group": group, **head, "lag": sum(row["lag"] for row in rows), "members": members, "partitions": rows}


def print_group(description: dict[str, Any]) -> None:
    _print_head(description)
    if not description["partitions"]:
        print("It has committed nothing and no partitions are assigned")
        return
    columns = [("TOPIC", "left"), ("PARTITION", "right"), ("COMMITTED", "right"), ("END", "right"), ("LAG", "right")]
    rows = [
        (
            each["topic"],
            each["partition"],
            "-" if each["committed"] is None else each["committed"],
            each["end_offset"],
            each["lag"],
            each["client_id"] or "-",
            each["host"] or "-",
        )
        for each in description["partitions"]
    ]
    table(None, [*columns, ("CLIENT", "left"), ("HOST", "left")], rows)
    if description.get("settings"):
        print()
        table(
            None,
            [("SETTING", "left"), ("VALUE", "left")],
            [(each["name"], setting_text(each["name"], each["value"])) for each in description["settings"]],
        )


def print_members(description: dict[str, Any]) -> None:
    _print_head(description)
    rows = [
        (each["member"], each["instance"] or "-", each["client_id"], each["host"], _partitions(each["partitions"]))
        for each in description["members"]
    ]
    if rows:
        heads = ("MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS")
        table(None, [(head, "left") for head in heads], rows)


def _print_head(description: dict[str, Any]) -> None:
    members = count(len(description["members"]), "member")
    waiting = count(description["lag"], "message")
    print(f"{description['group']}: {description['state']}, {members}, {waiting} to read\n")


def _partitions(pairs: list[list[Any]]) -> str:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in pairs:
        by_topic.setdefault(topic, []).append(partition)
    return " ".join(f"{topic}:{','.join(map(str, sorted(each)))}" for topic, each in sorted(by_topic.items())) or "-"


def reset(bootstrap: str, group: str, topics: list[str], target: ResetTarget, *, execute: bool) -> list[OffsetMove]:
    """The moves, made if `execute`."""
    broker = Admin(bootstrap)
    broker.cluster()
    share = share_group(bootstrap, group)
    committed = _committed(broker, group) if share is None else started(share)
    wanted = _wanted(broker, group, topics, committed)
    firsts = _offsets(broker, wanted, OffsetSpec.earliest())
    ends = _offsets(broker, wanted, OffsetSpec.latest())
    times: dict[Where, int] = {}
    if target.to_time_ms is not None:
        times = _offsets(broker, wanted, OffsetSpec.for_timestamp(target.to_time_ms))
    moves = []
    for where in wanted:
        found = times.get(where, -1)
        bounds = Bounds(firsts[where], ends[where], None if found < 0 else found)
        before = committed.get(where)
        moves.append(OffsetMove(*where, before, new_offset(target, bounds, before)))
    if execute and moves:
        if share is None:
            _make(bootstrap, broker, group, moves)
        else:
            set_started(bootstrap, share, moves)
    return moves


def _wanted(broker: Admin, group: str, topics: list[str], committed: dict[Where, int]) -> list[Where]:
    if not topics:
        if not committed:
            near = nearest(group, (each["group"] for each in list_all(broker.bootstrap)))
            hint = "" if near is None else f"; did you mean {near}?"
            raise CommandFailed(f"the group {group} has committed nothing: name the topics with --topic{hint}")
        return sorted(committed)
    wanted: set[Where] = set()
    for text in topics:
        topic, listed = parse_topic(text)
        there = broker.partitions(topic)
        for partition in there if listed is None else listed:
            if partition not in there:
                raise CommandFailed(f"{topic} has no partition {partition}, only 0 to {there[-1]}")
            wanted.add((topic, partition))
    return sorted(wanted)


def _make(bootstrap: str, broker: Admin, group: str, moves: list[OffsetMove]) -> None:
    state = _described(broker, group) or streams_group(bootstrap, group)
    if state is not None and state.members:
        members = count(len(state.members), "member")
        raise CommandFailed(f"the group {group} has {members}: stop its consumers first, or they would commit over it")
    offsets = [TopicPartition(each.topic, each.partition, each.after) for each in moves]
    request = [ConsumerGroupTopicPartitions(group, offsets)]
    futures = broker.call(broker.admin.alter_consumer_group_offsets, request, request_timeout=REQUEST_TIMEOUT_S)
    for each in broker.wait(futures[group]).topic_partitions:
        if each.error is not None:
            raise broker.failed(each.error, f"the offset of {each.topic}/{each.partition} was not moved")


def print_moves(group: str, moves: list[OffsetMove], *, executed: bool) -> None:
    columns = [("TOPIC", "left"), ("PARTITION", "right"), ("FROM", "right"), ("TO", "right")]
    rows = [(each.topic, each.partition, "-" if each.before is None else each.before, each.after) for each in moves]
    table(None, columns, rows)
    if executed:
        print(f"\nMoved the offsets of {group}")
    else:
        print("\nNothing was changed: add --execute to do it")


def delete_groups(bootstrap: str, groups: list[str]) -> None:
    """Delete groups. One that does not exist is said before any is deleted."""
    broker = Admin(bootstrap)
    known = {each["group"] for each in list_all(bootstrap)}
    for group in groups:
        if group not in known:
            raise CommandFailed(no_such("group", group, known, "headrace group list"))
    futures = broker.call(broker.admin.delete_consumer_groups, groups, request_timeout=REQUEST_TIMEOUT_S)
    broker.wait_each(futures, "the group {} was not deleted", lambda group: print(f"Deleted the group {group}"))


def _no_such_group(bootstrap: str, group: str) -> str:
    return no_such("group", group, (each["group"] for each in list_all(bootstrap)), "headrace group list")


def _described(broker: Admin, group: str) -> Any:
    """None if there is no such group, or it is a share group or a streams group."""
    broker.cluster()
    futures = broker.call(broker.admin.describe_consumer_groups, [group], request_timeout=REQUEST_TIMEOUT_S)
    found = broker.wait(futures[group])
    return None if found.state == ConsumerGroupState.DEAD else found


def _committed(broker: Admin, group: str) -> dict[Where, int]:
    request = [ConsumerGroupTopicPartitions(group)]
    futures = broker.call(broker.admin.list_consumer_group_offsets, request, request_timeout=REQUEST_TIMEOUT_S)
    found = broker.wait(futures[group]).topic_partitions or ()
    return {(each.topic, each.partition): int(each.offset) for each in found if each.offset >= 0}


def _offsets(broker: Admin, wanted: list[Where], spec: OffsetSpec) -> dict[Where, int]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in wanted:
        by_topic.setdefault(topic, []).append(partition)
    return {
        (topic, partition): offset
        for topic, partitions in by_topic.items()
        for partition, offset in broker.offsets(topic, partitions, spec).items()
    }


def _word(value: Any) -> str:
    return "unknown" if value is None else str(value.name).lower().replace("_", " ")
