"""Producer ids: unique numbers that are never reused, also across crashes.

A broker allocates a block of ids with one compare-and-set and assigns them from memory. The unused ids of a block are
lost when the broker stops, which costs nothing: there are 2^63 of them. In a cluster it allocates the next block ahead
of need, so that new producers get ids while the store is unavailable.
"""

import asyncio

from headrace.cluster import layout
from headrace.cluster.store import ABSENT, Compare, MetadataStore, Put, StoreUnavailable
from headrace.model.errors import HeadraceError
from headrace.model.ids import ProducerId

BLOCK_SIZE = 1_000
_RETRY_S = 1.0


class ProducerIds:
    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._next = 0
        self._end = 0
        self._spare: int | None = None
        """The first id of a block allocated ahead."""
        self._spare_used = asyncio.Event()
        self._taking = asyncio.Lock()
        self._failures = 0

    async def next(self) -> ProducerId:
        """A new producer id; `StoreUnavailable` if a block is needed and cannot be allocated."""
        if self._next == self._end:
            failures = self._failures
            async with self._taking:
                if self._next == self._end:
                    if self._failures != failures:
                        # Fail fast: otherwise each caller would wait for a timeout, one after the other.
                        raise StoreUnavailable("the metadata store does not answer: try again later")
                    await self._fill()
                return self._pop()
        return self._pop()

    async def prefetch_blocks(self) -> None:
        """Keep one block in reserve, until cancelled."""
        while True:
            self._spare_used.clear()
            if self._spare is None:
                try:
                    self._spare = await self._take_block()
                except HeadraceError:
                    # No caller waits for the spare block; one that needs a block gets the error from `next`.
                    await asyncio.sleep(_RETRY_S)
                    continue
            await self._spare_used.wait()

    async def _fill(self) -> None:
        if self._spare is not None:
            first, self._spare = self._spare, None
            self._spare_used.set()
        else:
            try:
                first = await self._take_block()
            except StoreUnavailable:
                self._failures += 1
                raise
        self._next, self._end = first, first + BLOCK_SIZE

    def _pop(self) -> ProducerId:
        given = ProducerId(self._next)
        self._next += 1
        return given

    async def _take_block(self) -> int:
        """Allocate a block and return its first id; it is ours once the transaction is committed."""
        key = layout.PRODUCER_IDS
        while True:
            item = (await self._store.snapshot(key)).items.get(key)
            first = 0 if item is None else layout.decode_next_producer_id(item.value)
            taken = Put(key, layout.encode(layout.ProducerIdsRecord(first + BLOCK_SIZE)))
            seen = Compare(key, ABSENT if item is None else item.mod_revision)
            if await self._store.commit([seen], [taken]) is not None:
                return first
