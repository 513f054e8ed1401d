"""Three replicas of one partition and a store, in any order of events: what was committed once is there for ever.

The partitions and logs are the real ones, on disks that lose what was not flushed. The store, the controller and the
network are a few lines here: states are seen late or never, leaders go on for a while after they have lost their place,
answers get lost, proposals are accepted without anybody hearing of it.
"""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from uuid import UUID

from hypothesis import given, note
from hypothesis import strategies as st

from headrace.model.errors import HeadraceError
from headrace.model.ids import NO_LEADER, BrokerId, LeaderEpoch, PartitionIndex, TopicId, TopicName
from headrace.model.image import PartitionState
from headrace.records.batch import read_header
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.replication.follower import Fetched
from headrace.replication.partition import Partition
from headrace.replication.readable import Role
from headrace.testing.disks import ModelDisk
from headrace.testing.logs import SMALL, LogBench

IDS = tuple(map(BrokerId, range(3)))
EPOCHS = {broker: 100 + broker for broker in IDS}


class Replica:
    def __init__(self, broker_id: BrokerId, bench: LogBench, high_watermark: int, leader_epoch: int) -> None:
        self.broker_id = broker_id
        self.bench = bench
        self.partition = Partition(
            TopicName("orders"),
            PartitionIndex(0),
            TopicId(UUID(int=7)),
            bench.log,
            LeaderEpoch(leader_epoch),
            appended=lambda _: None,
            broker_id=broker_id,
            high_watermark=high_watermark,
        )
        self.checkpoint = high_watermark


class World:
    def __init__(self, random: Random, *, policy: str, min_in_sync: int) -> None:
        self.random = random
        self.now_ms = 0.0
        self.settings = replace(SMALL, flush_policy=policy, min_insync_replicas=min_in_sync)
        self.loses_unflushed = policy == "ack"
        self.state = PartitionState(IDS[0], LeaderEpoch(0), IDS, IDS)
        self.replicas = {broker: Replica(broker, LogBench(ModelDisk(), self.settings), 0, -1) for broker in IDS}
        self.committed: dict[int, bytes] = {}
        self.sent = 0

    # What happens

    def step(self) -> None:
        self.now_ms += self.random.choice((0, 1, 1000, 20_000))
        event = self.random.choices(
            (self.see, self.append, self.fetch, self.flush, self.propose, self.elect, self.crash),
            (4, 5, 10, 5, 4, 1, 0.7),
        )[0]
        replica = self.replicas[self.random.choice(IDS)]
        note(f"{event.__name__} {replica.broker_id}")
        event(replica)
        self.check()

    def see(self, replica: Replica) -> None:
        partition, state = replica.partition, self.state
        if state.leader == replica.broker_id:
            if partition.state is None or state.leader_epoch > partition.leader_epoch:
                self.check_elected(replica)
            partition.lead(state, self.now_ms)
        elif state.leader == NO_LEADER:
            partition.idle(state)
        else:
            partition.follow(state)

    def append(self, replica: Replica) -> None:
        if not replica.partition.is_leader:
            return
        self.sent += 1
        values = [b"%d.%d" % (self.sent, at) for at in range(self.random.randint(1, 3))]
        batch = build_batch([Record(0, 1000, None, value) for value in values])
        replica.partition.append(batch, read_header(batch))

    def flush(self, replica: Replica) -> None:
        replica.bench.flush()

    def fetch(self, replica: Replica) -> None:
        """A fetch from its request to its answer, of which either may be lost."""
        follower = replica.partition
        if follower.role is not Role.FOLLOWER or follower.leader_id == NO_LEADER:
            return
        if self.loses_unflushed and follower.log.flushed_offset < follower.log.end_offset:
            return
        position = follower.fetch_position()
        if self.random.random() < 0.1:
            return
        leader = self.replicas[follower.leader_id].partition
        try:
            leader.check_leading()
            leader.check_epoch(position.leader_epoch)
        except HeadraceError:
            return
        diverging = leader.diverges_at(position.last_fetched_epoch, position.offset)
        known = Fetched(leader.high_watermark, leader.log.start_offset)
        if diverging is not None:
            part = known._replace(diverging=diverging)
        elif not leader.log.start_offset <= position.offset <= leader.log.end_offset:
            part = known._replace(is_out_of_range=True)
        else:
            leader.replica_fetched(
                replica.broker_id,
                EPOCHS[replica.broker_id],
                position.offset,
                log_start_offset=position.log_start_offset,
                now_ms=self.now_ms,
            )
            cut = leader.slice_for_replica(position.offset, self.random.randint(1, 400), at_least_one=True)
            records = b"" if cut is None else cut.file.read(cut.position, cut.length)
            part = known._replace(records=records, high_watermark=leader.high_watermark)
        if self.random.random() < 0.9:
            follower.take_fetched(position.leader_epoch, part)

    def propose(self, replica: Replica) -> None:
        partition = replica.partition
        leading = partition.leading
        if leading is None:
            return
        proposal = leading.propose(
            now_ms=self.now_ms,
            lag_max_ms=10_000,
            end_offset=partition.log.end_offset,
            high_watermark=partition.high_watermark,
            is_eligible=lambda _, __: True,
        )
        if proposal is None:
            return
        leading.begin(proposal)
        is_lost = self.random.random() < 0.2
        holds = leading.state.partition_epoch == self.state.partition_epoch
        is_current = all(EPOCHS[broker] == epoch for broker, epoch in proposal.added.items())
        if holds and is_current and not (is_lost and self.random.random() < 0.5):
            self.state = proposal.state
            if not is_lost:
                self.see(replica)
                return
        if is_lost:
            leading.unanswered(proposal)
        else:
            leading.refused(proposal)

    def elect(self, _: Replica) -> None:
        self._change(leader=self.random.choice(self.state.isr))

    def crash(self, replica: Replica) -> None:
        """It starts again at once, with what was on its disk, and is put right before it plays a part again."""
        broker_id = replica.broker_id
        bench = replica.bench
        disk = bench.disk
        assert isinstance(disk, ModelDisk)
        left = disk.after_power_loss(self.random) if self.loses_unflushed else disk.after_process_kill()
        EPOCHS[broker_id] += 100
        others = tuple(broker for broker in self.state.isr if broker != broker_id)
        if broker_id in self.state.isr and others:
            self._change(isr=others, leader=self.random.choice(others))
        elif broker_id in self.state.isr:
            self._change(leader=broker_id)
        known = self.random.choice((replica.checkpoint, replica.partition.high_watermark))
        reopened = LogBench(left, self.settings)
        self.replicas[broker_id] = Replica(broker_id, reopened, known, -1)

    def _change(self, *, leader: BrokerId, isr: tuple[BrokerId, ...] | None = None) -> None:
        state = self.state
        self.state = replace(
            state,
            leader=leader,
            isr=state.isr if isr is None else isr,
            leader_epoch=LeaderEpoch(state.leader_epoch + 1),
            partition_epoch=state.partition_epoch + 1,
        )

    # What must hold

    def check(self) -> None:
        for replica in self.replicas.values():
            partition = replica.partition
            assert partition.high_watermark <= partition.log.end_offset
            if partition.is_leader and partition.high_watermark:
                for offset, value in values(replica, partition.high_watermark):
                    assert self.committed.setdefault(offset, value) == value, f"offset {offset} of {replica.broker_id}"
        for replica in self.replicas.values():
            for offset, value in values(replica, replica.partition.high_watermark):
                assert self.committed[offset] == value, f"offset {offset} read from {replica.broker_id}"

    def check_elected(self, replica: Replica) -> None:
        have = dict(values(replica, replica.partition.log.end_offset))
        lost = {offset for offset, value in self.committed.items() if have.get(offset) != value}
        assert not lost, f"elected without committed offsets {sorted(lost)}"

    def settle(self) -> None:
        """In quiet: everybody catches up, and all have the same."""
        for _ in range(200):
            self.now_ms += 10
            for replica in self.replicas.values():
                self.see(replica)
                self.flush(replica)
                self.fetch(replica)
                self.flush(replica)
                self.propose(replica)
        ends = {replica.partition.log.end_offset for replica in self.replicas.values()}
        marks = {replica.partition.high_watermark for replica in self.replicas.values()}
        assert set(self.state.isr) == set(IDS)
        assert len(ends) == 1
        assert marks == ends
        self.check()


def values(replica: Replica, below: int) -> Iterator[tuple[int, bytes]]:
    for record in replica.bench.records():
        if record.offset < below:
            assert record.value is not None
            yield record.offset, bytes(record.value)


@given(seed=st.integers(0, 2**32), policy=st.sampled_from(("ack", "os")), min_in_sync=st.integers(1, 3))
def test_what_was_committed_once_is_there_for_ever(seed: int, policy: str, min_in_sync: int) -> None:
    world = World(Random(seed), policy=policy, min_in_sync=min_in_sync)
    for replica in world.replicas.values():
        world.see(replica)
    for _ in range(60):
        world.step()
    world.settle()
