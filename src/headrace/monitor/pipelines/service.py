"""Pipelines that report to this cluster: any broker takes reports and shows them; the leader of `__pipelines` has them.

A report goes to the leader, by a call between brokers if that is another one. The leader has the last report of each
pipeline and an hour of figures in memory, and stores what must survive it (`machine.py`). The answer to a report
carries what is asked of the pipeline: so one behind a firewall, which no broker can connect to, is controlled too.
"""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from headrace.cluster.metadata import Metadata
from headrace.coordinator.completion import committed
from headrace.coordinator.coordinator import Coordinator
from headrace.coordinator.machine import InternalRecord, Outcome
from headrace.coordinator.shard import Shard
from headrace.model.errors import CoordinatorLoading, NotCoordinator, UnsupportedFeature
from headrace.model.features import PIPELINES_LEVEL, needed
from headrace.model.image import PIPELINES_TOPIC
from headrace.model.pipeline_report import DesiredState, PipelineReport, ReplayCommand, ReportAnswer
from headrace.monitor.pipelines.calls import (
    AnyPipelineCall,
    DescribePipeline,
    ForgetPipeline,
    ListPipelines,
    ReplayPipeline,
    ReportPipeline,
    StartOrStopPipeline,
    decode_pipeline_call,
)
from headrace.monitor.pipelines.entries import PipelineDetail, PipelineEntry, StoredPipeline, detail_of, entry_of
from headrace.monitor.pipelines.machine import PipelineMachine, reported
from headrace.monitor.pipelines.points import PipelinePoints
from headrace.replication.calls import answer_to, ask, unknown_call
from headrace.replication.partitions import PartitionTable
from headrace.replication.peers import Peers
from headrace.runtime.clock import Clock

A = TypeVar("A")

_TOPIC_SETTINGS = {
    "cleanup.policy": "compact",
    # Every pipeline writes a record a minute, which is obsolete with the next one.
    "segment.bytes": str(8 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.3",
}
_SHARD = "pipelines"
"""The topic has one partition, so every key is in the same shard."""
_LANE = "pipelines"
_TIMEOUT_S = 10.0
_PATIENCE_MS = 3_000
_RETRY_EVERY_S = 0.05
_SWEEP_EVERY_MS = 60 * 60 * 1000


@dataclass(slots=True)
class LivePipeline:
    """The last report of a pipeline to this leader, stored or not."""

    last: StoredPipeline
    at_ms: float
    """Monotonic."""
    points: PipelinePoints = field(default_factory=PipelinePoints)


class PipelineReports:
    """Takes reports of pipelines, shows them, and passes on what is asked of them."""

    def __init__(
        self,
        *,
        metadata: Metadata,
        partitions: PartitionTable,
        clock: Clock,
        workers: Executor,
        peers: Peers | None = None,
    ) -> None:
        """Without `peers` this broker is alone."""
        self._metadata = metadata
        self._clock = clock
        self._peers = peers
        self._live: dict[str, LivePipeline] = {}
        self._swept_ms = 0.0
        self._coordinator: Coordinator[PipelineMachine] = Coordinator(
            PIPELINES_TOPIC,
            partition_count=1,
            topic_settings=_TOPIC_SETTINGS,
            make_machine=lambda _: PipelineMachine(),
            metadata=metadata,
            partitions=partitions,
            clock=clock,
            workers=workers,
            on_lost=lambda _: self._live.clear(),
        )

    def start(self) -> None:
        self._coordinator.start()

    async def stop(self) -> None:
        await self._coordinator.stop()

    # -- on any broker

    async def report(self, name: str, report: PipelineReport) -> ReportAnswer:
        """Take a report; returns when what must be stored is committed."""
        level = self._metadata.image.feature_level
        if level < PIPELINES_LEVEL:
            raise UnsupportedFeature(needed("showing pipelines", PIPELINES_LEVEL, level))
        await self._coordinator.ensure_topic()
        return await self._do(ReportPipeline(name, report), ReportAnswer)

    async def list(self) -> list[PipelineEntry]:
        """All pipelines, by name."""
        if not self._has_topic:
            return []
        return await self._do(ListPipelines(), list[PipelineEntry])

    async def describe(self, name: str) -> PipelineDetail:
        self._check_topic(name)
        return await self._do(DescribePipeline(name), PipelineDetail)

    async def start_or_stop(self, name: str, desired: DesiredState) -> PipelineDetail:
        """Ask for a pipeline to run or to stop; it does so after its next report, within seconds."""
        self._check_topic(name)
        return await self._do(StartOrStopPipeline(name, desired), PipelineDetail)

    async def replay_letters(self, name: str, reason: str = "") -> PipelineDetail:
        """Ask a pipeline to replay its dead letters."""
        self._check_topic(name)
        command = ReplayCommand(str(self._clock.wall_ms()), reason)
        return await self._do(ReplayPipeline(name, command), PipelineDetail)

    async def forget(self, name: str) -> None:
        """Remove a pipeline that does not report any more."""
        self._check_topic(name)
        await self._do(ForgetPipeline(name), type(None))

    @property
    def _has_topic(self) -> bool:
        return PIPELINES_TOPIC in self._metadata.image.topics

    def _check_topic(self, name: str) -> None:
        if not self._has_topic:
            PipelineMachine().known(name)

    async def _do(self, call: AnyPipelineCall, result: Callable[..., A]) -> A:
        """Carry out a call, after a wait if the topic is new or its leader is changing."""
        deadline_ms = self._clock.monotonic_ms() + _PATIENCE_MS
        while True:
            try:
                return await self._do_once(call, result)
            except (NotCoordinator, CoordinatorLoading):
                # Nothing was done.
                if self._clock.monotonic_ms() >= deadline_ms:
                    raise
            await asyncio.sleep(_RETRY_EVERY_S)

    async def _do_once(self, call: AnyPipelineCall, result: Callable[..., A]) -> A:
        leader = self._coordinator.leader_for(_SHARD)
        if self._peers is not None and leader != self._metadata.broker_id:
            kind: Any = result
            answered: A = await ask(self._peers, leader, call, kind, lane=_LANE, timeout_s=_TIMEOUT_S)
            return answered
        answer: A = await self._carry_out(call)
        return answer

    # -- on the leader of the topic

    async def serve(self, call: bytes) -> bytes:
        """Carry out a call of another broker; the encoded answer."""
        try:
            asked = decode_pipeline_call(call)
        except msgspec.MsgspecError as error:
            return unknown_call(error)
        return await answer_to(lambda: self._carry_out(asked))

    def led(self) -> Iterator[PipelineEntry]:
        """The pipelines, if this broker leads the topic: one broker exports their metrics."""
        for shard in self._coordinator.shards():
            if shard.is_active:
                yield from self._entries(shard)

    async def _carry_out(self, call: AnyPipelineCall) -> Any:
        shard = self._coordinator.shard(_SHARD)
        match call:
            case ReportPipeline(name, report):
                return await self._report(shard, name, report)
            case ListPipelines():
                shard.check()
                return [*self._entries(shard)]
            case DescribePipeline(name):
                shard.check()
                return self._detail(shard, name)
            case StartOrStopPipeline(name, desired):
                await self._change(shard, name, lambda *live: shard.machine.start_or_stop(name, desired, *live))
                return self._detail(shard, name)
            case ReplayPipeline(name, command):
                await self._change(shard, name, lambda *live: shard.machine.replay_letters(name, command, *live))
                return self._detail(shard, name)
            case ForgetPipeline(name):
                await self._change(shard, name, lambda *live: shard.machine.forget(name, *live))
                self._live.pop(name, None)
                return None

    async def _report(self, shard: Shard[PipelineMachine], name: str, report: PipelineReport) -> ReportAnswer:
        self._expire(shard)
        now_ms = self._clock.wall_ms()
        answer = await committed(shard.run(lambda _: shard.machine.report(name, report, now_ms)))
        live = self._live.get(name)
        last = reported(shard.machine.known(name), report, now_ms)
        if live is None:
            live = self._live[name] = LivePipeline(last, self._clock.monotonic_ms())
        live.last, live.at_ms = last, self._clock.monotonic_ms()
        live.points.add(report, now_ms)
        return answer

    async def _change(
        self,
        shard: Shard[PipelineMachine],
        name: str,
        operation: Callable[[StoredPipeline, float], Outcome[InternalRecord, None]],
    ) -> None:
        await committed(shard.run(lambda _: operation(*self._last(shard, name))))
        live = self._live.get(name)
        stored = shard.machine.pipelines.get(name)
        if live is not None and stored is not None:
            live.last = stored

    def _expire(self, shard: Shard[PipelineMachine]) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._swept_ms >= _SWEEP_EVERY_MS:
            self._swept_ms = now_ms
            shard.run(lambda _: shard.machine.expire(self._clock.wall_ms()))

    def _last(self, shard: Shard[PipelineMachine], name: str) -> tuple[StoredPipeline, float]:
        """The last report of a pipeline, and for how many seconds there was no other."""
        live, stored = self._live.get(name), shard.machine.known(name)
        if live is not None:
            return live.last, (self._clock.monotonic_ms() - live.at_ms) / 1000
        return stored, max(0.0, (self._clock.wall_ms() - stored.reported_ms) / 1000)

    def _entries(self, shard: Shard[PipelineMachine]) -> Iterator[PipelineEntry]:
        for name in sorted(shard.machine.pipelines):
            yield entry_of(name, *self._last(shard, name))

    def _detail(self, shard: Shard[PipelineMachine], name: str) -> PipelineDetail:
        last = self._last(shard, name)
        live = self._live.get(name)
        points = PipelinePoints() if live is None else live.points
        return detail_of(name, *last, points.history(self._clock.wall_ms()))
