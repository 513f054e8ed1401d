"""When the state of a mirrored queue is stored: what it says must be true of the messages that are here."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from headrace.mirror import queue_sync
from headrace.mirror.progress import MirrorProgress
from headrace.mirror.queue_sync import QueueSync
from headrace.mirror.reports import PartitionFigures
from headrace.mirror.source import SourcePartition, SourceTopic
from headrace.model.errors import NotLeader
from headrace.model.ids import NO_LEADER, BrokerId, LeaderEpoch, TopicId, TopicName
from headrace.model.image import ClusterImage, PartitionState, TopicImage
from headrace.model.links import Link, LinkSync, Mirror, MirrorState, Parting
from headrace.model.queue_state import MOVED_TO, OWN_KEYS

EU = Link("eu", uuid4(), ("a:9092",), ("orders",), sync=LinkSync(queues=True))
JOBS_THERE, FAILED_THERE = uuid4(), uuid4()
MOVED = {OWN_KEYS + MOVED_TO + b"failed": b"1", b"d": b"acked"}


def topic(name: str) -> TopicImage:
    return TopicImage(TopicName(name), TopicId(uuid4()), (PartitionState(BrokerId(0), LeaderEpoch(0), (), ()),))


JOBS, FAILED = topic("jobs"), topic("failed")
MIRROR = Mirror(JOBS.topic_id, "eu", "jobs", JOBS_THERE, "other", queue={"queue.type": "standard"})
DEAD = Mirror(FAILED.topic_id, "eu", "failed", FAILED_THERE, "other", queue={"queue.type": "standard"})


class Cluster:
    """A source with two queues, and this cluster with their mirrors; only that of `jobs` is led here."""

    cluster_id = "other"

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.topics = {
            name: SourceTopic(name, topic_id, (SourcePartition(BrokerId(1), 0),), False)
            for name, topic_id in (("jobs", JOBS_THERE), ("failed", FAILED_THERE))
        }
        self.entries: dict[bytes, bytes] = {b"d": b"acked"}
        self.ends = {"failed": 5}
        self.failed_end = 5
        """Of the mirror of `failed` here."""
        self.saved: list[tuple[dict[bytes, bytes], int]] = []
        self.before_save: Callable[[], object] = lambda: None
        self.now_ms = 0.0
        self.epoch = 7
        """Of the state at the source."""
        self.copied = MirrorProgress(checked_epoch=7)
        self.settings = SimpleNamespace(link_refresh_interval_ms=5_000)
        images, names = (
            {each.name: each for each in (JOBS, FAILED)},
            {each.topic_id: each.name for each in (JOBS, FAILED)},
        )
        self.image = ClusterImage("here", NO_LEADER, {}, images, cast(Any, names), {}, 0, links={"eu": EU})
        self.set_mirrors(MIRROR, DEAD)
        self.log = SimpleNamespace(end_offset=10, epochs=SimpleNamespace(latest=0))
        self.partition = SimpleNamespace(
            topic="jobs",
            topic_id=JOBS.topic_id,
            index=0,
            is_leader=True,
            is_mirror=True,
            high_watermark=10,
            log=self.log,
        )
        monkeypatch.setattr(queue_sync, "SourceQueueState", lambda: self)
        monkeypatch.setattr(queue_sync, "ends_of", self.ends_of)
        monkeypatch.setattr(queue_sync, "_MOVED_WAIT_MS", 0)
        this = cast(Any, self)
        self.sync = QueueSync(this, this, this, this, this, this, this)

    def set_mirrors(self, *mirrors: Mirror) -> None:
        self.image = replace(self.image, mirrors={each.topic_id: each for each in mirrors})

    def step(self) -> str:
        """The problem of `jobs` after one round."""
        self.now_ms += 60_000
        asyncio.run(self.sync.step())
        found = self.sync.progress(JOBS.topic_id)
        return "" if found is None else found.error

    # -- the source

    async def read(self, *_: object) -> bool:
        return True

    async def ends_of(self, _: object, queues: Iterable[str]) -> dict[str, int]:
        return {name: self.ends[name] for name in queues if name in self.ends}

    # -- here

    def of(self, what: Any) -> Any:
        return self if isinstance(what, Link) else self._figures(what)

    async def _figures(self, topic_ids: Collection[UUID]) -> dict[tuple[UUID, int], PartitionFigures]:
        return {(each, 0): PartitionFigures(each, 0, self.failed_end, 3) for each in topic_ids}

    def progress(self, topic_id: UUID, index: int) -> MirrorProgress | None:
        return self.copied

    def of_topic(self, name: str) -> list[Any]:
        return [self.partition] if name == "jobs" else []

    def state_copy(self, _: object) -> Any:
        return self

    def check(self, key: bytes, value: bytes) -> None: ...

    async def save(self, entries: Mapping[bytes, bytes], end: int, is_current: Callable[[], bool]) -> None:
        self.before_save()
        if not is_current():
            raise NotLeader("not mirrored any more")
        self.saved.append((dict(entries), end))

    def monotonic_ms(self) -> float:
        return self.now_ms

    wall_ms = monotonic_ms


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def test_the_state_is_stored_for_what_is_committed_here(cluster: Cluster) -> None:
    assert cluster.step() == ""
    assert cluster.saved == [({b"d": b"acked"}, 10)]


def test_a_moved_message_is_acked_here_when_its_copy_is_here(cluster: Cluster) -> None:
    cluster.entries, cluster.failed_end = MOVED, 4
    assert "waits for them to be copied" in cluster.step()
    cluster.ends["failed"] = 9  # More was moved since: what was acked when the state was read is below 5.
    assert not cluster.saved
    cluster.failed_end = 5
    assert cluster.step() == ""
    assert cluster.saved == [(MOVED, 10)]


def test_a_moved_message_whose_queue_is_not_mirrored_is_not_acked(cluster: Cluster) -> None:
    cluster.entries = MOVED
    for others in ((), (replace(DEAD, state=MirrorState.STOPPED),), (replace(DEAD, state=MirrorState.PAUSED),)):
        cluster.set_mirrors(MIRROR, *others)
        assert "mirror it as well, with headrace link alter eu --topics" in cluster.step()
    assert not cluster.saved
    cluster.ends = {}  # Deleted at the source: so are the messages.
    assert cluster.step() == ""


def test_a_destination_that_is_taken_over_gets_no_more_copies(cluster: Cluster) -> None:
    cluster.entries, cluster.failed_end = MOVED, 4
    cluster.step()
    cluster.failed_end = 100  # By its own senders.
    cluster.set_mirrors(MIRROR, replace(DEAD, state=MirrorState.STOPPED))
    assert "no mirror any more" in cluster.step()
    assert not cluster.saved


@pytest.mark.parametrize("state", [MirrorState.PROMOTING, MirrorState.STOPPED, MirrorState.FAULTED])
def test_nothing_is_stored_for_a_queue_that_is_taken_over_meanwhile(cluster: Cluster, state: MirrorState) -> None:
    cluster.before_save = lambda: cluster.set_mirrors(replace(MIRROR, state=state), DEAD)
    assert cluster.step() == "not mirrored any more"
    assert not cluster.saved


def test_a_former_source_gets_the_state_when_it_has_dropped_what_its_new_source_never_had(cluster: Cluster) -> None:
    parting = Parting(0, offset=6, end=10, next_offset=10)
    cluster.set_mirrors(replace(MIRROR, source_promoted_epoch=100, partings=(parting,), reversed_ms=1), DEAD)
    cluster.step()
    assert not cluster.saved, "offsets from 6 on are other messages there"
    cluster.log.end_offset = cluster.partition.high_watermark = 6
    assert cluster.step() == ""
    assert cluster.saved == [({b"d": b"acked"}, 6)]
    cluster.log.end_offset = cluster.partition.high_watermark = 8
    cluster.log.epochs.latest = 100
    cluster.step()
    assert cluster.saved[-1] == ({b"d": b"acked"}, 8)


def test_a_link_that_does_not_copy_queues_stores_nothing(cluster: Cluster) -> None:
    cluster.image = replace(cluster.image, links={"eu": replace(EU, sync=LinkSync())})
    cluster.step()
    assert not cluster.saved


def test_a_state_of_a_history_that_is_not_that_of_the_mirror_is_not_stored(cluster: Cluster) -> None:
    cluster.epoch = 8  # A new leader there, which may have lost committed records and got others at their offsets.
    assert "not compared yet" in cluster.step()
    cluster.copied.is_faulted, cluster.copied.checked_epoch = True, 8
    assert cluster.step() == "nothing is copied into the mirror"
    assert not cluster.saved
    cluster.copied.is_faulted = False
    assert cluster.step() == ""
    assert cluster.saved


def test_the_state_is_known_of_what_was_here_when_it_was_stored(cluster: Cluster) -> None:
    cluster.partition.high_watermark = 0
    cluster.step()
    cluster.partition.high_watermark = 10
    found = cluster.sync.progress(JOBS.topic_id)
    assert found is not None
    assert found.copied_ms is not None
    assert (found.end, found.copied_ms) == (0, cluster.now_ms)
    cluster.before_save = lambda: cluster.set_mirrors(DEAD)
    cluster.step()
    assert cluster.sync.progress(JOBS.topic_id) == (found.copied_ms, "not mirrored any more", 0), "nothing is stored"
    cluster.set_mirrors(MIRROR, DEAD)
    cluster.before_save = lambda: None
    cluster.step()
    assert cluster.sync.progress(JOBS.topic_id) == (found.copied_ms + 60_000, "", 10), "as it was when it was asked for"
