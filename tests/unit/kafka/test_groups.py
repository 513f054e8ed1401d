"""The group APIs in every version, through the wire format: the log is real, the time is not."""

import asyncio
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from headrace.config.topic import TopicSettings
from headrace.coordinator.shard import State
from headrace.groups.records import OffsetKey, OffsetValue, entry
from headrace.model.ids import LeaderEpoch, PartitionIndex, TopicName
from headrace.protocol.codec import make
from headrace.replication.partition import Partition
from headrace.runtime.disk import OsDisk
from headrace.storage.log import Log

from .harness import Harness, broker

COMMIT, FETCH, JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE, LIST, DELETE, OFFSET_DELETE = (
    8, 9, 11, 12, 13, 14, 15, 16, 42, 47,
)  # fmt: skip
RANGES = {COMMIT: (2, 10), FETCH: (1, 10), JOIN: (0, 9), HEARTBEAT: (0, 4), LEAVE: (0, 5), SYNC: (0, 5),
          DESCRIBE: (0, 6), LIST: (0, 5), DELETE: (0, 2), OFFSET_DELETE: (0, 0)}  # fmt: skip
OFFSETS = TopicName("__consumer_offsets")
SUBSCRIPTION = b"\x00\x01\x00\x00\x00\x01\x00\x05topic" + b"\xff\xff\xff\xff"


class Groups:
    """A broker with a group coordinator on one partition, and a topic with two."""

    def __init__(self, harness: Harness, folder: Path) -> None:
        self.harness = harness
        self.services = harness.services
        self.clock: Any = harness.services.clock
        self._folder = folder
        self.topic_id = harness.create("topic", 2)
        harness.create(OFFSETS, 1)
        self._disk = OsDisk()
        self._disk.make_dir(folder)
        self._log: Log | None = None
        self.load()

    @property
    def shard(self) -> Any:
        (shard,) = self.services.groups.coordinator.shards()
        return shard

    def load(self) -> None:
        """(Re)start: a coordinator on what is in the log."""
        table = self.services.partitions
        if self._log is not None:
            self.harness.run(self.services.groups.stop())
            table.remove_topic(OFFSETS)
            self._log.close()
        topic = self.harness.metadata.image.topics[OFFSETS]
        self._log = Log.open(
            self._folder, TopicSettings(flush_policy="os"), disk=self._disk, clock=self.clock, clean=False,
            recovery_point=0, producer_expiry_ms=1000,
        )  # fmt: skip
        partition = Partition(
            OFFSETS, PartitionIndex(0), topic.topic_id, self._log, LeaderEpoch(0), appended=lambda _: None
        )

        async def start() -> None:
            if not table.on_added:
                self.services.groups.start()
            table.add(partition)
            await asyncio.gather(*self.services.groups.coordinator.loading)
            assert self.shard.is_active

        self.harness.run(start())

    def send(self, key: int, version: int, **fields: Any) -> "asyncio.Task[Any]":
        """Send a request; the answer may take its time."""

        async def begin() -> "asyncio.Task[Any]":
            task = asyncio.get_running_loop().create_task(
                self.harness.ask(*self.harness.received(key, version, lambda schema: build(schema, key, fields)))
            )
            await asyncio.sleep(0.001)
            return task

        return self.harness.run(begin())

    def call(self, key: int, version: int, **fields: Any) -> Any:
        return self.answer(self.send(key, version, **fields))

    def answer(self, task: "asyncio.Task[Any]") -> Any:
        async def wait() -> Any:
            return await asyncio.wait_for(task, 60)

        return self.harness.run(wait())

    def wait(self, ms: int) -> None:
        """Let time pass, and what is due happen."""

        async def fire() -> None:
            timers = self.services.groups.coordinator.timers
            end = self.clock.monotonic_ms() + ms
            while (due := timers.next_deadline_ms()) is not None and due <= end:
                self.clock.advance(max(0, int(due - self.clock.monotonic_ms())))
                timers.fire_due(self.clock.monotonic_ms())
            self.clock.advance(int(end - self.clock.monotonic_ms()))
            await asyncio.sleep(0.001)

        self.harness.run(fire())

    # -- what members do

    def join(self, version: int, member_id: str = "", **fields: Any) -> "asyncio.Task[Any]":
        wants = {
            "group_id": "g", "session_timeout": timedelta(seconds=10), "rebalance_timeout": timedelta(seconds=20),
            "member_id": member_id, "group_instance_id": None, "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": SUBSCRIPTION}], "reason": "because",
        }  # fmt: skip
        return self.send(JOIN, version, **{**wants, **fields})

    def member(self, version: int = 9, **fields: Any) -> Any:
        """Join an empty group alone, to the end of the join phase."""
        joining = self.join(version, **fields)
        if joining.done() and self.answer(joining).error_code is ErrorCode.member_id_required:
            joining = self.join(version, self.answer(joining).member_id, **fields)
        self.wait(3_000)
        joined = self.answer(joining)
        assert joined.error_code is ErrorCode.none
        return joined

    def sync(self, version: int, joined: Any, **fields: Any) -> "asyncio.Task[Any]":
        assignments = [{"member_id": m.member_id, "assignment": m.member_id.encode()} for m in joined.members]
        said = {
            "group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id,
            "group_instance_id": None, "protocol_type": "consumer", "protocol_name": "range",
            "assignments": assignments,
        }  # fmt: skip
        return self.send(SYNC, version, **{**said, **fields})

    def stable(self, **fields: Any) -> Any:
        joined = self.member(**fields)
        instance = {name: value for name, value in fields.items() if name == "group_instance_id"}
        assert self.answer(self.sync(5, joined, **instance)).error_code is ErrorCode.none
        return joined

    def heartbeat(self, joined: Any, version: int = 4, **fields: Any) -> ErrorCode:
        said = {"group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id,
                "group_instance_id": None}  # fmt: skip
        code: ErrorCode = self.call(HEARTBEAT, version, **{**said, **fields}).error_code
        return code

    def commit(
        self, version: int, offset: int = 5, *, member: Any = None, partition: int = 0, **fields: Any
    ) -> ErrorCode:
        one = {"partition_index": partition, "committed_offset": offset, "committed_leader_epoch": 3,
               "committed_metadata": "m", **{k: v for k, v in fields.items() if k.startswith("committed")}}  # fmt: skip
        topic = {"name": "topic", "topic_id": self.topic_id, "partitions": [one]}
        said = {
            "group_id": "g",
            "generation_id_or_member_epoch": -1 if member is None else member.generation_id,
            "member_id": "" if member is None else member.member_id,
            "group_instance_id": None,
            "retention_time": timedelta(milliseconds=-1),
            "topics": [topic],
            **{k: v for k, v in fields.items() if not k.startswith("committed")},
        }
        answer = self.call(COMMIT, version, **said)
        code: ErrorCode = answer.topics[0].partitions[0].error_code
        return code

    def fetch(self, version: int, group: str = "g", topics: Any = "both", **fields: Any) -> Any:
        if topics == "both":
            topics = [{"name": "topic", "topic_id": self.topic_id, "partition_indexes": [0, 1]}]
        one = {"group_id": group, "member_id": None, "member_epoch": -1, "topics": topics}
        answer = self.call(FETCH, version, **one, groups=[one], **{"require_stable": False, **fields})
        return answer.groups[0] if version >= 8 else answer

    def offset(self, version: int = 10, group: str = "g") -> int:
        value: int = self.fetch(version, group).topics[0].partitions[0].committed_offset
        return value


def build(schema: Any, key: int, fields: dict[str, Any]) -> Any:
    """The request of this version, from nested dicts and lists."""
    request = next(
        value for name, value in vars(schema).items() if name.endswith("Request") and isinstance(value, type)
        and getattr(value, "__api_key__", None) == key
    )  # fmt: skip
    return _entity(request, fields)


def _entity(kind: Any, fields: dict[str, Any]) -> Any:
    values = dict(fields)
    for name, hint in typing.get_type_hints(kind).items():
        value = values.get(name)
        if isinstance(value, list):
            inner = next(
                (item for arg in (hint, *typing.get_args(hint)) for item in typing.get_args(arg)
                 if hasattr(item, "__dataclass_fields__")), None
            )  # fmt: skip
            values[name] = tuple(_entity(inner, item) if isinstance(item, dict) else item for item in value)
    return make(kind, **values)


@contextmanager
def started(tmp_path: Path, **settings: str) -> Iterator[Groups]:
    with broker(tmp_path, **settings) as harness:
        groups = Groups(harness, tmp_path / "log")
        yield groups
        harness.run(harness.services.groups.stop())


@pytest.fixture
def groups(tmp_path: Path) -> Iterator[Groups]:
    with started(tmp_path) as one:
        yield one


def versions(key: int) -> Any:
    low, high = RANGES[key]
    return pytest.mark.parametrize("version", range(low, high + 1))


# Membership


@versions(JOIN)
def test_join(groups: Groups, version: int) -> None:
    first = groups.join(version)
    if version >= 4:
        told = groups.answer(first)
        assert told.error_code is ErrorCode.member_id_required
        assert told.member_id.startswith("test-")
        first = groups.join(version, told.member_id)
    groups.wait(2_999)
    assert not first.done(), "an empty group waits for more members"
    groups.wait(1)
    joined = groups.answer(first)
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (ErrorCode.none, 1, "range")
    assert joined.leader == joined.member_id
    assert [(m.member_id, m.metadata) for m in joined.members] == [(joined.member_id, SUBSCRIPTION)]
    if version >= 7:
        assert joined.protocol_type == "consumer"


@versions(SYNC)
def test_followers_wait_for_the_leader(groups: Groups, version: int) -> None:
    tasks = [groups.join(3), groups.join(3)]
    groups.wait(6_000)
    leader, follower = sorted(map(groups.answer, tasks), key=lambda joined: -len(joined.members))
    assert [len(leader.members), len(follower.members)] == [2, 0]
    waiting = groups.sync(version, follower)
    assert not waiting.done()
    mine = groups.answer(groups.sync(version, leader))
    theirs = groups.answer(waiting)
    assert [mine.assignment, theirs.assignment] == [leader.member_id.encode(), follower.member_id.encode()]
    if version >= 5:
        assert (mine.protocol_type, mine.protocol_name) == ("consumer", "range")
        wrong = groups.answer(groups.sync(5, follower, protocol_name="sticky"))
        assert wrong.error_code is ErrorCode.inconsistent_group_protocol
    again = groups.answer(groups.sync(version, follower))
    assert again.assignment == follower.member_id.encode()
    stale = groups.answer(groups.sync(version, follower, generation_id=7))
    assert (stale.error_code, stale.assignment) == (ErrorCode.illegal_generation, b"")


@versions(HEARTBEAT)
def test_heartbeats_keep_a_member_alive(groups: Groups, version: int) -> None:
    joined = groups.stable()
    for _ in range(5):
        groups.wait(9_000)
        assert groups.heartbeat(joined, version) is ErrorCode.none
    assert groups.heartbeat(joined, version, generation_id=9) is ErrorCode.illegal_generation
    assert groups.heartbeat(joined, version, member_id="who") is ErrorCode.unknown_member_id
    assert groups.heartbeat(joined, version, group_id="none") is ErrorCode.unknown_member_id
    assert groups.heartbeat(joined, version, group_id="") is ErrorCode.invalid_group_id
    groups.wait(10_000)
    assert groups.heartbeat(joined, version) is ErrorCode.unknown_member_id


@versions(LEAVE)
def test_leave(groups: Groups, version: int) -> None:
    joined = groups.stable()
    who = {"member_id": joined.member_id, "group_instance_id": None, "reason": "done"}

    def leave(*members: Any) -> list[ErrorCode]:
        answer = groups.call(LEAVE, version, group_id="g", members=list(members), **members[0])
        if version < 3:
            return [answer.error_code]
        assert answer.error_code is ErrorCode.none
        return [member.error_code for member in answer.members]

    unknown = {"member_id": "who", "group_instance_id": None, "reason": None}
    assert leave(unknown) == [ErrorCode.unknown_member_id]
    assert leave(who, unknown) == [ErrorCode.none, ErrorCode.unknown_member_id][: 2 if version >= 3 else 1]
    assert leave(who) == [ErrorCode.unknown_member_id]
    assert groups.call(DESCRIBE, 6, groups=["g"], include_authorized_operations=False).groups[0].group_state == "Empty"
    answer = groups.call(LEAVE, version, group_id="none", members=[who], **who)
    code = answer.members[0].error_code if version >= 3 else answer.error_code
    assert code is ErrorCode.unknown_member_id


def test_members_vote_for_a_protocol(groups: Groups) -> None:
    votes = (["a", "b", "c"], ["c", "b"], ["b", "c"], ["b", "a", "c"])
    tasks = [groups.join(3, protocols=[{"name": name, "metadata": name.encode()} for name in names]) for names in votes]
    groups.wait(6_000)
    joined = [groups.answer(task) for task in tasks]
    assert {one.protocol_name for one in joined} == {"b"}
    (leader,) = (one for one in joined if one.members)
    assert {member.metadata for member in leader.members} == {b"b"}
    other = groups.answer(groups.join(3, protocols=[{"name": "z", "metadata": b""}]))
    assert other.error_code is ErrorCode.inconsistent_group_protocol
    other = groups.answer(groups.join(3, protocol_type="connect"))
    assert other.error_code is ErrorCode.inconsistent_group_protocol


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"session_timeout": timedelta(seconds=5.9)}, ErrorCode.invalid_session_timeout),
        ({"session_timeout": timedelta(minutes=31)}, ErrorCode.invalid_session_timeout),
        ({"group_id": ""}, ErrorCode.invalid_group_id),
        ({"protocols": []}, ErrorCode.inconsistent_group_protocol),
        ({"protocol_type": ""}, ErrorCode.inconsistent_group_protocol),
        ({"member_id": "who"}, ErrorCode.unknown_member_id),
    ],
)
@versions(JOIN)
def test_joins_that_are_refused(groups: Groups, version: int, fields: dict[str, Any], error: ErrorCode) -> None:
    answer = groups.answer(groups.join(version, **fields))
    assert (answer.error_code, answer.generation_id) == (error, -1)
    assert answer.member_id == fields.get("member_id", "")


def test_a_full_group_takes_nobody_else(tmp_path: Path) -> None:
    with started(tmp_path, group_max_size="2", group_initial_rebalance_delay_ms="0") as groups:
        groups.answer(groups.join(3))
        second = groups.join(3)
        third = groups.join(3)
        groups.wait(10_001)
        codes = {groups.answer(task).error_code for task in (second, third)}
        assert codes == {ErrorCode.none}, "the one that did not come back made room"
        full = groups.answer(groups.join(3))
        assert (full.error_code, full.member_id) == (ErrorCode.group_max_size_reached, "")


def test_a_member_that_does_not_come_back_is_left_out(groups: Groups) -> None:
    first = groups.stable()
    second = groups.join(3)
    assert groups.heartbeat(first) is ErrorCode.rebalance_in_progress
    groups.wait(9_000)
    groups.heartbeat(first)
    assert not second.done()
    groups.wait(11_000)
    joined = groups.answer(second)
    assert (joined.generation_id, joined.leader) == (2, joined.member_id)
    assert groups.heartbeat(first) is ErrorCode.unknown_member_id


def test_one_who_does_not_sync_is_left_out(groups: Groups) -> None:
    joined = groups.member()
    for _ in range(3):
        groups.wait(6_000)
        assert groups.heartbeat(joined) is ErrorCode.none
    groups.wait(6_000)
    assert groups.heartbeat(joined) is ErrorCode.unknown_member_id


def test_a_client_that_is_gone_or_a_broker_that_stops_ends_the_wait(groups: Groups) -> None:
    wants = groups.join(3)
    assert not wants.done()
    assert groups.harness.hurried() == 1
    assert groups.answer(wants).error_code is ErrorCode.coordinator_not_available


# Static members


def test_a_static_member_that_restarts_keeps_its_place(groups: Groups) -> None:
    old = groups.stable(group_instance_id="i1")
    joining = groups.join(9, group_instance_id="i1")
    new = groups.answer(joining)
    assert (new.error_code, new.generation_id, new.skip_assignment) == (ErrorCode.none, old.generation_id, True)
    assert new.member_id != old.member_id
    assert new.leader == new.member_id
    assert [member.group_instance_id for member in new.members] == ["i1"]
    synced = groups.answer(groups.sync(5, new, group_instance_id="i1", assignments=[]))
    assert synced.assignment == old.member_id.encode(), "the assignment stands"
    fenced = ErrorCode.fenced_instance_id
    assert groups.heartbeat(old, group_instance_id="i1") is fenced
    assert groups.commit(9, member=old, group_instance_id="i1") is fenced
    assert groups.answer(groups.join(9, old.member_id, group_instance_id="i1")).error_code is fenced
    assert groups.answer(groups.sync(5, old, group_instance_id="i1")).error_code is fenced
    assert groups.commit(9, member=new, group_instance_id="i1") is ErrorCode.none
    groups.load()
    assert groups.heartbeat(new, group_instance_id="i1") is ErrorCode.none
    assert groups.heartbeat(old, group_instance_id="i1") is fenced


def test_before_v9_a_leader_that_restarts_is_told_that_another_one_leads(groups: Groups) -> None:
    old = groups.stable(group_instance_id="i1")
    new = groups.answer(groups.join(5, group_instance_id="i1"))
    assert (new.leader, new.members, new.generation_id) == (old.member_id, (), old.generation_id)


def test_a_static_member_replaced_during_a_rebalance_stays_replaced_over_a_restart(groups: Groups) -> None:
    old = groups.stable(group_instance_id="i1")
    other = groups.join(3)
    assert not other.done()
    new = groups.join(9, group_instance_id="i1")
    assert groups.answer(new).error_code is ErrorCode.none
    groups.load()
    assert groups.heartbeat(old, group_instance_id="i1") is ErrorCode.fenced_instance_id
    assert groups.commit(9, member=old, group_instance_id="i1") is ErrorCode.fenced_instance_id
    again = groups.join(9, groups.answer(new).member_id, group_instance_id="i1")
    assert groups.answer(again).error_code is ErrorCode.none


def reading(*partitions: int) -> dict[str, Any]:
    """The subscription of a cooperative member that reads these partitions."""
    owned = b"\x00\x00\x00\x01" + b"\x00\x05topic" + indexes(partitions) if partitions else b"\x00\x00\x00\x00"
    return {"protocols": [{"name": "range", "metadata": SUBSCRIPTION + owned}]}


def indexes(partitions: tuple[int, ...]) -> bytes:
    return b"".join(number.to_bytes(4, "big") for number in (len(partitions), *partitions))


def assigned(member_id: str, *partitions: int) -> dict[str, Any]:
    told = b"\x00\x00\x00\x00\x00\x01" + b"\x00\x05topic" + indexes(partitions) + b"\xff\xff\xff\xff"
    return {"member_id": member_id, "assignment": told}


@pytest.mark.parametrize("is_broker_restarted", [False, True])
@pytest.mark.parametrize("had", [(0, 1), (0,)], ids=["two", "one"])
def test_a_static_member_that_dies_while_it_gives_up_a_partition_joins_again_in_its_place(
    had: tuple[int, ...], is_broker_restarted: bool, groups: Groups
) -> None:
    """It had both partitions and was left one: the other goes to the newcomer once all have joined again."""
    first = groups.stable(group_instance_id="i1")
    newcomer = groups.join(9, group_instance_id="i2")
    leader = groups.answer(groups.join(9, first.member_id, group_instance_id="i1", **reading(*had)))
    joined = groups.answer(newcomer)
    shares = [assigned(leader.member_id, 0), assigned(joined.member_id)]
    for member, name, told in ((leader, "i1", shares), (joined, "i2", [])):
        synced = groups.answer(groups.sync(5, member, group_instance_id=name, assignments=told))
        assert synced.error_code is ErrorCode.none
    if is_broker_restarted:
        groups.load()
    successor = groups.join(9, group_instance_id="i1", **reading())
    if had == (0,):
        assert groups.answer(successor).generation_id == leader.generation_id, "nothing is owed: all goes on"
        assert groups.heartbeat(joined, group_instance_id="i2") is ErrorCode.none
        return
    assert not successor.done()
    assert groups.heartbeat(joined, group_instance_id="i2") is ErrorCode.rebalance_in_progress
    again = groups.join(9, joined.member_id, group_instance_id="i2", **reading())
    assert groups.answer(successor).generation_id == leader.generation_id + 1
    assert groups.answer(again).error_code is ErrorCode.none
    assert groups.heartbeat(leader, group_instance_id="i1") is ErrorCode.fenced_instance_id


def test_an_operator_removes_a_static_member_by_its_instance_id(groups: Groups) -> None:
    joined = groups.stable(group_instance_id="i1")
    leaving = [{"member_id": "", "group_instance_id": name, "reason": None} for name in ("i1", "i2")]
    answer = groups.call(LEAVE, 5, group_id="g", members=leaving)
    assert [one.error_code for one in answer.members] == [ErrorCode.none, ErrorCode.unknown_member_id]
    assert groups.heartbeat(joined, group_instance_id="i1") is ErrorCode.unknown_member_id


# Offsets


@versions(COMMIT)
def test_commit(groups: Groups, version: int) -> None:
    joined = groups.stable()
    assert groups.commit(version, 5, member=joined) is ErrorCode.none
    assert groups.commit(version, 6) is ErrorCode.unknown_member_id, "a stranger, while there are members"
    stale = make(type(joined), **{**vars_of(joined), "generation_id": 9})
    assert groups.commit(version, 6, member=stale) is ErrorCode.illegal_generation
    assert groups.commit(version, 6, member=joined, partition=2) is ErrorCode.unknown_topic_or_partition
    assert (
        groups.commit(version, 6, member=joined, committed_metadata="x" * 4097) is ErrorCode.offset_metadata_too_large
    )
    assert groups.offset() == 5
    other = groups.join(3)
    assert not other.done()
    assert groups.commit(version, 7, member=joined) is ErrorCode.none, "before it joins again"
    assert groups.offset() == 7


def vars_of(entity: Any) -> dict[str, Any]:
    return {name: getattr(entity, name) for name in entity.__dataclass_fields__}


@versions(COMMIT)
def test_commit_without_a_group(groups: Groups, version: int) -> None:
    assert groups.commit(version, 11, group_id="simple") is ErrorCode.none
    assert groups.offset(group="simple") == 11
    assert groups.commit(version, 1, group_id="none", generation_id_or_member_epoch=3) is ErrorCode.illegal_generation
    topic = {"name": "nope", "topic_id": UUID(int=5), "partitions": [{"partition_index": 0, "committed_offset": 1,
             "committed_leader_epoch": -1, "committed_metadata": None}]}  # fmt: skip
    expected = ErrorCode.unknown_topic_id if version >= 10 else ErrorCode.unknown_topic_or_partition
    assert groups.commit(version, topics=[topic]) is expected


@versions(FETCH)
def test_fetch(groups: Groups, version: int) -> None:
    assert groups.commit(9, 5) is ErrorCode.none
    answer = groups.fetch(version)
    found, none = answer.topics[0].partitions
    assert (found.committed_offset, found.metadata, found.error_code) == (5, "m", ErrorCode.none)
    assert (none.committed_offset, none.metadata, none.error_code) == (-1, "", ErrorCode.none)
    if version >= 5:
        assert (found.committed_leader_epoch, none.committed_leader_epoch) == (3, -1)
    if version >= 2:
        everything = groups.fetch(version, topics=None)
        assert [part.partition_index for part in everything.topics[0].partitions] == [0]
        assert groups.fetch(version, "nobody", topics=None).topics == ()
    if version >= 10:
        unknown = groups.fetch(version, topics=[{"topic_id": UUID(int=5), "partition_indexes": [0]}])
        assert unknown.topics[0].partitions[0].error_code is ErrorCode.unknown_topic_id
    if version >= 8:
        both = groups.call(
            FETCH, version, require_stable=False,
            groups=[{"group_id": name, "member_id": None, "member_epoch": -1, "topics": None} for name in ("g", "h")],
        )  # fmt: skip
        assert [(group.group_id, len(group.topics)) for group in both.groups] == [("g", 1), ("h", 0)]


@pytest.mark.parametrize("committed", [True, False])
def test_offsets_of_a_transaction_count_when_it_commits(groups: Groups, committed: bool) -> None:
    assert groups.commit(9, 5) is ErrorCode.none
    machine = groups.shard.machine
    machine.replay(entry(OffsetKey("g", "topic", 0), OffsetValue(9, -1, "", 0)), 77)
    for version in (7, 8, 9, 10):
        unstable, other = groups.fetch(version, require_stable=True).topics[0].partitions
        assert (unstable.error_code, unstable.committed_offset) == (ErrorCode.unstable_offset_commit, -1)
        assert other.error_code is ErrorCode.none
    assert groups.offset() == 5, "whoever does not ask for stable ones gets the last committed"
    machine.replay_end(77, committed=committed)
    assert groups.fetch(10, require_stable=True).topics[0].partitions[0].committed_offset == (9 if committed else 5)


def test_delete_offsets(groups: Groups) -> None:
    assert groups.commit(9, 5, partition=1) is ErrorCode.none
    joined = groups.stable()

    def delete(group: str = "g") -> Any:
        topics = [{"name": name, "partitions": [{"partition_index": 1}]} for name in ("topic", "nope")]
        return groups.call(OFFSET_DELETE, 0, group_id=group, topics=topics)

    assert delete("none").error_code is ErrorCode.group_id_not_found
    assert delete().topics[0].partitions[0].error_code is ErrorCode.group_subscribed_to_topic
    groups.call(LEAVE, 0, group_id="g", member_id=joined.member_id)
    codes = [topic.partitions[0].error_code for topic in delete().topics]
    assert codes == [ErrorCode.none, ErrorCode.unknown_topic_or_partition]
    assert groups.fetch(10, topics=None).topics == ()


def test_offsets_and_groups_expire(groups: Groups) -> None:
    week_ms = 7 * 24 * 3600 * 1000
    joined = groups.stable()
    assert groups.commit(9, 5, member=joined) is ErrorCode.none
    groups.clock.advance(2 * week_ms)
    assert groups.heartbeat(joined) is ErrorCode.none
    groups.wait(0)
    assert groups.offset() == 5, "in use"
    groups.call(LEAVE, 0, group_id="g", member_id=joined.member_id)
    groups.wait(week_ms - 600_000)
    assert groups.offset() == 5
    groups.wait(2 * 600_000)
    assert groups.offset() == -1
    assert groups.call(LIST, 0).groups == ()
    assert groups.commit(2, 5, group_id="short", retention_time=timedelta(hours=1)) is ErrorCode.none
    groups.wait(3600_000 - 600_000)
    assert groups.offset(group="short") == 5
    groups.wait(2 * 600_000)
    assert groups.offset(group="short") == -1


def test_offsets_go_with_their_topic(groups: Groups) -> None:
    assert groups.commit(9, 5) is ErrorCode.none
    groups.harness.run(groups.harness.metadata.delete_topic("topic"))
    groups.topic_id = groups.harness.create("topic", 2)
    assert groups.offset() == -1


# Groups


@versions(DESCRIBE)
def test_describe(groups: Groups, version: int) -> None:
    joined = groups.stable(group_instance_id="i1")
    asked = {"include_authorized_operations": True}
    described, dead = groups.call(DESCRIBE, version, groups=["g", "none"], **asked).groups
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    (member,) = described.members
    assert (member.member_id, member.client_id, member.client_host) == (joined.member_id, "test", "/10.1.2.3")
    assert (member.member_metadata, member.member_assignment) == (SUBSCRIPTION, joined.member_id.encode())
    assert dead.group_state == "Dead"
    assert dead.error_code is (ErrorCode.group_id_not_found if version >= 6 else ErrorCode.none)
    if version >= 3:
        assert described.authorized_operations > 0
    if version >= 4:
        assert member.group_instance_id == "i1"


@versions(LIST)
def test_list(groups: Groups, version: int) -> None:
    groups.stable()
    assert groups.commit(9, 5, group_id="simple") is ErrorCode.none

    def listed(states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> list[str]:
        answer = groups.call(LIST, version, states_filter=states, types_filter=types)
        assert answer.error_code is ErrorCode.none
        if version >= 5:
            assert {group.group_type for group in answer.groups} <= {"classic"}
        return sorted(group.group_id for group in answer.groups)

    assert listed() == ["g", "simple"]
    if version >= 4:
        assert listed(("stable",)) == ["g"]
        assert listed(("Empty", "Dead")) == ["simple"]
    if version >= 5:
        assert listed(types=("Classic",)) == ["g", "simple"]
        assert listed(types=("consumer",)) == []


@versions(DELETE)
def test_delete(groups: Groups, version: int) -> None:
    joined = groups.stable()
    assert groups.commit(9, 5, member=joined) is ErrorCode.none

    def delete(*names: str) -> list[ErrorCode]:
        return [one.error_code for one in groups.call(DELETE, version, groups_names=names).results]

    assert delete("g", "none") == [ErrorCode.non_empty_group, ErrorCode.group_id_not_found]
    groups.call(LEAVE, 0, group_id="g", member_id=joined.member_id)
    assert delete("g") == [ErrorCode.none]
    assert delete("g") == [ErrorCode.group_id_not_found]
    groups.load()
    assert groups.call(LIST, 0).groups == ()
    assert groups.offset() == -1


# Restarts


def test_a_restart_finds_members_assignments_generation_and_offsets(groups: Groups) -> None:
    joined = groups.stable()
    assert groups.commit(9, 5, member=joined) is ErrorCode.none
    groups.load()
    assert groups.heartbeat(joined) is ErrorCode.none
    assert groups.answer(groups.sync(5, joined)).assignment == joined.member_id.encode()
    assert groups.commit(9, 6, member=joined) is ErrorCode.none
    assert groups.offset() == 6
    groups.wait(10_000)
    assert groups.heartbeat(joined) is ErrorCode.unknown_member_id, "its session began anew with the restart"


def test_a_coordinator_that_loads_says_so(groups: Groups) -> None:
    joined = groups.stable()
    groups.shard.state = State.LOADING
    loading = ErrorCode.coordinator_load_in_progress
    assert groups.heartbeat(joined) is loading
    assert groups.commit(9, member=joined) is loading
    assert groups.answer(groups.join(9, joined.member_id)).error_code is loading
    assert groups.answer(groups.sync(5, joined)).error_code is loading
    assert groups.fetch(10).error_code is loading
    assert groups.fetch(1).topics[0].partitions[0].error_code is loading
    assert groups.call(LIST, 5, states_filter=(), types_filter=()).error_code is loading
    described = groups.call(DESCRIBE, 6, groups=["g"], include_authorized_operations=False).groups[0]
    assert described.error_code is loading
    assert groups.call(DELETE, 2, groups_names=("g",)).results[0].error_code is loading
    member = {"member_id": joined.member_id, "group_instance_id": None, "reason": None}
    assert groups.call(LEAVE, 5, group_id="g", members=[member]).error_code is loading
