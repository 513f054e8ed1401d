"""What the leader of a topic with a bound on its backlog does while coordinators do not answer."""

import errno
from collections.abc import Iterator
from pathlib import Path
from types import NoneType

import pytest

from headrace.coordinator.shard import ShardState
from headrace.groups.offsets import Committer, OffsetCommit
from headrace.model.errors import BacklogBlocked, InvalidSettings
from headrace.model.image import AUDIT_TOPIC
from headrace.monitor.topic_backlogs import TopicBacklogs
from headrace.records.reader import Record
from headrace.storage.segments import SegmentList
from tests.unit.queues.brokers import QueueBroker
from tests.waiting import until_async

TOPIC = "orders"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[QueueBroker]:
    made = QueueBroker(tmp_path / "data")
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("policy", ["drop-oldest", "refuse"])
def test_a_new_leader_decides_nothing_before_it_knows_all_groups(broker: QueueBroker, policy: str) -> None:
    """Without the group that has read everything, all of the log would be the backlog."""
    services = broker.services
    partitions, groups = services.partitions, services.groups
    backlogs = TopicBacklogs(
        metadata=services.metadata,
        partitions=partitions,
        groups=groups,
        clock=services.clock,
        workers=services.workers,
        peers=None,
    )

    async def prepare() -> None:
        settings = {"max.backlog.messages": "3", "max.backlog.policy": policy}
        await groups.coordinator.ensure_topic()
        committed = groups.commit("readers", Committer(), [OffsetCommit(TOPIC, 0, 10)])
        await until_async(lambda: committed.done)
        for shard in groups.coordinator.shards():
            shard.state = ShardState.LOADING
        await services.metadata.create_topic(TOPIC, partitions=1, settings=settings)

    broker.run(prepare())
    broker.append(TOPIC, *(Record(at, 0, None, b"x", ()) for at in range(10)))
    partition = partitions.get(TOPIC, 0)
    backlogs.start()
    guard = partition.backlog
    assert guard is not None
    broker.run(backlogs.refresh())
    assert partition.log.start_offset == 0
    assert isinstance(guard.refusal(1, 1), BacklogBlocked if policy == "refuse" else NoneType)
    for shard in groups.coordinator.shards():
        shard.state = ShardState.ACTIVE
    broker.run(backlogs.refresh())
    assert partition.log.start_offset == 0
    broker.append(TOPIC, *(Record(at, 0, None, b"x", ()) for at in range(4)))
    broker.run(backlogs.refresh())
    assert partition.log.start_offset == (11 if policy == "drop-oldest" else 0)


def test_topics_that_brokers_write_have_no_bound(broker: QueueBroker) -> None:
    metadata, bound = broker.services.metadata, {"max.backlog.messages": "3", "max.backlog.policy": "drop-oldest"}
    with pytest.raises(InvalidSettings, match="is not for __audit, which brokers write"):
        broker.run(metadata.create_topic(AUDIT_TOPIC, partitions=1, settings=bound))
    broker.run(metadata.create_topic(AUDIT_TOPIC, partitions=1))
    with pytest.raises(InvalidSettings, match="set retention"):
        broker.run(metadata.alter_topic_settings(AUDIT_TOPIC, lambda before: {**before, **bound}))


def test_a_file_that_cannot_be_read_now_makes_the_backlog_unknown(
    broker: QueueBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"max.backlog.bytes": "1", "max.backlog.policy": "drop-oldest"}
    broker.run(broker.services.metadata.create_topic(TOPIC, partitions=1, settings=settings))
    partition = broker.services.partitions.get(TOPIC, 0)
    broker.append(TOPIC, Record(0, 0, None, b"x", ()))
    broker.run(until_async(lambda: partition.log.start_offset == 1))

    def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(SegmentList, "locate", fail)
        broker.append(TOPIC, Record(0, 0, None, b"x", ()))
        assert partition.log.start_offset == 1
    broker.append(TOPIC, Record(0, 0, None, b"x", ()))
    broker.run(until_async(lambda: partition.log.start_offset == 3))
