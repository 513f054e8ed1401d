"""Links and mirror topics as people manage them: create, describe, pause, promote. Any broker may be asked.

A promotion waits until everything is copied; a failover does not, and says what may be missing. Both end with a topic
that producers may write to, and can be repeated after a failure. Waits are bounded.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from uuid import uuid4

import msgspec

from headrace.cluster.link_changes import LinkChanges, check_link
from headrace.cluster.metadata import Metadata
from headrace.config.queue import PREFIX as QUEUE_PREFIX
from headrace.mirror.copies import Copies
from headrace.mirror.copy_rates import CopyRates
from headrace.mirror.figures import LANE, Figures
from headrace.mirror.link_task import LinkTasks, epoch_bound
from headrace.mirror.reports import (
    AskLinkStatus,
    AskMirrorFigures,
    AskPartings,
    AskSchemaSync,
    LinkCall,
    LinkReport,
    LinkStatus,
    LinkSummary,
    MirrorReport,
    PartingFigures,
    PartitionFigures,
    PartitionReport,
    PromotionReport,
    ReversalReport,
    SetGroupsBack,
    WriteDivergent,
    is_copied,
    mirror_report,
    not_ready,
    planned_reversal,
    reversal_report,
)
from headrace.mirror.reversal_plan import ReversalPlan, reversal_plan
from headrace.mirror.reversals import Reversals
from headrace.mirror.schema_sync import SchemaSync
from headrace.mirror.source_history import behind_source
from headrace.mirror.sources import Sources
from headrace.model.errors import (
    HeadraceError,
    InvalidLink,
    LinkExists,
    MirrorNotReady,
    NotMirrored,
    SourceUnavailable,
    UnknownLink,
    UnknownTopic,
)
from headrace.model.ids import NO_LEADER, TopicName
from headrace.model.image import SCHEMAS_TOPIC
from headrace.model.links import Link, Mirror, MirrorState, is_fetching
from headrace.replication.calls import answer_to, ask, unknown_call
from headrace.replication.peers import Peers
from headrace.runtime.clock import Clock

PROMOTION_TIMEOUT_S = 60.0
_POLL_S = 0.2
_STATUS_TIMEOUT_S = 2.0
_FIGURES_TIMEOUT_S = 60.0
"""To read everything that would be set aside."""
_CREATE_TIMEOUT_S = 20.0
"""For the first answer of the source: of many addresses that do not answer, the last ones are not asked."""


class Links:
    """The service of links."""

    def __init__(
        self,
        metadata: Metadata,
        figures: Figures,
        sources: Sources,
        tasks: LinkTasks,
        clock: Clock,
        peers: Peers | None,
        reversals: Reversals,
        schemas: SchemaSync,
    ) -> None:
        self.figures = figures
        self._metadata = metadata
        self._changes = LinkChanges(metadata)
        self._copies = Copies(metadata)
        self._sources = sources
        self._tasks = tasks
        self._clock = clock
        self._peers = peers
        self._reversals = reversals
        self.schemas = schemas
        self.rates = CopyRates()
        self._decoder = msgspec.msgpack.Decoder(LinkCall)

    # -- looking

    def summaries(self) -> tuple[LinkSummary, ...]:
        """All links, by name."""
        image = self._metadata.image
        of_link: dict[str, list[Mirror]] = {name: [] for name in image.links}
        for mirror in image.mirrors.values():
            if (link := image.links.get(mirror.link)) is not None and link.has(mirror):
                of_link[link.name].append(mirror)
        return tuple(
            LinkSummary(
                image.links[name],
                mirrors=sum(each.is_read_only for each in mirrors),
                faulted=sum(each.state is MirrorState.FAULTED for each in mirrors),
                promoted=sum(not each.is_read_only for each in mirrors),
            )
            for name, mirrors in sorted(of_link.items())
        )

    async def describe(self, name: str) -> LinkReport:
        """A link with its mirror topics and how far each is. Raises `UnknownLink`."""
        link, image = self._link(name), self._metadata.image
        mirrors = [mirror for mirror in image.mirrors.values() if link.has(mirror)]
        status, reports = await asyncio.gather(self._status(name), self._reports(mirrors))
        return LinkReport(link, status, reports)

    async def reports(self) -> tuple[LinkReport, ...]:
        """All links, by name, with their mirror topics and how far each is."""
        image = self._metadata.image
        names = sorted(image.links)
        self.rates.keep(frozenset(names))
        statuses, mirrors = await asyncio.gather(
            asyncio.gather(*map(self._status, names)),
            self._reports(
                each for each in image.mirrors.values() if each.link in image.links and image.links[each.link].has(each)
            ),
        )
        of_link: dict[str, list[MirrorReport]] = {name: [] for name in names}
        for each in mirrors:
            of_link[each.mirror.link].append(each)
        return tuple(
            LinkReport(image.links[name], status, tuple(of_link[name]))
            for name, status in zip(names, statuses, strict=True)
        )

    async def mirror(self, topic: str) -> MirrorReport:
        """A mirror topic, or one that was, and how far it is. Raises `UnknownTopic` or `NotMirrored`."""
        (report,) = await self._reports([self._mirror(topic)]) or (None,)
        if report is None:
            raise UnknownTopic(f"there is no topic {topic}")
        return report

    def own_figures(self) -> list[PartitionFigures]:
        """Those of the mirror partitions that this broker leads, for metrics."""
        return self.figures.own(self._metadata.image.mirrors)

    def own_sync_problems(self) -> dict[str, tuple[str, ...]]:
        """By link: what of it is not copied, or not all of it, of what this broker copies; for metrics."""
        schemas = self.schemas.results
        return {
            name: (
                *self._tasks.status(name).sync_problems,
                *(("schemas",) if name in schemas and schemas[name].problem else ()),
            )
            for name in sorted(self._metadata.image.links)
        }

    # -- changing

    async def create(self, link: Link, *, dry_run: bool = False) -> Link:
        """Store a link, after the source cluster has answered. Its id, times and what is learned are set here.

        Raises `InvalidLink`, `LinkExists`, or `SourceUnavailable` with the reason.
        """
        check_link(link)
        if link.name in self._metadata.image.links:
            raise LinkExists(f"the link {link.name} exists already: delete it first, or choose another name")
        cluster_id = await self._reached_cluster(replace(link, source_cluster_id=""))
        if cluster_id == self._metadata.image.cluster_id:
            raise InvalidLink("these are addresses of this very cluster: a link copies from another one")
        made = replace(link, link_id=uuid4(), created_ms=int(self._clock.wall_ms()), source_cluster_id=cluster_id)
        if not dry_run:
            await self._changes.create(made)
        return made

    async def alter(self, name: str, edit: Callable[[Link], Link], *, dry_run: bool = False) -> Link:
        """Change a link; returns it as it is then. Other addresses must lead to the same source cluster.

        `edit` is pure, and runs again if another broker changes the link meanwhile. Raises `UnknownLink`,
        `InvalidLink`, or `SourceUnavailable` with the reason.
        """
        before = self._link(name)
        wanted = edit(before)
        check_link(wanted)
        if wanted.bootstrap != before.bootstrap:
            await self._reached_cluster(wanted)
        return wanted if dry_run else await self._changes.alter(name, edit)

    async def pause(self, name: str, topics: Sequence[str] = ()) -> None:
        """Copy nothing over a link for now, or nothing into these mirror topics."""
        await self._set_paused(name, topics, is_paused=True)

    async def resume(self, name: str, topics: Sequence[str] = ()) -> None:
        await self._set_paused(name, topics, is_paused=False)

    async def delete(self, name: str) -> None:
        """Remove a link without mirror topics. Raises `UnknownLink` or `InvalidLink`."""
        link = self._link(name)
        await self._changes.delete(name)
        await self._copies.release(link.link_id)

    async def promote(
        self, topic: str, *, dry_run: bool = False, timeout_s: float = PROMOTION_TIMEOUT_S
    ) -> PromotionReport:
        """Make a mirror topic writable once everything of the source is copied: stop the producers there first.

        Raises `MirrorNotReady` if that takes longer than `timeout_s`, and then nothing has changed.
        """
        began_ms, mirror = self._clock.monotonic_ms(), self._mirror(topic)
        # A promotion that was begun is completed.
        if mirror.state is not MirrorState.PROMOTING:
            self._check_copying(topic, mirror)
            if not dry_run:
                await self._wait_until_copied(topic, timeout_s)
        return await self._promote(topic, began_ms, dry_run=dry_run, reason="promoted")

    async def failover(self, topic: str, *, dry_run: bool = False) -> PromotionReport:
        """Make a mirror topic writable now, whatever of the source is not copied."""
        began_ms = self._clock.monotonic_ms()
        return await self._promote(topic, began_ms, dry_run=dry_run, reason="failed over", is_source_lost=True)

    async def reverse(
        self, name: str, topic: str, *, dry_run: bool = False, timeout_s: float = PROMOTION_TIMEOUT_S
    ) -> ReversalReport:
        """Make a former source the mirror of the topic that was promoted from its mirror in the cluster of a link.

        Producers are refused from now on. Returns when what the other cluster never had is set aside, or after
        `timeout_s` with `is_complete` false; it goes on then. Raises `InvalidLink` if that topic is no such topic.
        """
        link, image = self._link(name), self._metadata.image
        found = image.topics.get(TopicName(topic))
        mirror = None if found is None else image.mirrors.get(found.topic_id)
        if found is None or mirror is None or mirror.link != name or not mirror.reversed_ms or not mirror.is_read_only:
            if link.is_paused:
                raise InvalidLink(f"the link {name} is paused: resume it first, with headrace link resume {name}")
            # Taken once: the client may be replaced meanwhile, and a new one does not know its cluster yet.
            cluster = self._sources.of(link)
            plan = await reversal_plan(self._metadata, cluster, topic)
            if dry_run:
                return await self._reversal_figures(link, plan)
            await self._reversals.topics.ensure(plan.topic, validate_only=True)
            now_ms, source = self._now_ms(), plan.source
            wanted = Mirror(
                plan.topic.topic_id,
                name,
                source.name,
                source.topic_id,
                cluster.cluster_id,
                changed_ms=now_ms,
                source_epoch=epoch_bound(source),
                link_id=link.link_id,
                older_origins=plan.older_origins,
                source_promoted_epoch=plan.promotion.promoted_epoch,
                reversed_ms=now_ms,
                queue={each: value for each, value in plan.topic.settings.items() if each.startswith(QUEUE_PREFIX)},
            )
            await self._changes.reverse(plan.topic.topic_id, wanted)
        until_ms = self._clock.monotonic_ms() + timeout_s * 1000
        while True:
            mirror = self._mirror(topic)
            if mirror.state is not MirrorState.REVERSING or self._clock.monotonic_ms() >= until_ms:
                return reversal_report(topic, mirror, is_dry_run=dry_run)
            await asyncio.sleep(_POLL_S)

    # -- calls of other brokers

    async def serve(self, call: bytes) -> bytes:
        """Answer the call of another broker."""
        try:
            asked = self._decoder.decode(call)
        except msgspec.MsgspecError as error:
            return unknown_call(error)

        async def work() -> list[PartitionFigures] | list[PartingFigures] | LinkStatus | str | None:
            match asked:
                case AskSchemaSync():
                    return self.schemas.problem(asked.link)
                case AskMirrorFigures():
                    return self.figures.own(asked.topics)
                case AskPartings():
                    return await self._reversals.serve_partings(asked)
                case WriteDivergent():
                    await self._reversals.topics.serve(asked)
                    return None
                case SetGroupsBack():
                    await self._reversals.groups.serve(asked)
                    return None
            return self._tasks.status(asked.link)

        return await answer_to(work)

    # -- inside

    async def _reports(self, mirrors: Iterable[Mirror]) -> tuple[MirrorReport, ...]:
        image = self._metadata.image
        topics = {mirror.topic_id: image.topic_by_id(mirror.topic_id) for mirror in mirrors}
        figures = await self.figures.of(topics)
        found = []
        for topic_id, topic in topics.items():
            if topic is not None:
                parts = tuple(
                    PartitionReport(index, state.leader, figures.get((topic_id, index)))
                    for index, state in enumerate(topic.partitions)
                )
                found.append(mirror_report(topic.name, image.mirrors[topic_id], parts, self._clock.wall_ms()))
        return tuple(sorted(found, key=lambda report: report.topic))

    async def _reached_cluster(self, link: Link) -> str:
        """The id of the cluster that the addresses of a link lead to; raises `SourceUnavailable`."""
        source = self._sources.new(link)
        try:
            async with asyncio.timeout(_CREATE_TIMEOUT_S):
                await source.refresh()
        except TimeoutError:
            raise SourceUnavailable(f"no address of the link answers within {_CREATE_TIMEOUT_S:g} s") from None
        finally:
            await source.close()
        return source.cluster_id

    async def _reversal_figures(self, link: Link, plan: ReversalPlan) -> ReversalReport:
        """What a reversal would set aside. Raises an error if the leader of a partition does not answer."""
        topic = plan.topic
        asked = AskPartings(topic.topic_id, link.name, plan.source.name, plan.promotion.promoted_epoch)
        rows: list[PartingFigures] = []
        for leader in dict.fromkeys(state.leader for state in topic.partitions):
            if leader == NO_LEADER:
                raise MirrorNotReady(f"a partition of {topic.name} has no leader now: try again")
            if leader == self._metadata.broker_id or self._peers is None:
                rows += await self._reversals.serve_partings(asked)
            else:
                rows += await ask(
                    self._peers, leader, asked, list[PartingFigures], lane=LANE, timeout_s=_FIGURES_TIMEOUT_S
                )
        if {row.partition for row in rows} != set(range(len(topic.partitions))):
            raise MirrorNotReady(f"the leaders of {topic.name} change at the moment: try again")
        return planned_reversal(topic.name, plan.source.name, rows)

    async def _status(self, name: str) -> LinkStatus:
        status = await self._controller_status(name)
        link = self._metadata.image.links.get(name)
        if link is None or not link.sync.schemas or not (problem := await self._schema_problem(name)):
            return status
        return msgspec.structs.replace(status, sync_problems={**status.sync_problems, "schemas": problem})

    async def _schema_problem(self, name: str) -> str:
        """Why schemas are not copied, or not all of them; the leader of the registry copies them."""
        topic = self._metadata.image.topics.get(TopicName(SCHEMAS_TOPIC))
        leader = NO_LEADER if topic is None else topic.partitions[0].leader
        if leader == NO_LEADER:
            return "the registry here has no leader yet"
        if leader == self._metadata.broker_id or self._peers is None:
            return self.schemas.problem(name)
        try:
            return await ask(self._peers, leader, AskSchemaSync(name), str, lane=LANE, timeout_s=_STATUS_TIMEOUT_S)
        except HeadraceError as error:
            return f"the leader of the registry does not answer: {error}"

    async def _controller_status(self, name: str) -> LinkStatus:
        controller, own_id = self._metadata.image.controller_id, self._metadata.broker_id
        if controller == own_id or self._peers is None:
            return self._tasks.status(name)
        try:
            return await ask(
                self._peers, controller, AskLinkStatus(name), LinkStatus, lane=LANE, timeout_s=_STATUS_TIMEOUT_S
            )
        except HeadraceError as error:
            return LinkStatus(error=f"the controller does not answer: {error}")

    async def _set_paused(self, name: str, topics: Sequence[str], *, is_paused: bool) -> None:
        if not topics:
            await self._changes.alter(name, lambda link: replace(link, is_paused=is_paused))
            return
        self._link(name)
        mirrors = [self._mirror(topic) for topic in topics]
        if other := next((each for each in mirrors if each.link != name), None):
            raise InvalidLink(
                f"the mirror topic of {other.source_topic} belongs to the link {other.link}, not to {name}"
            )
        new, old = MirrorState.PAUSED, MirrorState.MIRRORING
        if not is_paused:
            new, old = old, new

        def edit(mirror: Mirror) -> Mirror:
            return replace(mirror, state=new, changed_ms=self._now_ms()) if mirror.state is old else mirror

        for mirror in mirrors:
            await self._changes.change_mirror(mirror.topic_id, edit)

    async def _wait_until_copied(self, topic: str, timeout_s: float) -> None:
        """Return when every partition has, since this call, been known to have everything of the source."""
        until_ms = self._clock.monotonic_ms() + timeout_s * 1000
        first: dict[tuple[int, int], float] = {}
        while True:
            report = await self.mirror(topic)
            self._check_copying(topic, report.mirror)
            link = self._metadata.image.links.get(report.mirror.link)
            is_queue = report.is_queue and link is not None and link.sync.queues
            behind = [each for each in report.partitions if not is_copied(each, first, is_queue=is_queue)]
            source_says = "" if behind else await self._behind_source(report)
            if not behind and not source_says:
                return
            if self._clock.monotonic_ms() >= until_ms:
                raise MirrorNotReady(not_ready(report, len(behind), timeout_s, source_says))
            await asyncio.sleep(_POLL_S)

    async def _behind_source(self, report: MirrorReport) -> str:
        """Why a mirror topic whose fetches say that it has everything may still lack something; empty if not."""
        link = self._link(report.mirror.link)
        ends = {each.partition: 0 if each.figures is None else each.figures.local_end for each in report.partitions}
        return await behind_source(self._sources.of(link), report.mirror.source_topic, ends)

    def _check_copying(self, topic: str, mirror: Mirror) -> None:
        _check_read_only(topic, mirror)
        if not is_fetching(self._metadata.image.links.get(mirror.link), mirror):
            state = "paused" if mirror.state is MirrorState.MIRRORING else mirror.state.value
            why = f": {mirror.reason}" if mirror.reason else ""
            raise MirrorNotReady(
                f"nothing is copied into {topic}, which is {state}{why}: resume it first, or "
                f"use headrace link failover {topic}"
            )

    async def _promote(
        self, topic: str, began_ms: float, *, dry_run: bool, reason: str, is_source_lost: bool = False
    ) -> PromotionReport:
        mirror = self._mirror(topic)
        _check_read_only(topic, mirror)
        report = await self.mirror(topic)
        if not dry_run:
            epochs = [each.figures.log_epoch for each in report.partitions if each.figures is not None]
            await self._changes.promote(
                mirror.topic_id,
                max(epochs, default=-1),
                self._now_ms(),
                reason,
                lambda: self._clock.monotonic_ms() - began_ms,
            )
        took_ms = self._clock.monotonic_ms() - began_ms
        # A source that answered a moment ago may have got messages since, and be lost: the time counts in full.
        missing_seconds = report.missing_seconds if is_source_lost else report.lag_seconds
        return PromotionReport(topic, dry_run, report.missing_messages, missing_seconds, took_ms)

    def _link(self, name: str) -> Link:
        link = self._metadata.image.links.get(name)
        if link is None:
            raise UnknownLink(f"there is no link {name}: headrace link list shows those that there are")
        return link

    def _mirror(self, topic: str) -> Mirror:
        image = self._metadata.image
        found = image.topics.get(TopicName(topic))
        if found is None:
            raise UnknownTopic(f"there is no topic {topic}")
        mirror = image.mirrors.get(found.topic_id)
        if mirror is None:
            raise NotMirrored(f"{topic} is no mirror topic")
        return mirror

    def _now_ms(self) -> int:
        return int(self._clock.wall_ms())


def _check_read_only(topic: str, mirror: Mirror) -> None:
    if not mirror.is_read_only:
        raise NotMirrored(f"{topic} is no mirror topic any more: producers may write to it")
