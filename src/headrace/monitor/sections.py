"""The sections of this broker's figures: rows of one kind, built when asked for, and sent to other brokers in pages."""

from collections.abc import Awaitable, Callable
from itertools import count
from typing import Generic, TypeVar

import msgspec

from headrace.monitor.cached import Cached
from headrace.monitor.calls import PAGE_BYTES, PAGES_MAX, RowsPage
from headrace.monitor.clients.connected import ConnectedClient
from headrace.monitor.clients.view import ClientStat
from headrace.monitor.health.problem import HealthProblem
from headrace.monitor.loop_slices import sliced
from headrace.monitor.quota_use import QuotaUseStat
from headrace.monitor.snapshots import GroupStat, LedTopic, QueueStat, SharePartitionStat, TransactionStat
from headrace.runtime.clock import Clock

R = TypeVar("R")

MAX_AGE_MS = 400.0
_VERSIONS_MAX = 4
"""How many versions of a section are stored for brokers that have not read all of its pages."""

ROW_TYPES: dict[str, type] = {
    "topics": LedTopic,
    "groups": GroupStat,
    "shares": SharePartitionStat,
    "queues": QueueStat,
    "transactions": TransactionStat,
    "problems": HealthProblem,
    "clients": ClientStat,
    "connections": ConnectedClient,
    "quotas": QuotaUseStat,
}

_encode = msgspec.msgpack.Encoder().encode
_DECODERS = {name: msgspec.msgpack.Decoder(list[row]) for name, row in ROW_TYPES.items()}  # type: ignore[valid-type]


class Section(Generic[R]):
    def __init__(self, build: Callable[[], Awaitable[list[R]]], clock: Clock) -> None:
        self._rows = Cached(build, clock, MAX_AGE_MS)
        self._numbers = count(1)
        self._of: list[R] | None = None
        """The rows of the newest version."""
        self._pages: dict[int, list[bytes]] = {}
        """By version, the newest last."""

    async def rows(self) -> list[R]:
        """The rows, at most 0.4 s old, or older if they are many. Not to be changed."""
        return await self._rows.get()

    async def page(self, version: int, number: int) -> RowsPage:
        """A page of a version, or of the current rows if that version is gone: then the caller begins again."""
        pages = self._pages.get(version)
        if pages is None:
            version, number = await self._current(), 0
            pages = self._pages[version]
        return RowsPage(version, len(pages), msgspec.Raw(pages[number] if number < len(pages) else _encode([])))

    async def _current(self) -> int:
        rows = await self._rows.get()
        if self._of is not rows:
            pages = await encoded_pages(rows)
            self._pages[next(self._numbers)] = pages
            self._of = rows
            while len(self._pages) > _VERSIONS_MAX:
                del self._pages[next(iter(self._pages))]
        return next(reversed(self._pages))

    async def stop(self) -> None:
        await self._rows.stop()


async def encoded_pages(rows: list[R]) -> list[bytes]:
    """The rows as msgpack arrays of at most `PAGE_BYTES`, or of one row; at least one page, at most `PAGES_MAX`."""
    pages: list[bytes] = []
    page: list[msgspec.Raw] = []
    size = 0
    async for row in sliced(rows, 1_000):
        data = _encode(row)
        if page and size + len(data) > PAGE_BYTES:
            pages.append(_encode(page))
            page, size = [], 0
        page.append(msgspec.Raw(data))
        size += len(data)
    pages.append(_encode(page))
    return pages[:PAGES_MAX]


def decoded_rows(section: str, rows: msgspec.Raw) -> list[object]:
    """The rows of a page; `msgspec.MsgspecError` if another version of Headrace has made them in another way."""
    return _DECODERS[section].decode(rows)
