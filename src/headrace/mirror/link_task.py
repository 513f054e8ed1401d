"""What the controller does for each link: mirror topics follow the topics of the source.

Every `link.refresh.interval.ms` it asks the source for its topics and

- creates mirror topics for those that match the link's patterns: never internal topics, never topics that are mirrors
  at the source, nor topics that were taken over there and have records of this cluster, so that no record comes back to
  where it was written;
- adds partitions, and copies changed settings;
- notes a source topic that was created again or deleted: the mirror topic is FAULTED, with its data;
- copies what the link says besides topics (`access_sync.py`);
- completes promotions that a broker has begun and not ended.

Each link has a task of its own: one whose source does not answer holds up no other. Every change is a compare-and-set,
so a former controller that does not know it yet does no harm.
"""

import asyncio
import logging
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace

from headrace.cluster.link_changes import LinkChanges
from headrace.cluster.metadata import Metadata
from headrace.mirror.access_sync import AccessSync
from headrace.mirror.link_audit import LinkAudit
from headrace.mirror.reports import LinkStatus
from headrace.mirror.source import SourceCluster, SourceSettings, SourceTopic
from headrace.mirror.sources import Sources
from headrace.mirror.topic_settings import RETAINED, copied_settings, local_settings, queue_definition
from headrace.model.errors import HeadraceError, SourceUnavailable, TopicExists
from headrace.model.ids import TopicName
from headrace.model.image import INTERNAL_TOPICS, ClusterImage
from headrace.model.links import (
    DIVERGENT_SUFFIX,
    EPOCH_ROOM,
    MAX_ORIGINS,
    MAX_SOURCE_EPOCH,
    Link,
    Mirror,
    MirrorState,
)
from headrace.model.provenance import read_promotion
from headrace.runtime.clock import Clock

log = logging.getLogger(__name__)

_SETTINGS_EVERY = 6
"""Settings are compared at each sixth refresh, and ACLs."""
_MISSED_MAX = 3
"""A source topic is deleted if it is missing in this many answers: one broker may not know it yet."""
_NEW_TOPICS_MAX = 100
"""Mirror topics created at one refresh; the others follow at the next ones."""
_RESUME_AFTER_MS = 10_000
_PROBLEMS_MAX = 1_000
_PROBLEM_CHARS_MAX = 500


class LinkTask:
    """The upkeep of one link."""

    def __init__(self, name: str, metadata: Metadata, sources: Sources, clock: Clock, audit: LinkAudit) -> None:
        self.name = name
        self._metadata = metadata
        self._changes = LinkChanges(metadata)
        self._sources = sources
        self._clock = clock
        self._access = AccessSync(metadata, audit)
        self._contact_ms: float | None = None
        self._error = ""
        self._problems: dict[str, str] = {}
        self._reversible: dict[str, str] = {}
        """Topics of the source with a problem that a reversal ends, with the topics here."""
        self._said: dict[str, str] = {}
        """The problems before the last look at settings: they are not logged again."""
        self._missed: dict[str, int] = {}
        """By source topic: in how many answers it was missing."""
        self._skipped: frozenset[str] = frozenset()
        """Topics that are mirrors at the source or have a problem, as of the last look at settings."""
        self._looked_at = ""
        """The last of the new topics that were looked at: the next ones by name are next."""
        self._rounds = 0

    @property
    def status(self) -> LinkStatus:
        return LinkStatus(
            self._contact_ms,
            self._error,
            dict(self._problems),
            dict(self._access.problems),
            {source: topic for source, topic in self._reversible.items() if source in self._problems},
        )

    async def run(self) -> None:
        while True:
            await self.step()
            await asyncio.sleep(self._metadata.settings.link_refresh_interval_ms / 1000)

    async def step(self) -> None:
        """Ask the source once, and do what follows."""
        try:
            await self._complete_promotions()
            link = self._metadata.image.links.get(self.name)
            if link is None or link.is_paused:
                return
            source = self._sources.of(link)
            await source.refresh()
            self._contact_ms = self._clock.wall_ms()
            is_settings_round = self._rounds % _SETTINGS_EVERY == 0
            await self._follow(link, source)
            self._note_error("")
            if is_settings_round:
                await self._access.run(link, source)
        except SourceUnavailable as error:
            self._note_error(str(error))
        except HeadraceError as error:
            self._note_error(f"this cluster cannot follow the source for now: {error}")

    def _note_error(self, error: str) -> None:
        if error and not self._error:
            log.warning("the link %s: %s", self.name, error)
        elif self._error and not error:
            log.info("the link %s works again", self.name)
        self._error = error

    def _note_problem(self, topic: str, words: str) -> None:
        # Some of the words may be the source's.
        words = "".join(each if each.isprintable() else "?" for each in words[:_PROBLEM_CHARS_MAX])
        if topic not in self._problems and len(self._problems) < _PROBLEMS_MAX:
            if self._said.get(topic) != words:
                log.warning("the link %s, topic %s: %s", self.name, topic, words)
            self._problems[topic] = words

    async def _complete_promotions(self) -> None:
        now_ms = int(self._clock.wall_ms())
        for mirror in self._mirrors():
            if mirror.state is MirrorState.PROMOTING and now_ms - mirror.changed_ms >= _RESUME_AFTER_MS:
                await self._changes.promote(mirror.topic_id, -1, now_ms)

    async def _follow(self, link: Link, source: SourceCluster) -> None:
        is_settings_round = self._rounds % _SETTINGS_EVERY == 0
        self._rounds += 1
        mirrors = self._mirrors()
        known = {mirror.source_topic for mirror in mirrors}
        for name in known & self._reversible.keys():
            # It was reversed.
            del self._reversible[name]
            self._problems.pop(name, None)
        if is_settings_round:
            self._said, self._problems, self._skipped, self._reversible = self._problems, {}, frozenset(), {}
        left = known | self._skipped
        new = self._next([topic for topic in _wanted(link, source) if topic.name not in left])
        names = [topic.name for topic in new]
        if is_settings_round and (link.sync.settings or link.sync.queues):
            names += known & source.topics.keys()
        settings = await source.settings_of(names) if names else {}
        for mirror in mirrors:
            topic, found = source.topics.get(mirror.source_topic), settings.get(mirror.source_topic)
            await self._follow_topic(link, mirror, topic, found)
        for topic in new:
            if not await self._create(link, source.cluster_id, topic, settings.get(topic.name)):
                self._skipped |= {topic.name}

    def _next(self, topics: list[SourceTopic]) -> list[SourceTopic]:
        """The new topics to look at in this round, in turn: those that cannot be mirrored hold up no others."""
        later = [topic for topic in topics if topic.name > self._looked_at]
        chosen = [*later, *topics[: len(topics) - len(later)]][:_NEW_TOPICS_MAX]
        self._looked_at = chosen[-1].name if chosen else ""
        return chosen

    async def _create(self, link: Link, cluster_id: str, topic: SourceTopic, found: SourceSettings | None) -> bool:
        """Create the mirror of a topic; False if there is none, for a reason that is noted unless it is ordinary."""
        if found is None:
            self._note_problem(topic.name, "the source does not let the link see its settings: allow DESCRIBE_CONFIGS")
            return False
        if found.mirror_source:
            return False
        local_name = link.prefix + topic.name
        former = self._former_source(found)
        refusal = _loop_refusal(found, self._metadata.image.cluster_id, link.name, former) or _epoch_refusal(topic)
        if refusal:
            if former:
                self._reversible[topic.name] = former
            self._note_problem(topic.name, refusal)
            return False
        mirror = Mirror(
            topic.topic_id,
            link.name,
            topic.name,
            topic.topic_id,
            cluster_id,
            changed_ms=int(self._clock.wall_ms()),
            link_id=link.link_id,
            older_origins=tuple(each for each in found.origins if each != cluster_id),
            source_epoch=epoch_bound(topic),
        )
        settings, left_out = copied_settings(found.overrides, self._metadata.settings.topic_defaults)
        mirror = replace(mirror, queue=self._queue(link, topic, found, mirror))
        try:
            await self._changes.create_mirror(local_name, mirror, len(topic.partitions), settings)
        except TopicExists:
            self._note_problem(topic.name, f"it is not mirrored: {self._why_taken(link, local_name)}")
            return False
        except HeadraceError as error:
            self._note_problem(topic.name, f"it cannot be mirrored: {error}")
            return False
        log.info("the link %s mirrors %s as %s", link.name, topic.name, local_name)
        self._note_left_out(topic.name, left_out)
        return True

    def _former_source(self, found: SourceSettings) -> str:
        """The topic here from whose mirror a topic of the source was promoted; empty if there is none."""
        image, promotion = self._metadata.image, read_promotion(found.promotion)
        if promotion is None or promotion.cluster_id != image.cluster_id:
            return ""
        return image.topic_names.get(promotion.topic_id, "")

    def _why_taken(self, link: Link, local_name: str) -> str:
        """Why the name of a mirror topic is not free, and what to do."""
        image = self._metadata.image
        found = image.topics.get(TopicName(local_name))
        mirror = None if found is None else image.mirrors.get(found.topic_id)
        if mirror is not None and mirror.is_read_only:
            return f"{local_name} is a mirror topic of the link {mirror.link} already"
        return (
            f"the topic {local_name} exists already. Leave it out (headrace link alter {link.name} --exclude), "
            "delete the topic here, or mirror the source with another link that has a --prefix"
        )

    def _note_left_out(self, topic: str, names: Collection[str]) -> None:
        if names:
            self._note_problem(topic, f"these settings are not possible here: {', '.join(sorted(names))}")

    def _queue(self, link: Link, topic: SourceTopic, found: SourceSettings, before: Mirror) -> dict[str, str]:
        """The definition of a mirrored queue; none for a topic, or if it is not copied. A former source retains its
        dead-letter queue, which may have another name here, and the attributes of the SQS API."""
        if not link.sync.queues:
            return {}
        defaults = self._metadata.settings.topic_defaults
        queue, problem = queue_definition(found.overrides, len(topic.partitions), link.prefix, defaults)
        if problem:
            self._note_problem(topic.name, problem)
        if queue and before.reversed_ms:
            queue = {name: value for name, value in queue.items() if name not in RETAINED}
            queue |= {name: value for name, value in before.queue.items() if name in RETAINED}
        return queue

    async def _follow_topic(
        self, link: Link, mirror: Mirror, topic: SourceTopic | None, found: SourceSettings | None
    ) -> None:
        if mirror.state not in (MirrorState.MIRRORING, MirrorState.PAUSED, MirrorState.FAULTED):
            return
        name = mirror.source_topic
        self._missed[name] = 0 if topic is not None else self._missed.get(name, 0) + 1
        if topic is None:
            if self._missed[name] >= _MISSED_MAX:
                await self._fault(mirror, f"{name} was deleted at the source, or the link may not see it any more")
            return
        if topic.topic_id != mirror.source_topic_id:
            await self._fault(
                mirror,
                f"{name} was deleted and created again at the source: delete the mirror topic to copy the new one, or "
                "make it writable with headrace link failover to keep what it has",
            )
            return
        if mirror.state is MirrorState.FAULTED:
            await self._set(mirror, state=MirrorState.MIRRORING, reason="")
        if refusal := _epoch_refusal(topic):
            self._note_problem(name, refusal)
        elif _highest_epoch(topic) > mirror.source_epoch:
            bound = epoch_bound(topic)
            await self._changes.change_mirror(mirror.topic_id, lambda each: replace(each, source_epoch=bound))
        await self._follow_shape(link, mirror, topic, found)

    async def _follow_shape(self, link: Link, mirror: Mirror, topic: SourceTopic, found: SourceSettings | None) -> None:
        local = self._metadata.image.topic_by_id(mirror.topic_id)
        if local is None:
            return
        try:
            if len(topic.partitions) > len(local.partitions):
                await self._metadata.add_partitions(local.name, len(topic.partitions))
            queue = mirror.queue
            if found is not None and link.sync.queues:
                queue = self._queue(link, topic, found, mirror)
            if queue != mirror.queue:
                await self._changes.change_mirror(mirror.topic_id, lambda each: replace(each, queue=queue))
            if found is not None and link.sync.settings:
                settings, left_out = copied_settings(found.overrides, self._metadata.settings.topic_defaults)
                self._note_left_out(topic.name, left_out)
                await self._metadata.alter_topic_settings(local.name, lambda mine: {**local_settings(mine), **settings})
        except HeadraceError as error:
            self._note_problem(topic.name, f"the mirror topic cannot follow the source: {error}")

    async def _fault(self, mirror: Mirror, reason: str) -> None:
        if (mirror.state, mirror.reason) != (MirrorState.FAULTED, reason):
            log.error("the link %s: %s", self.name, reason)
            await self._set(mirror, state=MirrorState.FAULTED, reason=reason)

    async def _set(self, before: Mirror, *, state: MirrorState, reason: str) -> None:
        def edit(mirror: Mirror) -> Mirror:
            if mirror.state is not before.state:
                return mirror  # Promoted meanwhile, for example.
            return replace(mirror, state=state, reason=reason, changed_ms=int(self._clock.wall_ms()))

        await self._changes.change_mirror(before.topic_id, edit)

    def _mirrors(self) -> list[Mirror]:
        image = self._metadata.image
        link = image.links.get(self.name)
        return [] if link is None else [mirror for mirror in image.mirrors.values() if link.has(mirror)]


class LinkTasks:
    """The tasks of all links, while this broker is the controller."""

    def __init__(self, metadata: Metadata, sources: Sources, clock: Clock, audit: LinkAudit) -> None:
        self._metadata = metadata
        self._sources = sources
        self._clock = clock
        self._audit = audit
        self._running: dict[str, tuple[LinkTask, asyncio.Task[None]]] = {}
        self._changed = asyncio.Event()

    def status(self, link: str) -> LinkStatus:
        """What this broker knows of a link as the controller; nothing if it is another one."""
        found = self._running.get(link)
        return LinkStatus() if found is None else found[0].status

    async def run(self) -> None:
        """Start and stop tasks as links and the controller change, until cancelled."""
        self._metadata.subscribe(self._image_changed)
        try:
            while True:
                await self._apply(self._metadata.image)
                await self._changed.wait()
                self._changed.clear()
        finally:
            for name in tuple(self._running):
                await self._stop(name)

    def _image_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        if old.links is not new.links or old.controller_id != new.controller_id:
            self._changed.set()

    async def _apply(self, image: ClusterImage) -> None:
        wanted = image.links.keys() if image.controller_id == self._metadata.broker_id else frozenset()
        for name in self._running.keys() - wanted:
            await self._stop(name)
        for name in wanted - self._running.keys():
            task = LinkTask(name, self._metadata, self._sources, self._clock, self._audit)
            self._running[name] = task, asyncio.get_running_loop().create_task(_lasting(task), name=f"link {name}")
        await self._sources.keep(image)

    async def _stop(self, name: str) -> None:
        _, task = self._running.pop(name)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _lasting(task: LinkTask) -> None:
    """Run a task; after an unexpected error, which is logged, again."""
    while True:
        try:
            await task.run()
        except Exception:
            log.exception("the task of the link %s failed", task.name)
            await asyncio.sleep(5)


def _wanted(link: Link, source: SourceCluster) -> list[SourceTopic]:
    return [
        topic
        for name, topic in sorted(source.topics.items())
        if link.wants(name)
        and not topic.is_internal
        and not name.startswith("__")
        # A topic that this cluster would take for one of its own, such as its schemas.
        and link.prefix + name not in INTERNAL_TOPICS
        # Each cluster sets aside in a topic of its own.
        and not name.endswith(DIVERGENT_SUFFIX)
    ]


def _loop_refusal(found: SourceSettings, own_id: str, link: str, former: str) -> str:
    """Why a topic that was taken over at the source is not mirrored here; empty if it may be. `former` is the topic
    here that was its source, if there is one."""
    if own_id in found.origins:
        what_to_do = f" To make {former} here its mirror: headrace link reverse {link} {former}" if former else ""
        return (
            "it is not mirrored: it was a mirror of this cluster until it was taken over at the source, so records "
            f"that were written here would come back under another name.{what_to_do}"
        )
    if len(found.origins) >= MAX_ORIGINS:
        return f"it is not mirrored: it has records of {len(found.origins)} clusters already"
    return ""


def _epoch_refusal(topic: SourceTopic) -> str:
    """Why a topic with leader epochs of this height is not mirrored; empty if it may be."""
    epoch = _highest_epoch(topic)
    if epoch <= MAX_SOURCE_EPOCH:
        return ""
    return f"it is not mirrored: its leader epoch {epoch} is above {MAX_SOURCE_EPOCH}. Create it again at the source"


def _highest_epoch(topic: SourceTopic) -> int:
    """Of the leaders of its partitions; 0 without partitions, which a source answers while it creates a topic."""
    return max((each.leader_epoch for each in topic.partitions), default=0)


def epoch_bound(topic: SourceTopic) -> int:
    """The leader epochs of the source, rounded up: so the record does not change with each election there."""
    return (_highest_epoch(topic) // EPOCH_ROOM + 1) * EPOCH_ROOM
