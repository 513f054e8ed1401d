"""What the controller does for a link at each refresh."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest

from headrace.cluster.link_changes import LinkChanges
from headrace.cluster.metadata import Metadata
from headrace.cluster.sqlite import SqliteStore
from headrace.config.broker import broker_settings
from headrace.mirror.link_audit import LinkAudit
from headrace.mirror.link_task import LinkTask
from headrace.mirror.source import SourcePartition, SourceSettings, SourceTopic
from headrace.model.ids import BrokerId
from headrace.model.image import Endpoint
from headrace.model.links import Link, Mirror, MirrorState
from headrace.runtime.clock import ManualClock, SystemClock
from headrace.security.audit.log import AuditLog

EU = Link("eu", uuid4(), ("a:9092",), (".*",))
REFRESHES = 13
"""Settings are compared three times."""


class Source:
    """A source cluster with these topics, each with these settings."""

    cluster_id = "other"

    def __init__(self, topics: dict[str, dict[str, str]]) -> None:
        self.topics = {name: SourceTopic(name, uuid4(), (SourcePartition(BrokerId(1), 5),), False) for name in topics}
        self._settings = topics

    def of(self, link: Link) -> "Source":
        return self

    async def refresh(self) -> None:
        pass

    async def settings_of(self, names: Sequence[str]) -> dict[str, SourceSettings]:
        return {name: SourceSettings(self._settings[name], "") for name in names}


def run(tmp_path: Path, source: Source, use: Callable[[LinkTask, Metadata, ManualClock], Awaitable[None]]) -> None:
    async def work() -> None:
        store = await SqliteStore.open(tmp_path / "metadata.sqlite", SystemClock())
        metadata, clock = Metadata(store, broker_settings({}), Endpoint("h", 1)), ManualClock()
        await metadata.open()
        await LinkChanges(metadata).create(EU)
        await use(
            LinkTask("eu", metadata, cast(Any, source), clock, LinkAudit(AuditLog(clock.wall_ms))), metadata, clock
        )
        await metadata.close()
        await store.close()

    asyncio.run(work())


def test_problems_of_topics_stay_and_are_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def use(task: LinkTask, metadata: Metadata, _clock: ManualClock) -> None:
        await metadata.create_topic("taken", partitions=1)
        for _ in range(REFRESHES):
            await task.step()
            problems = task.status.problems
            assert "exists already" in problems["taken"]
            assert "no.such.setting" in problems["orders"]

    with caplog.at_level(logging.WARNING):
        run(tmp_path, Source({"taken": {}, "orders": {"no.such.setting": "1"}}), use)
    assert len([each for each in caplog.records if each.name == "headrace.mirror.link_task"]) == 2


def test_a_promotion_that_stopped_half_way_is_completed(tmp_path: Path) -> None:
    async def use(task: LinkTask, metadata: Metadata, clock: ManualClock) -> None:
        await task.step()
        (mirror,) = metadata.image.mirrors.values()
        long_ago_ms = int(clock.wall_ms()) - 20_000

        def begun(before: Mirror) -> Mirror:
            return replace(before, state=MirrorState.PROMOTING, promoted_epoch=300, changed_ms=long_ago_ms)

        await LinkChanges(metadata).change_mirror(mirror.topic_id, begun)
        await LinkChanges(metadata).alter("eu", lambda link: replace(link, is_paused=True))
        await task.step()
        assert metadata.image.mirrors[mirror.topic_id].state is MirrorState.STOPPED
        topic = metadata.image.topic_by_id(mirror.topic_id)
        assert topic is not None
        assert [each.leader_epoch for each in topic.partitions] == [300]

    run(tmp_path, Source({"orders": {}}), use)
