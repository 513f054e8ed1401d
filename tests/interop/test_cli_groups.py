"""`headrace group` against a real broker."""

import json
import time
from collections.abc import Callable

import pytest
from confluent_kafka import ShareConsumer

from headrace import Client
from headrace.cli.errors import CommandFailed
from headrace.cli.group.run import delete_groups, describe_group, list_all, reset
from headrace.groups.offset_reset import ResetTarget

from . import raw_client
from .command_line import headrace
from .quick import broker  # noqa: F401
from .raw_client import Connection, Error
from .streams_members import StreamsMember, plain
from .subject import Subject

Run = Callable[..., str]


@pytest.fixture
def run(broker: Subject) -> Run:
    def command(*arguments: str, fails: bool = False) -> str:
        result = headrace(*arguments, HEADRACE_BOOTSTRAP=broker.bootstrap)
        assert (result.returncode != 0) is fails, result
        return result.stderr if fails else result.stdout

    return command


def committed(run: Run, group: str) -> dict[int, tuple[int, int]]:
    description = json.loads(run("group", "describe", group, "--json"))
    return {row["partition"]: (row["committed"], row["lag"]) for row in description["partitions"]}


def test_a_groups_life(broker: Subject, run: Run, new_topic: Callable[..., str]) -> None:
    topic, group = new_topic(partitions=2), "cli-life"
    with Client(broker.bootstrap) as client:
        for number in range(10):
            client.publish(topic, str(number), partition=number % 2, timestamp=1_700_000_000_000 + number * 1000)
        with client.consume(topic, group) as stream:
            for _ in range(10):
                next(stream).ack()
            stream.commit()
            client.publish(topic, "one more", partition=0)

            description = json.loads(run("group", "describe", group, "--json"))
            assert description["lag"] == 1
            assert [each["client_id"] for each in description["members"]] == ["headrace"]
            assert "stable" in run("group", "describe", group)
            assert f"{topic}:0,1" in run("group", "describe", group, "--members")
            refusal = run("group", "reset-offsets", group, "--to-earliest", "--execute", fails=True)
            assert "stop its consumers first" in refusal
            assert "cli-life" in run("group", "delete", group, "--yes", fails=True)

    listed = {each["group"]: each["state"] for each in json.loads(run("group", "list", "--json"))}
    assert listed[group] == "empty"
    assert group in run("group", "list")

    assert "Nothing was changed" in run("group", "reset-offsets", group, "--to-earliest")
    assert committed(run, group) == {0: (5, 1), 1: (5, 0)}
    run("group", "reset-offsets", group, "--to-earliest", "--execute")
    assert committed(run, group) == {0: (0, 6), 1: (0, 5)}
    run("group", "reset-offsets", group, "--to-latest", "--topic", f"{topic}:0", "--execute")
    assert committed(run, group) == {0: (6, 0), 1: (0, 5)}
    run("group", "reset-offsets", group, "--shift-by", "-2", "--execute")
    assert committed(run, group) == {0: (4, 2), 1: (0, 5)}
    run("group", "reset-offsets", group, "--to-offset", "3", "--topic", topic, "--execute")
    assert committed(run, group) == {0: (3, 3), 1: (3, 2)}
    moves = run("group", "reset-offsets", group, "--to-datetime", "1700000005000", "--execute", "--json")
    assert {each["partition"]: each["after"] for each in json.loads(moves)} == {0: 3, 1: 2}

    run("group", "delete", group, "--yes")
    assert f"there is no group {group}" in run("group", "describe", group, fails=True)


def test_a_share_groups_life(broker: Subject, topic: str) -> None:
    """Without a process for each command: that they end in these calls is shown with other groups."""
    group, bootstrap = "cli-share", broker.bootstrap
    end = time.monotonic() + 60
    with Client(bootstrap) as client:
        for number in range(4):
            client.publish(topic, str(number))

    def state() -> str | None:
        return next((each["state"] for each in list_all(bootstrap) if each["group"] == group), None)

    conf = {"bootstrap.servers": bootstrap, "group.id": group, "client.id": "sharing"}
    with ShareConsumer(conf) as consumer:
        consumer.subscribe([topic])
        while state() != "stable":
            assert time.monotonic() < end
            consumer.poll(0.2)
        description = describe_group(bootstrap, group)
        assert (description["type"], description["state"]) == ("share", "stable")
        assert [each["client_id"] for each in description["members"]] == ["sharing"]
        assert [each["partitions"] for each in description["members"]] == [[[topic, 0]]]
        with pytest.raises(CommandFailed, match="stop its consumers first"):
            reset(bootstrap, group, [], ResetTarget(to_earliest=True), execute=True)
    while state() != "empty":
        assert time.monotonic() < end
    # A share group begins with what comes after it, unless it is told otherwise.
    (move,) = reset(bootstrap, group, [], ResetTarget(to_offset=1), execute=True)
    assert (move.before, move.after) == (4, 1)
    (row,) = describe_group(bootstrap, group)["partitions"]
    assert (row["committed"], row["end_offset"], row["lag"]) == (1, 4, 3)
    delete_groups(bootstrap, [group])
    assert state() is None


def test_a_streams_groups_life(broker: Subject, connection: Connection, topic: str) -> None:
    """Without a process for each command, as above."""
    group, bootstrap = "cli-streams", broker.bootstrap
    raw_client.until_coordinated(connection, name=group)
    end = time.monotonic() + 60
    with Client(bootstrap) as client:
        for number in range(4):
            client.publish(topic, str(number))

    def state() -> str | None:
        return next((each["state"] for each in list_all(bootstrap) if each["group"] == group), None)

    member = StreamsMember(connection, group)
    assert member.join(plain("cli-not-there")).error_code is Error.none
    assert state() == "not ready"
    member.beat(member_epoch=-1)
    assert member.join(plain(topic)).error_code is Error.none
    while not member.active:
        assert time.monotonic() < end
        member.beat()
    assert state() == "stable"
    description = describe_group(bootstrap, group)
    assert (description["type"], description["state"], description["lag"]) == ("streams", "stable", 4)
    assert [each["partitions"] for each in description["members"]] == [[[topic, 0]]]
    (row,) = description["partitions"]
    assert (row["topic"], row["member"], row["lag"]) == (topic, member.member_id, 4)
    with pytest.raises(CommandFailed, match="stop its consumers first"):
        reset(bootstrap, group, [topic], ResetTarget(to_earliest=True), execute=True)
    member.beat(member_epoch=-1)
    (move,) = reset(bootstrap, group, [topic], ResetTarget(to_offset=3), execute=True)
    assert (move.before, move.after) == (None, 3)
    (row,) = describe_group(bootstrap, group)["partitions"]
    assert (row["committed"], row["lag"], row["member"]) == (3, 1, None)
    delete_groups(bootstrap, [group])
    assert state() is None


def test_offsets_can_be_set_before_a_group_exists(run: Run, topic: str) -> None:
    assert "--topic" in run("group", "reset-offsets", "cli-new", "--to-latest", fails=True)
    run("group", "reset-offsets", "cli-new", "--topic", topic, "--to-latest", "--execute")
    assert committed(run, "cli-new") == {0: (0, 0)}


def test_what_makes_no_sense_is_said(run: Run, topic: str) -> None:
    assert "one of --to-earliest" in run("group", "reset-offsets", "g", fails=True)
    assert "one of" in run("group", "reset-offsets", "g", "--to-earliest", "--to-latest", fails=True)
    assert "has no partition 7" in run(
        "group", "reset-offsets", "g", "--topic", f"{topic}:7", "--to-latest", fails=True
    )
    assert "--yes" in run("group", "delete", "g", fails=True)
    assert "there is no group nobody" in run("group", "describe", "nobody", fails=True)


def test_the_settings_of_a_group_are_changed_and_shown(run: Run, topic: str) -> None:
    run("group", "reset-offsets", "cli-set", "--topic", topic, "--to-latest", "--execute")
    printed = run("group", "alter", "cli-set", "--set", "consumer.session.timeout.ms=46000")
    assert printed == "Changed consumer.session.timeout.ms of the group cli-set\n"
    assert "consumer.session.timeout.ms  46000" in run("group", "describe", "cli-set")
    (only,) = json.loads(run("group", "describe", "cli-set", "--json"))["settings"]
    assert (only["name"], only["value"]) == ("consumer.session.timeout.ms", "46000")
    refusal = run("group", "alter", "cli-set", "--set", "consumer.session.timeout=1", fails=True)
    assert "did you mean consumer.session.timeout.ms?" in refusal
    run("group", "alter", "cli-set", "--unset", "consumer.session.timeout.ms")
    assert json.loads(run("group", "describe", "cli-set", "--json"))["settings"] == []
    assert "nothing to change" in run("group", "alter", "cli-set", fails=True)
