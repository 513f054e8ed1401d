"""A broker with a group coordinator: the log is real, the time is not."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from headrace.config.topic import TopicSettings
from headrace.model.ids import LeaderEpoch, PartitionIndex, TopicName
from headrace.replication.partition import Partition
from headrace.runtime.disk import OsDisk
from headrace.storage.log import Log
from tests.entities import build

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
            table.remove(table.get(OFFSETS, PartitionIndex(0)))
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
                self.harness.ask(
                    *self.harness.received(key, version, lambda _: build(load_request_schema(key, version), fields))
                )
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


@contextmanager
def started(tmp_path: Path, **settings: str) -> Iterator[Groups]:
    with broker(tmp_path, **settings) as harness:
        groups = Groups(harness, tmp_path / "log")
        yield groups
        harness.run(harness.services.groups.stop())


def versions(key: int) -> Any:
    low, high = RANGES[key]
    return pytest.mark.parametrize("version", range(low, high + 1))
