"""Group members and their offsets, as raw connections of one asyncio process. Prints one line of JSON.

groups.py rebalance ...    a group forms, a tenth of it leaves, as many come: how long until all have their new share
groups.py fill ...         many groups, each with one member of the consumer protocol and some committed offsets
groups.py loaded ...       waits until a coordinator knows so many groups, and looks at the offsets of some
"""

import argparse
import asyncio
import json
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from harness import group_wire as wire

_GIVE_UP_S = 120.0


class Connection:
    """One request at a time, as a member's requests are."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> "Connection":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, request: bytes) -> bytes:
        self._writer.write(request)
        head = await self._reader.readexactly(4)
        return head + await self._reader.readexactly(int.from_bytes(head, "big"))

    def close(self) -> None:
        self._writer.close()


async def find_coordinator(connection: Connection, group: str) -> None:
    """The first question of all creates the internal topic: ask until there is an answer."""
    deadline = time.monotonic() + _GIVE_UP_S
    while error := wire.plain_error(await connection.ask(wire.coordinator_request(group))):
        if error not in wire.NOT_YET or time.monotonic() > deadline:
            raise RuntimeError(f"no coordinator was found: error {error}")
        await asyncio.sleep(0.02)


class Member(ABC):
    """Joins, beats every `interval_s`, and tells `changed` of each new share that it gets."""

    def __init__(self, args: argparse.Namespace, topic_id: bytes, changed: Callable[[], None]) -> None:
        self.port: int = args.port
        self.group: str = args.group
        self.topic: str = args.topic
        self.topic_id = topic_id
        self.partitions: int = args.partitions
        self.interval_s: float = args.interval
        self.changed = changed
        self.member_id = ""
        self.epoch = 0
        """Generation or member epoch."""
        self.share: list[int] | None = None
        self._task: asyncio.Task[None] | None = None
        self._connection: Connection | None = None

    async def connect(self) -> None:
        self._connection = await Connection.open(self.port)

    async def ask(self, request: bytes) -> bytes:
        assert self._connection is not None
        return await self._connection.ask(request)

    def start(self) -> None:
        self._task = asyncio.create_task(self.live())

    def check(self) -> None:
        if self._task is not None and self._task.done():
            self._task.result()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._connection is not None:
            self._connection.close()

    async def leave(self) -> None:
        """Goodbye is said on a connection of its own: the other may be in the middle of a request."""
        await self.stop()
        await self.connect()
        await self.say_goodbye()
        assert self._connection is not None
        self._connection.close()

    def phase_s(self) -> float:
        """When to beat first: those that were answered together do not go on in step."""
        return random.random() * self.interval_s

    @abstractmethod
    async def live(self) -> None: ...

    @abstractmethod
    async def say_goodbye(self) -> None: ...


class ClassicMember(Member):
    async def live(self) -> None:
        while True:
            await self._join()
            error, wait_s = 0, self.phase_s()
            while not error:
                await asyncio.sleep(wait_s)
                wait_s = self.interval_s
                request = wire.heartbeat_request(self.group, self.epoch, self.member_id)
                error = wire.plain_error(await self.ask(request))
            if error != wire.REBALANCE_IN_PROGRESS:
                raise RuntimeError(f"a heartbeat was answered with error {error}")

    async def _join(self) -> None:
        while True:
            request = wire.join_request(self.group, self.member_id, self.topic, session_ms=60_000, rebalance_ms=60_000)
            joined = wire.join_answer(await self.ask(request))
            self.member_id = joined.member_id or self.member_id
            if joined.error in wire.NOT_YET:
                await asyncio.sleep(0.05)
            elif joined.error and joined.error != wire.MEMBER_ID_REQUIRED:
                raise RuntimeError(f"a join was answered with error {joined.error}")
            elif not joined.error and await self._sync(joined):
                return

    async def _sync(self, joined: wire.Joined) -> bool:
        shares = {}
        if joined.leader == self.member_id:
            for place, member in enumerate(joined.members):
                mine = list(range(place, self.partitions, len(joined.members)))
                shares[member] = wire.assignment(self.topic, mine)
        request = wire.sync_request(self.group, joined.generation, self.member_id, shares)
        error, partitions = wire.sync_answer(await self.ask(request))
        if error == wire.REBALANCE_IN_PROGRESS:
            return False
        if error:
            raise RuntimeError(f"a sync was answered with error {error}")
        self.epoch, self.share = joined.generation, partitions
        self.changed()
        return True

    async def say_goodbye(self) -> None:
        if error := wire.plain_error(await self.ask(wire.leave_request(self.group, self.member_id))):
            raise RuntimeError(f"a leave was answered with error {error}")


class ConsumerMember(Member):
    async def live(self) -> None:
        topics: list[str] | None = [self.topic]
        wait_s = self.phase_s()
        while True:
            owned = (self.topic_id, self.share or []) if topics or self._is_news else None
            beat = await self._beat(topics, owned)
            self._is_news = False
            if beat.error in wire.NOT_YET:
                await asyncio.sleep(0.05)
                continue
            if beat.error:
                raise RuntimeError(f"a heartbeat was answered with error {beat.error}: {beat.message}")
            topics = None
            self.member_id, self.epoch = beat.member_id, beat.epoch
            if beat.partitions is not None and beat.partitions != self.share:
                # What was given up or taken over is told at once, as clients do.
                self._is_news = True
                self.share = beat.partitions
            self.changed()
            if not self._is_news:
                await asyncio.sleep(wait_s)
                wait_s = self.interval_s

    _is_news = False

    async def _beat(self, topics: list[str] | None, owned: tuple[bytes, list[int]] | None) -> wire.Beat:
        return wire.beat_answer(
            await self.ask(wire.beat_request(self.group, self.member_id, self.epoch, topics, owned))
        )

    async def say_goodbye(self) -> None:
        self.epoch = -1
        if error := (await self._beat(None, None)).error:
            raise RuntimeError(f"a leave was answered with error {error}")


PROTOCOLS: dict[str, type[Member]] = {"classic": ClassicMember, "consumer": ConsumerMember}


class Crowd:
    """The members of one group, and when they all have their share."""

    def __init__(self, args: argparse.Namespace, topic_id: bytes) -> None:
        self._args = args
        self._topic_id = topic_id
        self._news = asyncio.Event()
        self.members: list[Member] = []

    async def made(self, count: int) -> list[Member]:
        """New members, connected; what follows is to be theirs alone, not the time to connect."""
        kind = PROTOCOLS[self._args.protocol]
        new = [kind(self._args, self._topic_id, self._news.set) for _ in range(count)]
        for member in new:
            await member.connect()
        return new

    def is_settled(self) -> bool:
        """All are of one generation, and every partition has exactly one owner."""
        if len({member.epoch for member in self.members}) != 1 or any(m.share is None for m in self.members):
            return False
        owned = [partition for member in self.members for partition in member.share or ()]
        partitions: int = self._args.partitions
        return len(owned) == partitions == len(set(owned))

    async def settled(self, since: float) -> float:
        """Wait for it; returns the seconds since then."""
        while not self.is_settled():
            left = since + _GIVE_UP_S - time.perf_counter()
            if left <= 0:
                without = sum(member.share is None for member in self.members)
                raise TimeoutError(f"the group did not settle in {_GIVE_UP_S:.0f} s: {without} members have no share")
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), min(left, 1.0))
            except TimeoutError:
                for member in self.members:
                    member.check()
        return time.perf_counter() - since

    async def come(self, new: list[Member]) -> float:
        begin = time.perf_counter()
        self.members += new
        for member in new:
            member.start()
        return await self.settled(begin)

    async def go(self, leaving: list[Member]) -> float:
        begin = time.perf_counter()
        self.members = [member for member in self.members if member not in leaving]
        await asyncio.gather(*(member.leave() for member in leaving))
        return await self.settled(begin)


async def rebalance(args: argparse.Namespace) -> dict[str, float]:
    first = await Connection.open(args.port)
    await find_coordinator(first, args.group)
    crowd = Crowd(args, wire.topic_id(await first.ask(wire.topic_id_request(args.topic))))
    form_s = await crowd.come(await crowd.made(args.members))
    few = max(1, args.members // 10)
    leave_s = await crowd.go(random.Random(1).sample(crowd.members, few))
    join_s = await crowd.come(await crowd.made(few))
    for member in crowd.members:
        await member.stop()
    first.close()
    # A member hears of a rebalance with its next heartbeat; in the consumer protocol, one hears that it is to give
    # something up, and after that another hears that it may take it.
    waits = {"classic": 1, "consumer": 2}[args.protocol]
    beyond_s = max(leave_s - args.interval, join_s - waits * args.interval, 0.0)
    return {"form_s": form_s, "leave_s": leave_s, "join_s": join_s, "beyond_s": beyond_s}


def offsets_of(number: int, partitions: int) -> dict[int, int]:
    return {partition: number * 1000 + partition for partition in range(partitions)}


def group_name(number: int) -> str:
    return f"group-{number:06d}"


async def fill(args: argparse.Namespace) -> dict[str, float]:
    first = await Connection.open(args.port)
    await find_coordinator(first, args.group)
    await all_loaded(first, 0)
    first.close()
    numbers = iter(range(args.groups))
    begin = time.perf_counter()

    async def work() -> None:
        connection = await Connection.open(args.port)
        for number in numbers:
            group = group_name(number)
            request = wire.beat_request(group, "", 0, [args.topic], (bytes(16), []))
            # A shard that has nothing to load may still come up a moment after the coordinator was found.
            deadline = time.monotonic() + _GIVE_UP_S
            beat = wire.beat_answer(await connection.ask(request))
            while beat.error in wire.NOT_YET and time.monotonic() < deadline:
                await asyncio.sleep(0.05)
                beat = wire.beat_answer(await connection.ask(request))
            if beat.error:
                raise RuntimeError(f"a member was refused with error {beat.error}: {beat.message}")
            offsets = offsets_of(number, args.partitions)
            request = wire.commit_request(group, beat.epoch, beat.member_id, args.topic, offsets)
            if errors := wire.commit_errors(await connection.ask(request)) - {0}:
                raise RuntimeError(f"a commit was answered with errors {errors}")
        connection.close()

    await asyncio.gather(*(work() for _ in range(args.connections)))
    seconds = time.perf_counter() - begin
    return {"fill_s": seconds, "groups_s": args.groups / seconds}


async def all_loaded(connection: Connection, groups: int) -> int:
    """Wait until no shard of the coordinator loads any more and so many groups are there; returns how many."""
    deadline = time.monotonic() + _GIVE_UP_S
    while True:
        error, found = wire.list_answer(await connection.ask(wire.list_request()))
        if not error and found >= groups:
            return found
        if time.monotonic() > deadline or error not in (0, *wire.NOT_YET):
            raise RuntimeError(f"{found} of {groups} groups are there: error {error}")
        await asyncio.sleep(0.02)


async def loaded(args: argparse.Namespace) -> dict[str, float]:
    connection = await Connection.open(args.port)
    begin = time.perf_counter()
    count = await all_loaded(connection, args.groups)
    seconds = time.perf_counter() - begin
    partitions = list(range(args.partitions))
    for number in random.Random(1).sample(range(args.groups), min(200, args.groups)):
        found = wire.fetch_answer(await connection.ask(wire.fetch_request(group_name(number), args.topic, partitions)))
        if found != offsets_of(number, args.partitions):
            raise RuntimeError(f"{group_name(number)} has lost what it committed: {found}")
    connection.close()
    return {"wait_s": seconds, "groups": count}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(dest="mode", required=True)
    for name, run in (("rebalance", rebalance), ("fill", fill), ("loaded", loaded)):
        mode = modes.add_parser(name)
        mode.set_defaults(run=run)
        mode.add_argument("--port", type=int, required=True)
        mode.add_argument("--topic", default="bench")
        mode.add_argument("--partitions", type=int, default=1)
        mode.add_argument("--group", default="bench")
        mode.add_argument("--groups", type=int, default=10_000)
        mode.add_argument("--connections", type=int, default=256)
    members = modes.choices["rebalance"]
    members.add_argument("--protocol", choices=tuple(PROTOCOLS), required=True)
    members.add_argument("--members", type=int, default=100)
    members.add_argument("--interval", type=float, default=1.0, help="seconds between the heartbeats of a member")
    args = parser.parse_args()
    print(json.dumps(asyncio.run(args.run(args))), flush=True)


if __name__ == "__main__":
    main()
