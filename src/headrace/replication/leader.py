"""What a leader knows of its followers, and what follows from it: the high watermark, and who is in sync. Pure.

Three rules carry the promise that what is committed is on every replica that may be elected:

- The high watermark is the least offset of the *maximal* in-sync set: the set that the store has, and everybody who
  would be in it if a proposal under way has been or will be accepted. So a follower counts before it can be elected,
  and one that is leaving counts until it cannot be elected any more.
- It moves only while the set that the store has is at least as large as `min.insync.replicas` (or as there are
  replicas): what is committed was never on fewer.
- A follower joins when it has all that is committed and all that was there when this leader's epoch began: below that,
  its history may still be another one's.

A follower's offset counts for the incarnation (broker epoch) that sent it; an older incarnation is not listened to.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from headrace.model.ids import BrokerId
from headrace.model.image import PartitionState
from headrace.model.invariants import invariant

UNKNOWN = -1


class Proposal(NamedTuple):
    """A change of the in-sync set, for the store to accept or not."""

    state: PartitionState
    added: Mapping[BrokerId, int]
    """Who joins, each with the broker epoch at which it has caught up: the store must still know it by that."""


class FollowerProgress:
    """How far one follower is."""

    __slots__ = ("broker_epoch", "level_ms", "offset", "seen_end", "seen_ms", "start_offset")

    def __init__(self, level_ms: float) -> None:
        self.broker_epoch = UNKNOWN
        self.offset = UNKNOWN
        """It has everything below, on disk if the topic's acknowledgements say so."""
        self.start_offset = UNKNOWN
        self.level_ms = level_ms
        """When it last had all that the leader had."""
        self.seen_end = 0
        self.seen_ms = level_ms
        """The leader's end at its last fetch, and when that was."""


class Leading:
    """The leader's side of one partition for one leader epoch. It never decides by itself: whoever has it asks."""

    __slots__ = ("_followers", "_is_in_doubt", "_own_id", "_proposed", "epoch_start_offset", "maximal", "state")

    def __init__(self, own_id: BrokerId, state: PartitionState, *, epoch_start_offset: int, now_ms: float) -> None:
        """`epoch_start_offset` is where the log ended when this epoch began."""
        self._own_id = own_id
        self.state = state
        self.epoch_start_offset = epoch_start_offset
        self.maximal: frozenset[BrokerId] = frozenset(state.isr)
        """Who may be in sync as far as anybody knows."""
        self._proposed: Proposal | None = None
        self._is_in_doubt = False
        self._followers: dict[BrokerId, FollowerProgress] = {}
        self._take_replicas(now_ms)

    def update(self, state: PartitionState, now_ms: float) -> None:
        """The store has a newer state of the same epoch: whatever was proposed on the older one is settled."""
        if state.partition_epoch <= self.state.partition_epoch:
            return
        self.state = state
        self._proposed = None
        self._is_in_doubt = False
        self.maximal = frozenset(state.isr)
        self._take_replicas(now_ms)

    def _take_replicas(self, now_ms: float) -> None:
        others = [replica for replica in self.state.replicas if replica != self._own_id]
        # Whoever is in sync gets the whole time to show it; who is not must show it before it counts.
        self._followers = {replica: self._followers.get(replica) or FollowerProgress(now_ms) for replica in others}

    # Followers

    def is_replica(self, broker_id: int) -> bool:
        return broker_id in self._followers

    def progress(self, broker_id: BrokerId) -> FollowerProgress | None:
        return self._followers.get(broker_id)

    def fetched(
        self,
        broker_id: BrokerId,
        broker_epoch: int,
        offset: int,
        *,
        start_offset: int,
        end_offset: int,
        now_ms: float,
    ) -> bool:
        """A follower asked for `offset`, so it has what is below. True if that is news.

        `end_offset` is the leader's own. The caller has checked that the follower's history is the leader's.
        """
        follower = self._followers.get(broker_id)
        if follower is None or broker_epoch < follower.broker_epoch:
            return False
        if offset >= end_offset:
            follower.level_ms = now_ms
        elif offset >= follower.seen_end and broker_epoch == follower.broker_epoch:
            follower.level_ms = max(follower.level_ms, follower.seen_ms)
        follower.seen_end, follower.seen_ms = end_offset, now_ms
        is_news = offset != follower.offset or broker_epoch != follower.broker_epoch
        follower.broker_epoch = broker_epoch
        follower.offset = offset
        follower.start_offset = start_offset
        return is_news

    def note_caught_up(self, broker_id: BrokerId, at_ms: float) -> None:
        """A follower had all that the leader had at that time."""
        follower = self._followers.get(broker_id)
        if follower is not None and follower.offset >= follower.seen_end:
            follower.level_ms = max(follower.level_ms, at_ms)

    def committed(self, own_offset: int, min_in_sync: int) -> int:
        """Up to where everybody who may be in sync has everything; -1 if that is not known, or must not count."""
        state = self.state
        if len(state.isr) < min(min_in_sync, len(state.replicas)):
            return UNKNOWN
        invariant(self.maximal.issuperset(state.isr), 27, "every replica in sync counts")
        least = own_offset
        for broker_id in self.maximal:
            follower = self._followers.get(broker_id)
            if follower is not None and follower.offset < least:
                least = follower.offset
        return least

    def low_watermark(self, own_start: int, is_alive: Callable[[BrokerId], bool]) -> int:
        """Where the log starts on the replica that has kept most, of those that are alive."""
        starts = [p.start_offset for broker, p in self._followers.items() if is_alive(broker)]
        return min(own_start, *starts) if starts else own_start

    def readers(self, offset: int) -> list[BrokerId]:
        """Followers in sync that have what comes at an offset, or know as much of it as the leader."""
        return [
            broker_id
            for broker_id in self.state.isr
            if (follower := self._followers.get(broker_id)) is not None
            and follower.start_offset <= offset <= follower.offset
        ]

    # Who is in sync

    def can_join(self, broker_id: BrokerId, high_watermark: int) -> bool:
        follower = self._followers.get(broker_id)
        return (
            follower is not None
            and broker_id not in self.state.isr
            and follower.broker_epoch >= 0
            and follower.offset >= max(high_watermark, self.epoch_start_offset)
        )

    def is_settled(self, end_offset: int) -> bool:
        """Everybody is in sync and level: there is nothing to propose."""
        if len(self.state.isr) != len(self.state.replicas):
            return False
        return all(follower.offset == end_offset for follower in self._followers.values())

    def _is_lagging(self, broker_id: BrokerId, now_ms: float, lag_max_ms: float, end_offset: int) -> bool:
        follower = self._followers.get(broker_id)
        return follower is not None and follower.offset != end_offset and now_ms - follower.level_ms > lag_max_ms

    def propose(
        self,
        *,
        now_ms: float,
        lag_max_ms: float,
        end_offset: int,
        high_watermark: int,
        is_eligible: Callable[[BrokerId, int], bool],
    ) -> Proposal | None:
        """Who should be in sync from now on; None if nothing changes, or a proposal is under way.

        `is_eligible` tells whether the cluster knows a broker as one that may be elected, at that broker epoch.
        """
        if self._proposed is not None:
            return None
        state = self.state
        added: dict[BrokerId, int] = {}
        in_sync: list[BrokerId] = []
        for broker_id in state.replicas:
            if broker_id in state.isr:
                if not self._is_lagging(broker_id, now_ms, lag_max_ms, end_offset):
                    in_sync.append(broker_id)
            elif self.can_join(broker_id, high_watermark):
                epoch = self._followers[broker_id].broker_epoch
                if is_eligible(broker_id, epoch):
                    added[broker_id] = epoch
                    in_sync.append(broker_id)
        if set(in_sync) == set(state.isr):
            return None
        changed = replace(state, isr=tuple(in_sync), partition_epoch=state.partition_epoch + 1)
        return Proposal(changed, added)

    def begin(self, proposal: Proposal) -> None:
        """The proposal is on its way to the store: from now on everybody in it counts."""
        self._proposed = proposal
        self.maximal = self.maximal | frozenset(proposal.state.isr)

    def refused(self, proposal: Proposal) -> None:
        """The store has certainly not accepted it."""
        if self._proposed is proposal:
            self._proposed = None
            if not self._is_in_doubt:
                self.maximal = frozenset(self.state.isr)

    def unanswered(self, proposal: Proposal) -> None:
        """Nobody knows whether the store has accepted it, or will: who was in it counts until the store has a newer
        state. Another proposal may be made: of two on the same state at most one is accepted."""
        if self._proposed is proposal:
            self._proposed = None
            self._is_in_doubt = True
