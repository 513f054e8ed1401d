"""The progress of a partition that is set aside, while its notes fail."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from headrace.mirror.reversals import Reversals
from headrace.model.errors import StoreConflict
from headrace.model.links import Mirror, MirrorState, Parting
from headrace.records.builder import build_batch
from headrace.records.reader import Record, iter_records

TOPIC = cast(Any, SimpleNamespace(name="orders", topic_id=UUID(int=1)))
PARTING = Parting(0, offset=5, end=7, next_offset=5)
LOG = build_batch([Record(0, 1000, None, b"a"), Record(0, 1000, None, b"b")], base_offset=5)


class Store:
    """The record of the topic; a change of it may fail."""

    def __init__(self) -> None:
        self.mirror = Mirror(
            TOPIC.topic_id, "us", "orders", UUID(int=2), "x", state=MirrorState.REVERSING, partings=(PARTING,)
        )
        self.fails = False

    @property
    def image(self) -> Any:
        return SimpleNamespace(mirrors={TOPIC.topic_id: self.mirror})

    async def change_mirror(self, topic_id: UUID, edit: Callable[[Mirror], Mirror], *unchanged: str) -> None:
        if self.fails:
            raise StoreConflict("the metadata store does not answer")
        self.mirror = edit(self.mirror)


class Divergent:
    """The topic to which records are set aside."""

    def __init__(self) -> None:
        self.values: list[bytes | None] = []

    async def ensure(self, topic: object) -> object:
        return topic

    async def append(self, topic: object, index: int, batch: bytes) -> None:
        self.values += [record.value for record in iter_records(batch)]


class Led:
    """A partition that this broker leads, with `LOG`."""

    index, topic, is_leader = 0, "orders", True

    def __init__(self) -> None:
        nothing = SimpleNamespace(open_transactions=list)
        cut = SimpleNamespace(read=lambda: LOG)
        self.log = SimpleNamespace(
            producers=nothing,
            producers_as_of=lambda offset: nothing,
            aborted=SimpleNamespace(within=lambda *_: ()),
            slice=lambda *_, **__: cut,
            start_offset=0,
        )

    def check_leading(self) -> None:
        assert self.is_leader


def test_progress_whose_note_failed_is_noted_later_and_nothing_is_set_aside_again() -> None:
    store, divergent, partition = Store(), Divergent(), cast(Any, Led())
    none = cast(Any, None)
    reversals = Reversals(cast(Any, store), none, none, cast(Any, divergent), none, none, none, none)
    reversals._changes = cast(Any, store)

    async def run() -> None:
        store.fails = True
        with pytest.raises(StoreConflict):
            await reversals._set_aside(TOPIC, partition)
        assert (divergent.values, store.mirror.parting(0)) == ([b"a", b"b"], PARTING)
        store.fails = False
        await reversals._set_aside(TOPIC, partition)

    asyncio.run(run())
    assert store.mirror.parting(0) == replace(PARTING, next_offset=7, set_aside=2)
    assert divergent.values == [b"a", b"b"]
