"""Tracks the followers of a leader, and computes the high watermark and the ISR from them. Pure.

Three rules guarantee that committed records are on every replica that may be elected:

- The high watermark is the least offset of the *maximal* ISR: the ISR in the store, and every replica that would be in
  it if a proposal in flight has been or will be accepted. So a follower counts before it can be elected, and one that
  is leaving counts until it cannot be elected any more.
- It moves only while the ISR in the store has at least `min.insync.replicas` members (or all replicas, if there are
  fewer): committed records were never on fewer.
- A follower joins when it has everything committed, and everything up to the end of the log when this leader's epoch
  began: below that, its history may still be that of another leader.

A follower's offset counts for the incarnation (broker epoch) that sent it; an older incarnation is ignored.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from headrace.model.ids import BrokerId
from headrace.model.image import PartitionState
from headrace.model.invariants import invariant

UNKNOWN = -1


class Proposal(NamedTuple):
    """A change of the ISR, which the store accepts or refuses."""

    state: PartitionState
    added: Mapping[BrokerId, int]
    """The followers that join, each with the broker epoch at which it caught up: the store must still have that one."""


class FollowerProgress:
    """The progress of one follower."""

    __slots__ = ("broker_epoch", "level_ms", "offset", "seen_end", "seen_ms", "start_offset")

    def __init__(self, level_ms: float) -> None:
        self.broker_epoch = UNKNOWN
        self.offset = UNKNOWN
        """The follower has everything below it, on disk if `flush.policy` requires that."""
        self.start_offset = UNKNOWN
        self.level_ms = level_ms
        """When the follower was last caught up."""
        self.seen_end = 0
        self.seen_ms = level_ms
        """`seen_end` and `seen_ms` are the leader's end offset at the last fetch, and its time."""


class Leading:
    """The leader's side of one partition for one leader epoch. Passive: its owner calls it."""

    __slots__ = ("_followers", "_is_in_doubt", "_own_id", "_proposed", "epoch_start_offset", "maximal", "state")

    def __init__(self, own_id: BrokerId, state: PartitionState, *, epoch_start_offset: int, now_ms: float) -> None:
        """`epoch_start_offset` is the end of the log when this epoch began."""
        self._own_id = own_id
        self.state = state
        self.epoch_start_offset = epoch_start_offset
        self.maximal: frozenset[BrokerId] = frozenset(state.isr)
        """The maximal ISR: every replica that may be in sync."""
        self._proposed: Proposal | None = None
        self._is_in_doubt = False
        self._followers: dict[BrokerId, FollowerProgress] = {}
        self._take_replicas(now_ms)

    def update(self, state: PartitionState, now_ms: float) -> None:
        """Apply a newer state of the same epoch from the store: proposals on the older one are settled."""
        if state.partition_epoch <= self.state.partition_epoch:
            return
        self.state = state
        self._proposed = None
        self._is_in_doubt = False
        self.maximal = frozenset(state.isr)
        self._take_replicas(now_ms)

    def _take_replicas(self, now_ms: float) -> None:
        others = [replica for replica in self.state.replicas if replica != self._own_id]
        # A replica in the ISR gets the whole lag time to fetch; any other counts only after it has fetched.
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
        """Record that a follower fetches from `offset`, so it has everything below. True if its progress changed.

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

    def truncated(self, end_offset: int) -> None:
        """Note that the leader's log was truncated: what followers had past its end does not count any more."""
        self.epoch_start_offset = min(self.epoch_start_offset, end_offset)
        for follower in self._followers.values():
            if follower.offset > end_offset:
                follower.offset = UNKNOWN
            follower.seen_end = min(follower.seen_end, end_offset)

    def note_caught_up(self, broker_id: BrokerId, at_ms: float) -> None:
        """Record that a follower was caught up at that time."""
        follower = self._followers.get(broker_id)
        if follower is not None and follower.offset >= follower.seen_end:
            follower.level_ms = max(follower.level_ms, at_ms)

    def committed(self, own_offset: int, min_in_sync: int) -> int:
        """The offset below which the whole maximal ISR has everything; -1 if unknown, or the ISR is too small."""
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
        """The lowest log start offset of the replicas that are alive."""
        starts = [p.start_offset for broker, p in self._followers.items() if is_alive(broker)]
        return min(own_start, *starts) if starts else own_start

    def readers(self, offset: int) -> list[BrokerId]:
        """The followers in sync whose log contains an offset, or ends there."""
        return [
            broker_id
            for broker_id in self.state.isr
            if (follower := self._followers.get(broker_id)) is not None
            and follower.start_offset <= offset <= follower.offset
        ]

    # The ISR

    def can_join(self, broker_id: BrokerId, high_watermark: int) -> bool:
        follower = self._followers.get(broker_id)
        return (
            follower is not None
            and broker_id not in self.state.isr
            and follower.broker_epoch >= 0
            and follower.offset >= max(high_watermark, self.epoch_start_offset)
        )

    def is_settled(self, end_offset: int) -> bool:
        """Whether all replicas are in sync and caught up, so that there is nothing to propose."""
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
        """Propose a new ISR; None if nothing changes, or a proposal is in flight.

        `is_eligible` says whether a broker may be elected, at that broker epoch.
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
        """Mark the proposal as in flight: from now on every replica in it counts."""
        self._proposed = proposal
        self.maximal = self.maximal | frozenset(proposal.state.isr)

    def refused(self, proposal: Proposal) -> None:
        """Drop a proposal that the store has certainly not accepted."""
        if self._proposed is proposal:
            self._proposed = None
            if not self._is_in_doubt:
                self.maximal = frozenset(self.state.isr)

    def unanswered(self, proposal: Proposal) -> None:
        """Drop a proposal whose outcome is unknown: its replicas count until the store has a newer state. Another
        proposal may be made: of two on the same state at most one is accepted."""
        if self._proposed is proposal:
            self._proposed = None
            self._is_in_doubt = True
