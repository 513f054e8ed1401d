"""A run of two clusters: one mirrors the topic of the other over a link, and takes it over.

Both have faults, and the network between them is cut. In some runs the topic is failed over in the middle of the
faults, while the source goes on; in others it is promoted at the end, with everything. Producers of the mirror try to
write from the beginning, and nothing is acknowledged before the promotion. They have the ids of the source's producers.

After most failovers the former source is reversed, under faults as well: it has writes of its own, which are set aside,
and becomes the mirror. In some of these runs it takes the topic back at the end, and the other cluster is reversed.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from random import Random
from uuid import UUID

from headrace.cluster.link_changes import LinkChanges
from headrace.model.errors import HeadraceError
from headrace.model.links import Link
from headrace.testing.sim.checks import Violation
from headrace.testing.sim.course import HEAL_LIMIT_S, START_LIMIT_S, TOPIC, Course, Scenario
from headrace.testing.sim.linked_checks import LinkedChecks
from headrace.testing.sim.nemesis import Nemesis
from headrace.testing.sim.node import SimNode
from headrace.testing.sim.world import Process, World

_LINK = "other"
"""The name of the link, in either cluster."""
_TRY_AGAIN_S = 0.5
_AFTER_PROMOTION_S = 3.0
_REVERSE_TIMEOUT_S = 5.0


class LinkedCourse:
    """The phases of a run of two clusters."""

    def __init__(self, world: World, scenario: Scenario) -> None:
        random = Random(scenario.seed * 6007 + 2)
        self.world = world
        refresh = {"link.refresh.interval.ms": "1000"}
        self.source_checks, checks = LinkedChecks(TOPIC), LinkedChecks(TOPIC)
        self.source_checks.other, checks.other = checks, self.source_checks
        self.checks = checks
        self.source = Course(world, self.source_checks, scenario, settings=refresh)
        mirroring = replace(
            scenario,
            brokers=random.choice((2, 3, 3)),
            replication_factor=random.choice((1, 2, 2)),
            flush_policy=random.choice(("ack", "ack", "os")),
            has_transactions=False,
        )
        settings = {
            "default.replication.factor": str(mirroring.replication_factor),
            "log.flush.policy": mirroring.flush_policy,
            **refresh,
        }
        network = self.source.cluster.network
        self.target = Course(world, checks, mirroring, name="m", network=network, settings=settings)
        self.fails_over = random.random() < 0.6
        self._failover_after_s = random.uniform(0.2, 0.9) * scenario.faults_s
        self.reverses = self.fails_over and random.random() < 0.7
        self._reverse_after_s = random.uniform(0, 4)
        self._faults_s = scenario.faults_s + (random.uniform(3, 12) if self.reverses else 0)
        self.returns = self.reverses and random.random() < 0.5
        for course, each in ((self.source, self.source_checks), (self.target, checks)):
            each.on_reversed.append(course.stop_clients)

    @property
    def driver(self) -> Process:
        return self.source.driver

    @property
    def counts(self) -> dict[str, int]:
        own, other = self.checks.counts, self.source.checks.counts
        return {name: own.get(name, 0) + other.get(name, 0) for name in own}

    async def run(self) -> None:
        source, target = self.source, self.target
        await asyncio.gather(source.start(), target.start())
        await source.create_topic()
        await self._create_link(target, source)
        source.start_clients()
        target.start_clients()
        await target.cluster.until(lambda: self.checks.mirror is not None, START_LIMIT_S, "there was no mirror topic")
        await self._disturb()
        for course in (source, target):
            await course.until_in_sync()
        if self.reverses:
            await self._end_reversed()
            return
        if not self.fails_over:
            await source.finish_writes()
            await self._promote(target)
        await asyncio.sleep(_AFTER_PROMOTION_S)
        for course in (source, target):
            await course.finish_writes()
            await course.check_all_read()

    async def _end_reversed(self) -> None:
        """Check that the former source gets everything; in some runs it takes the topic back, and all is checked again
        with the roles exchanged."""
        mirror, leading = self.source, self.target
        await self._until_truncated(mirror)
        mirror.start_clients()
        await asyncio.sleep(_AFTER_PROMOTION_S)
        await leading.finish_writes()
        await self._until_same()
        if self.returns:
            await self._promote(mirror)
            await self._reverse(leading, START_LIMIT_S)
            await self._until_truncated(leading)
            leading.start_clients()
            await asyncio.sleep(_AFTER_PROMOTION_S)
            await mirror.finish_writes()
            await self._until_same()
        for course in (mirror, leading):
            await course.check_all_read()

    def describe(self) -> None:
        """Add the final state of the clusters and the clients to the trace."""
        for checks, course in ((self.source_checks, self.source), (self.checks, self.target)):
            self.world.trace.note("-", "%s", checks.mirror)
            course.describe()

    async def _disturb(self) -> None:
        clusters = self.source.cluster, self.target.cluster
        names = [[broker.name for broker in cluster.brokers.values()] for cluster in clusters]
        nemeses = [Nemesis(cluster, others) for cluster, others in zip(clusters, reversed(names), strict=True)]
        taking_over = self._fail_over() if self.fails_over else asyncio.sleep(0)
        disturbing = asyncio.gather(*(nemesis.run(self._faults_s) for nemesis in nemeses))
        over = asyncio.get_running_loop().create_task(taking_over)
        await disturbing
        for nemesis in nemeses:
            nemesis.heal()
        await over

    async def _fail_over(self) -> None:
        limit_s = self._faults_s + HEAL_LIMIT_S
        await asyncio.sleep(self._failover_after_s)

        async def failover(node: SimNode) -> None:
            await node.links.failover(TOPIC)
            self.checks.counts["failovers"] += 1

        await self._ask(
            self.target, "the topic was not failed over", failover, lambda: self.checks.is_promoted, limit_s
        )
        if self.reverses:
            await asyncio.sleep(self._reverse_after_s)
            await self._create_link(self.source, self.target, limit_s)
            await self._reverse(self.source, limit_s)

    def _checks_of(self, course: Course) -> LinkedChecks:
        return self.checks if course is self.target else self.source_checks

    async def _until_truncated(self, course: Course) -> None:
        """Consumers that start before may read what was set aside: it is there until the new source has answered."""
        checks = self._checks_of(course)
        await course.cluster.until(lambda: checks.is_truncated, HEAL_LIMIT_S, "what was set aside was not truncated")

    async def _until_same(self) -> None:
        await self.source.cluster.until(
            lambda: self.checks.is_same, HEAL_LIMIT_S, "the mirror did not get everything of its new source"
        )

    # Operations of one of the clusters

    async def _create_link(self, course: Course, other: Course, limit_s: float = START_LIMIT_S) -> None:
        addresses = tuple(str(broker.endpoint) for broker in other.cluster.brokers.values())
        link_id = UUID(int=self.world.random.getrandbits(128), version=4)
        link = Link(_LINK, link_id, addresses, topics=(TOPIC,))

        async def create(node: SimNode) -> None:
            await LinkChanges(node.metadata).create(link)

        is_done = partial(_has_link, course)
        await self._ask(course, "the link was not created", create, is_done, limit_s)

    async def _promote(self, course: Course) -> None:
        """Promote the topic of a cluster, with everything of its source."""
        checks = self._checks_of(course)

        async def promote(node: SimNode) -> None:
            await node.links.promote(TOPIC, timeout_s=20)
            checks.counts["promotions"] += 1

        await self._ask(course, "the topic was not promoted", promote, lambda: checks.is_promoted)
        assert checks.other is not None
        for place in self.source.places():
            source, mirrored = checks.other.truth(place), checks.truth(place)
            if any(mirrored.batches.get(base) != batch for base, batch in source.batches.items()):
                raise Violation(f"1: {place} was promoted at {mirrored.end}, the source has {source.end} records")

    async def _reverse(self, course: Course, limit_s: float) -> None:
        checks = self._checks_of(course)

        async def reverse(node: SimNode) -> None:
            await node.links.reverse(_LINK, TOPIC, timeout_s=_REVERSE_TIMEOUT_S)

        await self._ask(course, "the topic was not reversed", reverse, lambda: checks.reversed is not None, limit_s)

    async def _ask(
        self,
        course: Course,
        what: str,
        work: Callable[[SimNode], Awaitable[None]],
        is_done: Callable[[], bool],
        limit_s: float = START_LIMIT_S,
    ) -> None:
        """Ask brokers of a cluster, one after the other, until it is done."""
        cluster, world = course.cluster, self.world
        end_s = world.now_s + limit_s

        async def attempt(node: SimNode) -> None:
            try:
                await work(node)
            except HeadraceError as error:
                world.trace.note("operator", "%s: %s", what, error)

        while not is_done():
            if world.now_s > end_s:
                raise Violation(f"2: {what} within {limit_s:g} s")
            broker = cluster.brokers[world.random.choice(sorted(cluster.brokers))]
            process, node = broker.process, broker.node
            if process is not None and node is not None and node.is_started:
                asked = process.enter(lambda process=process, node=node: process.create_task(attempt(node)))  # type: ignore[misc]
                while not asked.done() and broker.process is process and world.now_s < end_s:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            await asyncio.sleep(_TRY_AGAIN_S)


def _has_link(course: Course) -> bool:
    return _LINK in course.checks.image.links
