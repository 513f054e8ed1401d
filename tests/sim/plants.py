"""Bugs to plant: each breaks one rule that replication rests on, by replacing a piece of production code."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from headrace.cluster import controller, layout
from headrace.cluster.link_changes import LinkChanges
from headrace.cluster.membership import Membership
from headrace.cluster.metadata import Metadata
from headrace.cluster.store import Compare, Write
from headrace.mirror import links
from headrace.mirror.divergence import DivergentTransactions, Fate
from headrace.mirror.divergent_topic import DivergentTopics
from headrace.mirror.reports import WriteDivergent
from headrace.mirror.reversals import Reversals
from headrace.mirror.source_history import SourceHistory
from headrace.model.ids import NO_LEADER, BrokerId, LeaderEpoch
from headrace.model.image import ClusterImage, PartitionState
from headrace.model.links import Parting
from headrace.records.batch import check_batch, iter_headers
from headrace.replication.copier import ReplicaCopier
from headrace.replication.follower import Fetched
from headrace.replication.leader import Leading, Proposal
from headrace.replication.partition import Partition
from headrace.replication.readable import ReadableReplica
from headrace.storage.log import Log
from headrace.storage.producers import Producers

Plant = Callable[[pytest.MonkeyPatch], None]


def commit_at_the_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The high watermark is the largest offset of anybody in sync, not the least."""
    monkeypatch.setattr(Leading, "committed", lambda self, own_offset, min_in_sync: own_offset)


def shrink_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is to leave the in-sync set does not count any more, before the store has agreed."""
    begin = Leading.begin

    def begin_and_forget(self: Leading, proposal: Proposal) -> None:
        begin(self, proposal)
        self.maximal = frozenset(proposal.state.isr)

    monkeypatch.setattr(Leading, "begin", begin_and_forget)


def never_truncate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader does not say where a follower's history parts from its own."""
    monkeypatch.setattr(ReadableReplica, "diverges_at", lambda self, last_fetched_epoch, offset: None)


def ack_before_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower tells its leader of records that are not on its disk."""
    monkeypatch.setattr(ReplicaCopier, "when_flushed", lambda self, callback: True)


def commit_before_own_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader counts its own records before they are on its disk."""
    committed = Leading.committed

    def count_all(self: Leading, own_offset: int, min_in_sync: int) -> int:
        return committed(self, 2**60, min_in_sync)

    monkeypatch.setattr(Leading, "committed", count_all)


def elect_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody in sync can lead, any replica that is alive does."""
    reconciled = controller.reconciled

    def reconcile_anyhow(image: ClusterImage, state: PartitionState) -> PartitionState:
        new = reconciled(image, state)
        alive = [replica for replica in state.replicas if image.can_lead(replica)]
        if new.leader != NO_LEADER or not alive:
            return new
        return replace(
            state,
            leader=alive[0],
            isr=(alive[0],),
            leader_epoch=LeaderEpoch(state.leader_epoch + 1),
            partition_epoch=state.partition_epoch + 1,
        )

    monkeypatch.setattr(controller, "reconciled", reconcile_anyhow)


def trust_the_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader believes that its lease holds, whatever its clock says."""
    monkeypatch.setattr(Membership, "is_lease_live", lambda self: True)


def join_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower joins whoever is in sync without having caught up."""

    def can_join(self: Leading, broker_id: BrokerId, high_watermark: int) -> bool:
        progress = self.progress(broker_id)
        return progress is not None and broker_id not in self.maximal and progress.broker_epoch >= 0

    monkeypatch.setattr(Leading, "can_join", can_join)


def read_uncommitted_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumers read to the end of the log."""

    def read_to_the_end(
        self: ReadableReplica, offset: int, max_bytes: int, *, committed: bool, at_least_one: bool
    ) -> Any:
        if offset >= self.log.end_offset:
            return None
        return self.log.slice(offset, max_bytes, self.log.end_offset, at_least_one=at_least_one)

    monkeypatch.setattr(ReadableReplica, "slice", read_to_the_end)


def read_open_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads what is committed reads to the high watermark."""
    monkeypatch.setattr(ReadableReplica, "last_stable_offset", property(lambda self: self.log.high_watermark))


def forget_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Followers do not learn which batches of a producer there are already."""

    def append_and_forget(self: Log, batches: Any) -> int:
        end = append_replicated(self, batches)
        self.producers.clear()
        return end

    append_replicated = Log.append_replicated
    monkeypatch.setattr(Log, "append_replicated", append_and_forget)


def keep_leading(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader does not hear that another epoch has begun."""
    follow = Partition.follow

    def follow_nobody(self: Partition, state: PartitionState) -> bool:
        return False if self.is_leader else follow(self, state)

    monkeypatch.setattr(Partition, "follow", follow_nobody)


def follower_guesses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower takes all that it has for committed."""
    learn = ReplicaCopier._learn

    def learn_too_much(self: ReplicaCopier, part: Fetched) -> None:
        learn(self, part._replace(high_watermark=self.fetch_position().offset))

    monkeypatch.setattr(ReplicaCopier, "_learn", learn_too_much)


def append_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer's retry is not known as one."""

    def check_nothing(self: Producers, *args: Any) -> None:
        return None

    monkeypatch.setattr(Producers, "check", check_nothing)


def write_without_comparing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaders and controllers, be they former ones, write states of partitions whatever the store has by then."""
    commit = Metadata.commit

    async def commit_anyhow(self: Metadata, compares: Sequence[Compare], writes: Sequence[Write]) -> None:
        is_state = any(write.key.startswith(layout.PARTITIONS) for write in writes)
        await commit(self, () if is_state else compares, writes)

    monkeypatch.setattr(Metadata, "commit", commit_anyhow)


def know_producers_of_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """The producers of a mirror are still known after its promotion."""
    monkeypatch.setattr(Producers, "reset", lambda self: None)


def promote_in_the_same_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leader epochs are not raised by a promotion."""

    async def leave(self: LinkChanges, topic_id: object, epoch: int) -> None: ...

    monkeypatch.setattr(LinkChanges, "_raise_epochs", leave)


def promote_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A promotion does not wait for what is not copied yet."""

    async def behind_source(*_: object) -> str:
        return ""

    monkeypatch.setattr(links, "is_copied", lambda *_, **__: True)
    monkeypatch.setattr(links, "behind_source", behind_source)


def mirror_with_own_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mirrored batches get the leader epoch of this cluster."""
    append = Partition.append_mirrored

    def stamp(self: Partition, batches: Any) -> None:
        own = bytearray(batches)
        for at, _ in iter_headers(bytes(own)):
            own[at + 12 : at + 16] = int(self.leader_epoch).to_bytes(4, "big")
        append(self, memoryview(own))

    monkeypatch.setattr(Partition, "append_mirrored", stamp)


def truncate_before_setting_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reversed partition is truncated as soon as it is known where it parts."""
    monkeypatch.setattr(Parting, "is_complete", property(lambda self: True))


def set_aside_without_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is appended to the divergent topic counts before other replicas have it."""

    async def serve(self: DivergentTopics, call: WriteDivergent) -> None:
        partition = self._partitions.by_id(call.topic_id, call.partition)
        partition.append(call.batch, check_batch(call.batch))

    monkeypatch.setattr(DivergentTopics, "serve", serve)


def note_before_setting_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """The progress of a reversal is noted before the records are appended: a crash in between skips them."""
    read = Reversals._read

    async def read_and_note(self: Reversals, partition: Partition, parting: Parting, *args: Any, **kw: Any) -> Any:
        chunk = await read(self, partition, parting, *args, **kw)
        if chunk.records:
            await self._save(self._reversing(partition.topic_id), chunk.parting, is_current=lambda: True)
        return chunk

    monkeypatch.setattr(Reversals, "_read", read_and_note)


def part_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A former source believes that the new one has everything of it."""

    async def parting(self: SourceHistory, partition: Partition, promoted_epoch: int, end: int) -> int:
        return end

    monkeypatch.setattr(SourceHistory, "parting", parting)


def set_aside_what_was_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of transactions that did not commit are set aside as well."""
    monkeypatch.setattr(DivergentTransactions, "fate", lambda self, header: Fate.COMMITTED)


LINK_PLANTS: dict[str, tuple[Plant, str]] = {
    "know producers of the source": (know_producers_of_the_source, "4|11"),
    "promote in the same epoch": (promote_in_the_same_epoch, "2|94"),
    "promote at once": (promote_at_once, "1"),
    "mirror with own epochs": (mirror_with_own_epochs, "5"),
}
"""As `PLANTS`, for runs with two clusters and a link."""

REVERSAL_PLANTS: dict[str, tuple[Plant, str]] = {
    "truncate before setting aside": (truncate_before_setting_aside, "1"),
    "set aside without commit": (set_aside_without_commit, "1"),
    "note before setting aside": (note_before_setting_aside, "1"),
    "part at the end": (part_at_the_end, "95"),
    "set aside what was aborted": (set_aside_what_was_aborted, "95"),
}
"""The same for runs in which the former source is reversed."""

PLANTS: dict[str, tuple[Plant, str]] = {
    "commit at the fastest": (commit_at_the_fastest, "1|11"),
    "shrink at once": (shrink_at_once, "1|27"),
    "never truncate": (never_truncate, "1|2|5|14"),
    "ack before flush": (ack_before_flush, "1"),
    "commit before own flush": (commit_before_own_flush, "1|2"),
    "elect anybody": (elect_anybody, "10"),
    "trust the dead": (trust_the_dead, "11"),
    "join too early": (join_too_early, "1"),
    "read uncommitted bytes": (read_uncommitted_bytes, "5"),
    "read open transactions": (read_open_transactions, "3"),
    "forget producers": (forget_producers, "3|4"),
    "keep leading": (keep_leading, "1|2|5|11|14"),
    "follower guesses": (follower_guesses, "5"),
    "append twice": (append_twice, "4"),
    "write without comparing": (write_without_comparing, "10|11"),
}
"""Each with the numbers of the anomalies that the checks may find, and of the invariants that the broker may."""
