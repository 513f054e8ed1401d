"""The fetchers of one link on one broker: a `LeaderFetcher` for each leader at the source, as followers have.

Which broker leads a source partition comes from the source's metadata, which are fetched again when a leader does not
answer or refuses a partition, and periodically. A partition that fails is retried by itself; the others go on.
"""

import asyncio
import logging
from contextlib import suppress
from random import Random
from typing import Any

from kio.schema.errors import ErrorCode

from headrace.mirror.link_fetch_form import LinkFetchForm
from headrace.mirror.mirror_partition import MirrorPartition
from headrace.mirror.source import SourceCluster
from headrace.model.errors import HeadraceError, SourceUnavailable
from headrace.model.ids import NO_LEADER, BrokerId
from headrace.model.links import Link
from headrace.protocol.client_codec import request_schema
from headrace.protocol.codec import make
from headrace.replication.fetch_form import FollowerHost
from headrace.replication.fetch_session import Key
from headrace.replication.leader_fetcher import LeaderFetcher
from headrace.replication.throttle import UNLIMITED_BYTES_PER_S, Throttle
from headrace.runtime.clock import Clock

_log = logging.getLogger(__name__)

FETCH_LANE = "fetch"
_OFFSETS_LANE = "offsets"
_REFRESH_S = 30.0
_RETRY_S = 1.0
_CALL_TIMEOUT_S = 10.0
_LIST_OFFSETS, _LIST_OFFSETS_VERSION = 2, 7
_LATEST, _EARLIEST = -1, -2


class LinkFetchers:
    def __init__(self, link: Link, source: SourceCluster, host: FollowerHost, *, clock: Clock, random: Random) -> None:
        self.link = link
        """The link as it is now: set it when it changes."""
        self.source = source
        self._clock = clock
        self._random = random
        self._form = LinkFetchForm(host, link.name)
        self._throttle = Throttle(self._bytes_per_s, clock.monotonic_ms())
        self._copies: dict[Key, MirrorPartition] = {}
        self._leaders: dict[BrokerId, LeaderFetcher] = {}
        self._where: dict[Key, BrokerId] = {}
        self._locating: dict[Key, asyncio.Task[None]] = {}
        self._is_stale = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run(), name=f"leaders at the source of link {link.name}")

    def __len__(self) -> int:
        return len(self._copies)

    def add(self, copy: MirrorPartition) -> None:
        """Begin to copy a partition."""
        self._copies[copy.topic_id, copy.index] = copy
        if not self._place(copy):
            self._is_stale.set()

    def remove(self, copy: MirrorPartition) -> None:
        """Stop copying a partition. It gets no more records after this call."""
        key = copy.topic_id, copy.index
        if self._copies.get(key) is copy:
            self._forget(key)
            del self._copies[key]

    def fault(self, copy: MirrorPartition) -> None:
        """Stop fetching a partition that is faulted."""
        self._forget((copy.topic_id, copy.index))

    def note_contact(self, copy: MirrorPartition) -> None:
        """Bring the progress of a partition without news up to date."""
        key = copy.topic_id, copy.index
        fetcher = self._leaders.get(self._where.get(key, NO_LEADER))
        if fetcher is None:
            return
        self._note_answered(copy, fetcher)
        if why := fetcher.failure_of(key):
            copy.progress.error = why

    def _note_answered(self, copy: MirrorPartition, fetcher: LeaderFetcher) -> None:
        if (asked_ms := fetcher.last_contact_ms((copy.topic_id, copy.index))) is not None:
            copy.caught_up_until(asked_ms)

    def locate(self, copy: MirrorPartition) -> None:
        """Ask the source which offsets a partition has, and continue there."""
        key = copy.topic_id, copy.index
        if key not in self._locating:
            task = self._locating[key] = self._loop.create_task(self._locate(copy))
            task.add_done_callback(lambda _: self._locating.pop(key, None))

    async def close(self) -> None:
        tasks = [self._task, *self._locating.values()]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
        fetchers, self._leaders = tuple(self._leaders.values()), {}
        self._copies.clear()
        self._where.clear()
        for fetcher in fetchers:
            await fetcher.close()

    def _bytes_per_s(self) -> int:
        limit = self.link.max_bytes_per_second
        return UNLIMITED_BYTES_PER_S if limit is None else limit

    # -- leaders

    async def _run(self) -> None:
        """Follow the leaders; after an unexpected error, which is logged, again."""
        while True:
            try:
                await self._follow_leaders()
            except Exception:
                _log.exception("the metadata of the source of link %s cannot be followed", self.link.name)
                await asyncio.sleep(_RETRY_S)

    async def _follow_leaders(self) -> None:
        while True:
            self._is_stale.clear()
            try:
                await self.source.refresh()
            except SourceUnavailable as error:
                for copy in self._copies.values():
                    if not copy.progress.is_faulted:
                        copy.progress.error = str(error)
                await asyncio.sleep(_RETRY_S)
                continue
            is_placed = [self._place(copy) for copy in tuple(self._copies.values())]
            with suppress(TimeoutError):
                async with asyncio.timeout(_REFRESH_S if all(is_placed) else _RETRY_S):
                    await self._is_stale.wait()

    def _place(self, copy: MirrorPartition) -> bool:
        """Fetch a partition from its leader at the source; False if that is not known."""
        key = copy.topic_id, copy.index
        if copy.progress.is_faulted:
            return True
        topic = self.source.topics.get(copy.mirror.source_topic)
        if topic is None or topic.topic_id != copy.topic_id or copy.index >= len(topic.partitions):
            self._forget(key)
            if topic is not None or self.source.topics:
                copy.progress.error = f"the source has no partition {copy.index} of this {copy.mirror.source_topic}"
            return False
        leader, copy.source_epoch = topic.partitions[copy.index]
        if leader == NO_LEADER:
            self._forget(key)
            copy.progress.error = f"no broker of the source leads {topic.name}-{copy.index}"
            return False
        if self._where.get(key, leader) != leader:
            self._forget(key)
        self._where[key] = leader
        # Links without a limit spend nothing, so that a limit can be set at any time.
        self._fetcher(leader).follow(key, copy, is_throttled=True)
        return True

    def _fetcher(self, leader: BrokerId) -> LeaderFetcher:
        fetcher = self._leaders.get(leader)
        if fetcher is None:
            fetcher = self._leaders[leader] = LeaderFetcher(
                self.source.peers.link(leader, FETCH_LANE),
                self._form,
                clock=self._clock,
                throttle=self._throttle,
                random=self._random,
                on_refused=self._is_stale.set,
            )
        return fetcher

    def _forget(self, key: Key) -> None:
        leader = self._where.pop(key, None)
        if leader is not None:
            fetcher = self._leaders[leader]
            if (copy := self._copies.get(key)) is not None:
                self._note_answered(copy, fetcher)
            fetcher.forget(key)

    # -- offsets

    async def _locate(self, copy: MirrorPartition) -> None:
        key = copy.topic_id, copy.index
        leader, position = self._where.get(key), copy.fetch_position()
        if leader is None:
            return
        try:
            start = await self._offset(leader, copy, _EARLIEST)
            end = await self._offset(leader, copy, _LATEST)
        except HeadraceError as error:
            copy.locate_problem = f"it does not say which ones it has: {error}"
            return
        if self._copies.get(key) is copy and copy.fetch_position() == position:
            # Otherwise a fetch was answered meanwhile, or another broker leads: these offsets may be old.
            copy.locate(start, end)

    async def _offset(self, leader: BrokerId, copy: MirrorPartition, timestamp: int) -> int:
        answer = await self.source.peers.call(
            leader, _offsets_request(copy, timestamp), lane=_OFFSETS_LANE, timeout_s=_CALL_TIMEOUT_S
        )
        parts = [part for topic in answer.topics for part in topic.partitions]
        if len(parts) != 1:
            raise SourceUnavailable(f"ListOffsets: {len(parts)} partitions in an answer about one")
        (part,) = parts
        if part.error_code is not ErrorCode.none:
            raise SourceUnavailable(f"ListOffsets: {part.error_code.name}")
        return int(part.offset)


def _offsets_request(copy: MirrorPartition, timestamp: int) -> Any:
    schema = request_schema(_LIST_OFFSETS, _LIST_OFFSETS_VERSION)
    part: Any = make(
        schema.ListOffsetsPartition,
        partition_index=copy.index,
        current_leader_epoch=copy.source_epoch,
        timestamp=timestamp,
    )
    topic: Any = make(schema.ListOffsetsTopic, name=copy.mirror.source_topic, partitions=(part,))
    return make(schema.ListOffsetsRequest, replica_id=-1, isolation_level=0, topics=(topic,))
