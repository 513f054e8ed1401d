"""Brokers of a cluster without logs and sockets: what they agree on, their places in it, and the controller."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from headrace.cluster.controller_loop import ControllerLoop
from headrace.cluster.membership import Membership
from headrace.cluster.metadata import Metadata
from headrace.cluster.sqlite import SqliteStore
from headrace.cluster.store import MetadataStore
from headrace.config.broker import broker_settings
from headrace.model.errors import StoreConflict
from headrace.model.ids import BrokerId, TopicName
from headrace.model.image import Endpoint, PartitionState
from headrace.runtime.clock import SystemClock
from tests.waiting import until_async as until

from .ways import WayToStore

SESSION_MS = 60_000
"""So long that no lease ends by itself, however slow the machine: tests end leases, or give shorter sessions."""


class Member:
    """One broker. What tests do with it: `start`, `stop`, `crash` and `cut` it off from the store."""

    def __init__(self, broker_id: int, store: MetadataStore, *, data_dir: str = "", **settings: str) -> None:
        self.way = WayToStore(store)
        self.clock = SystemClock()
        given = {"broker_id": str(broker_id), "broker_session_timeout_ms": str(SESSION_MS), **settings}
        self.settings = broker_settings({name.replace("_", "."): text for name, text in given.items()})
        self.metadata = Metadata(self.way, self.settings, Endpoint("127.0.0.1", 9000 + broker_id), is_single_node=False)
        self.membership = Membership(
            self.way, self.metadata, self.settings, self.clock, data_dir or f"directory of {broker_id}"
        )
        self.controlling = ControllerLoop(self.metadata, self.membership, self.clock)
        self.broker_id = BrokerId(broker_id)
        self.lost = 0
        self.membership.on_lost.append(self._count)

    def _count(self) -> None:
        self.lost += 1

    async def start(self) -> "Member":
        await self.metadata.open()
        self.controlling.start()
        await self.membership.register(Endpoint("127.0.0.1", 9000 + self.broker_id))
        return self

    async def crash(self, *, is_noticed: bool = True) -> None:
        """End without a word; the lease ends then, unless nobody has noticed yet."""
        lease = self.membership.lease
        self.way.go_away()
        await self.controlling.stop()
        await self.membership.close()
        await self.metadata.close()
        if is_noticed and lease is not None:
            await self.way.store.revoke_lease(lease)

    async def lose_lease(self) -> None:
        """What a silence that is too long comes to."""
        assert self.membership.lease is not None
        await self.way.store.revoke_lease(self.membership.lease)

    async def stop(self) -> None:
        await self.membership.begin_stopping()
        await self.controlling.stop()
        await self.membership.close()
        await self.metadata.close()

    def cut(self) -> None:
        """The store cannot be reached any more."""
        self.way.go_away()

    def join_again(self) -> None:
        self.way.is_away = False

    def state(self, topic: str, index: int = 0) -> PartitionState:
        return self.metadata.image.topics[TopicName(topic)].partitions[index]

    async def catch_up(self, topic: str) -> None:
        """As if every follower that is up had fetched everything: it joins the ISR."""
        while True:
            image = self.metadata.image
            found = image.topics[TopicName(topic)]
            grown = {}
            for index, state in enumerate(found.partitions):
                isr = state.isr + tuple(b for b in state.replicas if image.can_lead(b) and b not in state.isr)
                if isr != state.isr and image.can_lead(state.leader):
                    grown[found.topic_id, index] = replace(state, isr=isr, partition_epoch=state.partition_epoch + 1)
            try:
                return await self.metadata.change_partitions(grown)
            except StoreConflict:
                await self.metadata.wait_for_image_after(image)


class Members:
    """The brokers of one test, over one store."""

    def __init__(self, open_store: Callable[[], Awaitable[MetadataStore]], undo: AsyncExitStack) -> None:
        self._open_store = open_store
        self._undo = undo

    async def start(self, broker_id: int, **settings: str) -> Member:
        member = Member(broker_id, await self._open_store(), **settings)
        self._undo.push_async_callback(self._end, member)
        return await member.start()

    async def start_all(self, *broker_ids: int, **settings: str) -> list[Member]:
        """Several that are all admitted, and know of one another."""
        members = [await self.start(broker_id, **settings) for broker_id in broker_ids]
        await until(lambda: all(m.metadata.image.can_lead(BrokerId(b)) for m in members for b in broker_ids))
        return members

    @staticmethod
    async def _end(member: Member) -> None:
        await member.controlling.stop()
        await member.membership.close()
        await member.metadata.close()


@asynccontextmanager
async def members_over_sqlite(directory: Path) -> AsyncIterator[Members]:
    async with AsyncExitStack() as undo:
        store = await SqliteStore.open(directory / "metadata.sqlite", SystemClock())
        undo.push_async_callback(store.close)

        async def same() -> MetadataStore:
            return store

        yield Members(same, undo)


def run(directory: Path, scenario: Callable[[Members], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(110), members_over_sqlite(directory) as members:
            await scenario(members)

    asyncio.run(main())
