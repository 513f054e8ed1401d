"""The state of the mirror of a queue: entries of `__queue_state` that are copied from the source, ahead of a takeover.

The broker that leads the mirror partition writes them, with a term of the partition's leader epoch. A takeover raises
that epoch, and the queue's host opens the state before it reads it: from then on no copy is written (invariant 43).
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import TypeVar

from headrace.coordinator.machine import InternalRecord
from headrace.model.errors import NotLeader
from headrace.model.invariants import invariant
from headrace.model.queue_state import OWN_KEYS
from headrace.model.state_partition import state_name
from headrace.queues.engine.mirrored_state import below, changes_between
from headrace.queues.host.state_writer import parts_of
from headrace.queues.move.transfer import without_pages
from headrace.queues.state_store import StateStore
from headrace.replication.partition import Partition

A = TypeVar("A")

_AT_ONCE = 500
"""So many entries are compared in the event loop, and more in a worker."""


class StateMirror:
    """Writes the state of one mirror partition. One call at a time."""

    def __init__(self, store: StateStore, partition: Partition, workers: Executor) -> None:
        self._store = store
        self._partition = partition
        self._workers = workers
        self._name = state_name(partition.topic_id, partition.index)
        self._epoch = -1
        self._term: int | None = None
        self._stored: dict[bytes, bytes] = {}
        """The engine's entries as they are stored."""
        self._own: dict[bytes, bytes] = {}
        """Those of the host, if the queue had its home here before."""

    async def save(self, entries: Mapping[bytes, bytes], end: int, is_current: Callable[[], bool]) -> None:
        """Make the stored state that of the source for all messages below `end`, which is committed here. `NotLeader`
        unless `is_current`: while this is a mirror, and its log the source's."""
        await self._open(is_current)
        wanted = await self._compute(lambda: below(entries, end), len(entries))
        _check(is_current)
        invariant(end <= self._partition.high_watermark, 96, "the state of a mirror is about messages that it has")
        changes = await self._compute(lambda: changes_between(self._stored, wanted), len(wanted))
        await self._write(changes, is_current)
        self._stored = wanted

    async def cut(self, end: int, is_current: Callable[[], bool]) -> None:
        """The queue is no longer at home here, and its log is about to end at `end`: drop the state of the rest, and
        what its host had begun."""
        self._term = None
        await self._open(is_current)
        wanted = await self._compute(lambda: below(self._stored, end))
        own = without_pages(self._own)
        changes = [
            *changes_between(self._stored, wanted),
            *(InternalRecord(key, value) for key, value in own.items()),
            *(InternalRecord(key, None) for key in self._own if key not in own),
        ]
        await self._write(changes, is_current)
        self._stored, self._own = wanted, own

    async def _open(self, is_current: Callable[[], bool]) -> None:
        _check(is_current)
        epoch = self._partition.leader_epoch
        if self._term is None or epoch != self._epoch:
            self._term = None
            term = await self._store.open(self._name, epoch)
            found = await self._store.read(self._name, term)
            live = {key: value for key, value in found if value is not None}
            self._own = {key: value for key, value in live.items() if key.startswith(OWN_KEYS)}
            self._stored = {key: value for key, value in live.items() if key not in self._own}
            self._epoch, self._term = epoch, term

    async def _write(self, changes: list[InternalRecord], is_current: Callable[[], bool]) -> None:
        term = self._term
        assert term is not None
        # Unless all of it succeeds, it is not known what is stored.
        self._term = None
        for part in parts_of(changes):
            _check(is_current)
            await self._store.write(self._name, term, part)
        self._term = term

    async def _compute(self, work: Callable[[], A], size: int = 0) -> A:
        if max(size, len(self._stored)) <= _AT_ONCE:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._workers, work)


def _check(is_current: Callable[[], bool]) -> None:
    if not is_current():
        raise NotLeader("the queue is not mirrored by this broker any more")
