"""A partition under a share group against a dictionary: whatever members do, whoever fails and whenever the broker
starts again, a record has one owner at a time, what is done never comes back, everything else is delivered, and each
delivery of a record counts more than the one before it."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.profile import examples

from headrace.config.broker import BrokerSettings
from headrace.config.group import GroupSettings, group_settings
from headrace.coordinator.machine import InternalRecord
from headrace.model.errors import InvalidRecordState, ProtocolError, QueueUnavailable, StaleQueueLeader
from headrace.model.ids import LeaderEpoch, PartitionIndex, TopicId, TopicName
from headrace.queues.share.acks import AckBatch, AckType
from headrace.queues.share.dead_letters import DeadLetter
from headrace.queues.share.partition import AcquireLimit, SharePartition
from headrace.replication.partition import Partition
from headrace.testing.logs import LogBench

LIMIT = 3
LOCK_MS = 30_000
LOCKS_MAX = 100
MEMBERS = ("a", "b", "c")
PRODUCER = 1
BROKER = replace(
    BrokerSettings(), group_share_delivery_count_limit=LIMIT, group_share_partition_max_record_locks=LOCKS_MAX
)
OVERRIDES = {"share.isolation.level": "read_committed", "share.auto.offset.reset": "earliest"}
GROUP = group_settings(OVERRIDES, BROKER)
WITH_LETTERS = group_settings(OVERRIDES | {"errors.deadletterqueue.topic.name": "dlq.letters"}, BROKER)
DONE = (AckType.ACCEPT, AckType.REJECT, AckType.GAP)


class MemoryStore:
    """What is kept, with a writer at a time; a write may fail, made or not."""

    def __init__(self) -> None:
        self.entries: dict[bytes, bytes] = {}
        self.term = 0
        self.fails: str | None = None

    async def open(self, queue: str, epoch: int) -> int:
        self.term += 1
        return self.term

    async def read(self, queue: str, term: int) -> list[InternalRecord]:
        return [InternalRecord(key, value) for key, value in self.entries.items()]

    async def write(self, queue: str, term: int, entries: Sequence[InternalRecord]) -> None:
        if term != self.term:
            raise StaleQueueLeader("somebody else writes")
        fails, self.fails = self.fails, None
        if fails != "not made":
            for key, value in entries:
                if value is None:
                    self.entries.pop(key, None)
                else:
                    self.entries[key] = value
        if fails is not None:
            raise QueueUnavailable("the store is not there")

    async def forget(self, queue: str) -> None:
        self.entries.clear()


class Letters:
    """The dead-letter topic, to which at most two letters are written at a time."""

    def __init__(self) -> None:
        self.written: dict[int, DeadLetter] = {}

    async def write(self, source: Partition, group_id: str, letters: Sequence[DeadLetter]) -> int:
        await asyncio.sleep(0)
        self.written |= {letter.offset: letter for letter in letters[:2]}
        return len(letters[:2])


@dataclass
class Model:
    """Every offset that has data, and what may be said of it."""

    waiting: set[int] = field(default_factory=set)
    owners: dict[int, tuple[str, int]] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    """The delivery count that was told last."""
    failed: dict[int, int] = field(default_factory=dict)
    """How many deliveries counted towards the limit."""
    rejected: set[int] = field(default_factory=set)
    unsettled: set[int] = field(default_factory=set)
    """Their locks ended since something was committed: a restart may excuse that."""
    excused: set[int] = field(default_factory=set)
    """Perhaps a restart did: they may be delivered once more than `failed` says."""
    ever_excused: set[int] = field(default_factory=set)

    def came_back(self, offset: int, *, is_excused: bool = False) -> None:
        del self.owners[offset]
        if not is_excused:
            self.failed[offset] = self.failed.get(offset, 0) + 1
        if self.failed.get(offset, 0) < LIMIT:
            self.waiting.add(offset)

    def expire(self, now_ms: int) -> None:
        for offset in [offset for offset, (_, until_ms) in self.owners.items() if until_ms <= now_ms]:
            self.came_back(offset)
            self.unsettled.add(offset)

    def restart(self) -> None:
        self.excused |= self.unsettled
        self.ever_excused |= self.unsettled
        self.unsettled.clear()
        for offset in tuple(self.owners):
            self.came_back(offset, is_excused=True)

    def give(self, offset: int, count: int, member: str, until_ms: int) -> None:
        assert offset in self.waiting | self.excused, f"{offset} was given out and is not there for {member}"
        assert offset not in self.owners
        assert count > self.counts.get(offset, 0), f"{offset} was delivered with the count {count} before"
        self.waiting.discard(offset)
        self.counts[offset] = count
        self.owners[offset] = member, until_ms

    def drop_below(self, start: int) -> None:
        self.waiting = {offset for offset in self.waiting if offset >= start}
        self.excused = {offset for offset in self.excused if offset >= start}
        self.owners = {offset: owner for offset, owner in self.owners.items() if offset >= start}


class World:
    def __init__(self, workers: ThreadPoolExecutor, group: GroupSettings = GROUP) -> None:
        self.group = group
        self.letters = Letters()
        self.bench = LogBench()
        self.clock = self.bench.clock
        self.partition = Partition(
            TopicName("orders"),
            PartitionIndex(0),
            TopicId(UUID(int=7)),
            self.bench.log,
            LeaderEpoch(0),
            appended=lambda _: None,
        )
        self.store = MemoryStore()
        self.model = Model()
        self.workers = workers
        self.share: SharePartition

    async def open(self) -> None:
        self.share = SharePartition(
            self.partition,
            "g",
            store=self.store,
            clock=self.clock,
            workers=self.workers,
            settings=lambda: self.group,
            letters=self.letters,
        )
        await self.share.open()

    @property
    def now_ms(self) -> int:
        return int(self.clock.monotonic_ms())

    def append(self, count: int, how: str) -> None:
        values = [b"x" * 20] * count
        if how == "plain":
            result = self.bench.append(*values)
        else:
            result = self.bench.append(*values, producer=PRODUCER, transactional=True)
            self.bench.end_transaction(PRODUCER, committed=how == "committed")
        if how != "aborted":
            self.model.waiting.update(range(result.base_offset, result.base_offset + count))
        self.bench.flush()

    async def take(self, member: str, most: int) -> int:
        """How many records it got."""
        self.model.expire(self.now_ms)
        for _ in range(50):
            cut = self.share.look(300)
            if cut is None:
                return 0
            data = cut.file.read(cut.position, cut.length)
            taken = self.share.take(data, AcquireLimit(member, most))
            if taken.spans:
                break
        got = [(offset, span.attempt) for span in taken.spans for offset in range(span.first, span.last + 1)]
        assert taken.records == len(got) <= most
        fails = self.store.fails
        try:
            await self.share.when_persisted()
        except QueueUnavailable:
            # Nobody was given anything; it may count as delivered nevertheless.
            assert fails is not None
            self.model.restart()
            await self.open()
            return 0
        self.model.unsettled.clear()
        for offset, count in got:
            self.model.give(offset, count, member, self.now_ms + LOCK_MS)
        return len(got)

    async def acknowledge(self, member: str, first: int, last: int, kind: AckType) -> None:
        model, now_ms = self.model, self.now_ms
        model.expire(now_ms)
        start = self.share.position().start_offset
        assert all(offset >= start for offset in (*model.waiting, *model.owners)), "it is not done with all below"
        wanted = range(max(first, start), last + 1)
        mine = all(model.owners.get(offset, ("", 0))[0] == member for offset in wanted)
        fails = self.store.fails
        try:
            await self.share.acknowledge([AckBatch(first, last, [kind])], member)
        except (InvalidRecordState, ProtocolError):
            assert not mine
            return
        except QueueUnavailable:
            assert fails is not None
            if fails == "made":
                self._acknowledged(wanted, kind)
            model.restart()
            await self.open()
            return
        assert mine
        self._acknowledged(wanted, kind)

    def _acknowledged(self, offsets: range, kind: AckType) -> None:
        for offset in offsets:
            if kind in DONE:
                del self.model.owners[offset]
                self.model.excused.discard(offset)
                if kind is AckType.REJECT:
                    self.model.rejected.add(offset)
            elif kind is AckType.RELEASE:
                self.model.came_back(offset)
            else:
                self.model.owners[offset] = self.model.owners[offset][0], self.now_ms + LOCK_MS

    async def release(self, member: str, *, is_excused: bool) -> None:
        """It is gone; excused if it did not fail."""
        model = self.model
        model.expire(self.now_ms)
        fails = self.store.fails
        try:
            await self.share.release(member, is_excused=is_excused)
        except QueueUnavailable:
            assert fails is not None
            if fails == "made":
                self._released(member, is_excused=is_excused)
            model.restart()
            await self.open()
            return
        self._released(member, is_excused=is_excused)

    def _released(self, member: str, *, is_excused: bool) -> None:
        for offset, (owner, _) in tuple(self.model.owners.items()):
            if owner == member:
                self.model.came_back(offset, is_excused=is_excused)

    async def restart(self) -> None:
        self.model.expire(self.now_ms)
        self.share.close()
        self.model.restart()
        await self.open()

    async def trim(self, offset: int) -> None:
        await self.partition.delete_before(min(offset, self.partition.high_watermark), asyncio.to_thread)
        self.model.drop_below(self.partition.log.start_offset)

    async def drain(self) -> None:
        """Everything that is not done comes, to whoever asks long enough."""
        self.store.fails = None
        rounds = 0
        came = 0
        while self.model.waiting or self.model.owners or came:
            rounds += 1
            assert rounds < 1000, f"these never come: {self.model.waiting}, {self.model.owners}"
            self.clock.advance(LOCK_MS)
            self.model.expire(self.now_ms)
            came = await self.take("z", 50)
            for offset in [offset for offset, (owner, _) in self.model.owners.items() if owner == "z"]:
                await self.acknowledge("z", offset, offset, AckType.ACCEPT)
        assert self.share.look(1000) is None or await self.take("z", 50) == 0
        assert self.share.position().lag == 0
        await self.check_letters()

    async def check_letters(self) -> None:
        """Every record that was rejected, or delivered as often as it may be, has a letter, and no other one."""
        model, letters = self.model, self.letters.written
        for _ in range(1000):
            if self.share.position().start_offset == self.partition.high_watermark:
                break
            await asyncio.sleep(0)
        assert self.share.position().start_offset == self.partition.high_watermark, "dead records wait for ever"
        archived = {offset for offset, failed in model.failed.items() if failed >= LIMIT}
        if not self.group.errors_deadletterqueue_topic_name:
            assert not letters
            return
        start = self.partition.log.start_offset
        certain = model.rejected | (archived - model.ever_excused)
        assert {offset for offset in certain if offset >= start} <= letters.keys() <= model.rejected | archived
        for letter in letters.values():
            assert letter.is_rejected == (letter.offset in model.rejected)
            assert letter.deliveries >= model.counts[letter.offset] >= 1


members = st.sampled_from(MEMBERS)
offsets = st.integers(0, 40)
operations = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 6), st.sampled_from(["plain", "plain", "committed", "aborted"])),
    st.tuples(st.just("take"), members, st.integers(1, 8)),
    st.tuples(st.just("acknowledge"), members, offsets, st.integers(0, 4), st.sampled_from(list(AckType))),
    st.tuples(st.just("acknowledge own"), members, st.integers(0, 5), st.sampled_from(list(AckType))),
    st.tuples(st.just("release"), members, st.booleans()),
    st.tuples(st.just("wait"), st.integers(0, 20_000)),
    st.tuples(st.just("restart")),
    st.tuples(st.just("fail"), st.sampled_from(["made", "not made"])),
    st.tuples(st.just("trim"), offsets),
)


async def live(workers: ThreadPoolExecutor, group: GroupSettings, steps: Sequence[tuple[object, ...]]) -> None:
    world = World(workers, group)
    await world.open()
    try:
        for step in steps:
            match step:
                case ("append", int(count), str(how)):
                    world.append(count, how)
                case ("take", str(member), int(most)):
                    await world.take(member, most)
                case ("acknowledge", str(member), int(first), int(more), AckType() as kind):
                    await world.acknowledge(member, first, first + more, kind)
                case ("acknowledge own", str(member), int(which), AckType() as kind):
                    mine = sorted(at for at, (owner, _) in world.model.owners.items() if owner == member)
                    if mine:
                        offset = mine[which % len(mine)]
                        await world.acknowledge(member, offset, offset, kind)
                case ("release", str(member), bool(is_excused)):
                    await world.release(member, is_excused=is_excused)
                case ("wait", int(ms)):
                    world.clock.advance(ms)
                case ("restart",):
                    await world.restart()
                case ("fail", str(fails)):
                    world.store.fails = fails
                case ("trim", int(offset)):
                    await world.trim(offset)
        await world.drain()
    finally:
        world.share.close()


@settings(max_examples=examples(150))
@given(st.sampled_from([GROUP, WITH_LETTERS]), st.lists(operations, max_size=40))
def test_a_record_has_one_owner_at_a_time_and_comes_until_it_is_done(
    group: GroupSettings, steps: list[tuple[object, ...]]
) -> None:
    with ThreadPoolExecutor(1) as workers:
        asyncio.run(live(workers, group, steps))


def test_what_is_not_the_members_is_refused_as_a_whole() -> None:
    async def scenario(workers: ThreadPoolExecutor) -> None:
        world = World(workers)
        await world.open()
        world.append(4, "plain")
        await world.take("a", 2)
        await world.take("b", 2)
        with pytest.raises(InvalidRecordState):
            await world.share.acknowledge([AckBatch(0, 1, [1]), AckBatch(2, 2, [1])], "a")
        await world.share.acknowledge([AckBatch(0, 1, [1, 2])], "a")
        assert world.share.position().start_offset == 1
        world.share.close()

    with ThreadPoolExecutor(1) as workers:
        asyncio.run(scenario(workers))
