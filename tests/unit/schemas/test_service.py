"""The leader of the registry answers nothing that rests on records which may still be lost."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from headrace.coordinator.shard import Shard, ShardState
from headrace.model.errors import NotCoordinator
from headrace.replication.partitions import PartitionTable
from headrace.runtime.clock import SystemClock
from headrace.schemas.machine import SchemaMachine
from headrace.schemas.requests import RegistryReply
from headrace.schemas.service import RegistryForward, RegistryService
from tests.waiting import until_async

BODY = b'{"schema": "\\"string\\""}'
REGISTER = ("POST", ("subjects", "s", "versions"))
LOOK_UP = ("POST", ("subjects", "s"))
DELETE = ("DELETE", ("subjects", "s"))


class _HeldPartition:
    """Commits what was appended when it is told to."""

    leader_epoch = 1

    def __init__(self) -> None:
        self.high_watermark = 0
        self.log = SimpleNamespace(end_offset=0)
        self._waiting: list[Callable[[None], None]] = []

    def append(self, _: bytes, header: Any) -> Any:
        self.log.end_offset += header.record_count
        return SimpleNamespace(last_offset=self.log.end_offset - 1)

    def when_committed(self, end: int, settled: Callable[[None], None]) -> bool:
        if end > self.high_watermark:
            self._waiting.append(settled)
        return end <= self.high_watermark

    def commit(self) -> None:
        self.high_watermark = self.log.end_offset
        waiting, self._waiting = self._waiting, []
        for settled in waiting:
            settled(None)


class _Leader:
    def __init__(self, workers: ThreadPoolExecutor) -> None:
        self.partition = _HeldPartition()
        self.shard = Shard(cast(Any, self.partition), SchemaMachine(), SystemClock(), reload=lambda _: None)
        self.shard.state = ShardState.ACTIVE
        metadata: Any = SimpleNamespace(image=SimpleNamespace(cluster_id="c"), broker_id=1)
        self.service = RegistryService(
            metadata=metadata,
            partitions=PartitionTable(),
            clock=SystemClock(),
            workers=workers,
            shows=lambda *_: lambda _: True,
        )
        self.service._coordinator = cast(Any, SimpleNamespace(shard=lambda _: self.shard))

    def ask(self, request: tuple[str, tuple[str, ...]], *, is_repeat: bool = False) -> "asyncio.Task[RegistryReply]":
        call = RegistryForward(*request, {}, BODY, "User:a", "", is_repeat)
        return asyncio.get_running_loop().create_task(self.service._carry_out(call))


def _with_leader(test: Callable[[_Leader], Awaitable[None]]) -> None:
    async def run(workers: ThreadPoolExecutor) -> None:
        async with asyncio.timeout(60):
            await test(_Leader(workers))

    with ThreadPoolExecutor(1) as workers:
        asyncio.run(run(workers))


def test_what_another_request_has_not_committed_yet_is_not_answered() -> None:
    """An id that is answered and then lost with the leader would be given to another schema."""

    async def test(leader: _Leader) -> None:
        first = leader.ask(REGISTER)
        await until_async(lambda: leader.partition.log.end_offset == 1)
        others = [leader.ask(each) for each in (REGISTER, LOOK_UP)]
        done, _ = await asyncio.wait(others, timeout=0.5)
        assert not done
        leader.partition.commit()
        ids = [msgspec.json.decode((await each).body)["id"] for each in (first, *others)]
        assert ids == [1, 1, 1]

    _with_leader(test)


def test_a_repeated_deletion_waits_for_the_first_one() -> None:
    async def test(leader: _Leader) -> None:
        made = leader.ask(REGISTER)
        await until_async(lambda: leader.partition.log.end_offset == 1)
        leader.partition.commit()
        await made
        first = leader.ask(DELETE)
        await until_async(lambda: leader.partition.log.end_offset == 2)
        again = leader.ask(DELETE, is_repeat=True)
        done, _ = await asyncio.wait([again], timeout=0.2)
        assert not done
        leader.partition.commit()
        assert (await first).body == (await again).body == b"[1]"

    _with_leader(test)


def test_a_request_does_not_change_what_was_loaded_since_it_began() -> None:
    """The state it began with may be ahead of the log, or behind it: it would give out an id twice."""

    async def test(leader: _Leader) -> None:
        asked = leader.ask(REGISTER)
        await asyncio.sleep(0)
        leader.shard.machine = SchemaMachine()
        with pytest.raises(NotCoordinator, match="loaded again"):
            await asked
        assert leader.partition.log.end_offset == 0

    _with_leader(test)
