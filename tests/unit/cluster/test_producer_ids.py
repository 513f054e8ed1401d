import asyncio
from pathlib import Path
from typing import NoReturn

import pytest

from headrace.cluster.producer_ids import BLOCK_SIZE, ProducerIds
from headrace.cluster.sqlite import SqliteStore
from headrace.cluster.store import StoreUnavailable
from headrace.runtime.clock import SystemClock

from .members import until


def test_ids_are_given_out_while_the_store_is_away_and_never_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> NoReturn:
        raise StoreUnavailable("nobody answers")

    async def scenario() -> None:
        store = await SqliteStore.open(tmp_path / "store.sqlite", SystemClock())
        ids, others = ProducerIds(store), ProducerIds(store)
        ahead = asyncio.create_task(ids.prefetch_blocks())
        try:
            await until(lambda: ids._spare is not None)
            with monkeypatch.context() as patched:
                patched.setattr(store, "snapshot", away)
                given = [await ids.next() for _ in range(BLOCK_SIZE)]
                with pytest.raises(StoreUnavailable):
                    await ids.next()
                with pytest.raises(StoreUnavailable):
                    await others.next()
            given += [await others.next() for _ in range(3)]
            given += [await ids.next() for _ in range(BLOCK_SIZE + 1)]
            assert len(set(given)) == len(given)
        finally:
            ahead.cancel()
            await asyncio.wait((ahead,))
            await store.close()

    asyncio.run(scenario())
