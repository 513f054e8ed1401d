"""Schemas of a link's source, if the link says so: with their ids, so that consumers can decode mirrored records.

The broker that leads the registry here reads the topic of the source's registry, as GroupSync does for the groups that
a broker coordinates: a change needs no call to another broker, and a former leader cannot write. What it knows of the
source is in memory, and read again after a failover; what was copied is noted in the registry itself.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace.cluster.metadata import Metadata
from headrace.mirror.source_topic import KeyAndValue, SourceTopicReader
from headrace.mirror.sources import Sources
from headrace.model.errors import HeadraceError, SourceUnavailable, UnknownLink
from headrace.model.links import Link
from headrace.runtime.clock import Clock

log = logging.getLogger(__name__)

_REFRESH_EVERY = 6
"""The leader of the source's topic is asked for at each sixth round, and after an error."""
_RETRY_AFTER_MS = 30_000
"""After a registry that could not be read at all: it is read from its beginning then."""


@dataclass(frozen=True, slots=True)
class SchemaRound:
    problem: str
    """What of the source is not here, in words; empty if everything is."""
    brought: int
    """Versions here that the link has brought."""


class LinkSchemaSource(Protocol):
    """The registry of a source, as far as it was read."""

    def replay(self, records: Sequence[KeyAndValue]) -> None:
        """Apply records of its topic; raises `SourceUnavailable` if there are too many."""
        ...


class TargetSchemas(Protocol):
    """The registry of this cluster."""

    async def prepare(self) -> None:
        """Create its topic if it does not exist."""
        ...

    def is_here(self) -> bool:
        """True if this broker leads it, and has loaded it."""
        ...

    def new_source(self) -> LinkSchemaSource:
        """An empty registry to read that of a source into."""
        ...

    async def sync(self, link: Link, source: LinkSchemaSource, topic_id: str, check: Callable[[], None]) -> SchemaRound:
        """Copy what is in the registry of the source. `check` raises an error when the link has changed."""
        ...

    async def release(self, active: Iterable[Link]) -> None:
        """End what other links than these hold; what they have brought stays."""
        ...


class _SourceRead:
    """The registry of one source."""

    def __init__(self, reader: SourceTopicReader, target: TargetSchemas) -> None:
        self.reader = reader
        self._target = target
        self.schemas = target.new_source()
        self.retry_at_ms = 0.0

    def begin(self) -> None:
        self.schemas = self._target.new_source()

    async def read(self) -> None:
        await self.reader.read(self.begin, self._replay)

    def _replay(self, records: Sequence[KeyAndValue]) -> None:
        self.schemas.replay(records)


class SchemaSync:
    def __init__(self, metadata: Metadata, sources: Sources, target: TargetSchemas, clock: Clock) -> None:
        self._metadata = metadata
        self._sources = sources
        self._target = target
        self._clock = clock
        self._rounds = 0
        self._reads: dict[str, _SourceRead] = {}
        self._results: dict[str, SchemaRound] = {}

    @property
    def results(self) -> dict[str, SchemaRound]:
        """The last round of each link, if this broker leads the registry."""
        return dict(self._results)

    def problem(self, link: str) -> str:
        """Why the schemas of a link are not copied, or not all of them, as of the last round by this broker."""
        found = self._results.get(link)
        return "" if found is None else found.problem

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._metadata.settings.link_refresh_interval_ms / 1000)
            try:
                await self.step()
            except HeadraceError as error:
                log.debug("schemas are not copied over links for now: %s", error)
            except Exception:
                log.exception("schemas could not be copied over links")

    async def step(self) -> None:
        """One round of all links that copy schemas."""
        chosen = [link for link in self._metadata.image.links.values() if link.sync.schemas]
        if chosen and self._metadata.image.controller_id == self._metadata.broker_id:
            await self._target.prepare()
        if not self._target.is_here():
            self._reads, self._results = {}, {}
            return
        await self._target.release(chosen)
        names = {link.name for link in chosen}
        self._reads = {name: each for name, each in self._reads.items() if name in names}
        self._results = {name: each for name, each in self._results.items() if name in names}
        await asyncio.gather(*(self._sync_or_note(link) for link in chosen if not link.is_paused))
        self._rounds += 1

    async def _sync_or_note(self, link: Link) -> None:
        before = self._results.get(link.name)
        try:
            found = await self._sync(link)
        except HeadraceError as error:
            found = SchemaRound(str(error), 0 if before is None else before.brought)
        except Exception:
            log.exception("schemas could not be copied over the link %s", link.name)
            found = SchemaRound("an unexpected error: see the log of the broker that leads _schemas", 0)
        if found.problem and (before is None or before.problem != found.problem):
            log.warning("schemas over the link %s: %s", link.name, found.problem)
        elif before is not None and before.problem and not found.problem:
            log.info("schemas are copied over the link %s again", link.name)
        self._results[link.name] = found

    async def _sync(self, link: Link) -> SchemaRound:
        source = self._sources.of(link)
        had_problem = bool(self.problem(link.name))
        if not source.cluster_id or had_problem or self._rounds % _REFRESH_EVERY == 0:
            await source.refresh()
        read = self._reads.get(link.name)
        if read is None or read.reader.source is not source or read.reader.topic != link.schemas_topic:
            reader = SourceTopicReader(source, link.schemas_topic, self._clock)
            read = self._reads[link.name] = _SourceRead(reader, self._target)
        if self._clock.monotonic_ms() < read.retry_at_ms:
            raise SourceUnavailable(self.problem(link.name))
        try:
            await read.read()
        except SourceUnavailable:
            if not read.reader.has_begun:
                read.retry_at_ms = self._clock.monotonic_ms() + self._retry_ms()
            raise
        return await self._target.sync(link, read.schemas, str(read.reader.topic_id), lambda: self._check(link))

    def _retry_ms(self) -> float:
        return min(_RETRY_AFTER_MS, 6 * self._metadata.settings.link_refresh_interval_ms)

    def _check(self, link: Link) -> None:
        if self._metadata.image.links.get(link.name) != link:
            raise UnknownLink(f"the link {link.name} was changed meanwhile")
