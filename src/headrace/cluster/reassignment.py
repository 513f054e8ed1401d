"""Moving a partition to other brokers, as Kafka does it (KIP-455). Pure: from one state to the next.

    replicas = the new ones, then those that are to go
    adding   = the new ones that were not there before
    removing = those that are to go

While it is under way everybody in `replicas` fetches, and whoever is in the ISR counts. It ends when every new replica
is in the ISR and no fewer than before are in sync; then `removing` leave. It can be changed, and taken back, at any
time. None of this takes anybody out of an ISR who is the last one in it.

Whenever somebody leaves, the leader epoch rises (invariant 36). One that has not heard of it still fetches with the log
that it will delete when it does: if it were a replica again by then, that log would count as its new one.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from headrace.model.errors import InvalidReplicaAssignment
from headrace.model.ids import BrokerId, LeaderEpoch
from headrace.model.image import PartitionState


def target(state: PartitionState) -> tuple[BrokerId, ...]:
    """The replicas that the partition has when all is done."""
    return tuple(broker for broker in state.replicas if broker not in state.removing)


def begun(state: PartitionState, wanted: Sequence[BrokerId]) -> PartitionState:
    """The state in which the partition moves to `wanted`; the same state if there is nothing to do.

    One move may take the place of another: what that had brought in and is not wanted any more goes at once, unless it
    is in sync already; then it goes with the others.
    """
    had = [broker for broker in state.replicas if broker not in state.adding]
    in_sync_already = [broker for broker in state.adding if broker in state.isr]
    adding = tuple(broker for broker in wanted if broker not in had)
    removing = tuple(broker for broker in (*had, *in_sync_already) if broker not in wanted)
    replicas = (*wanted, *removing)
    if (replicas, adding, removing) == (state.replicas, state.adding, state.removing):
        return state
    return replace(
        state,
        replicas=replicas,
        adding=adding,
        removing=removing,
        leader_epoch=LeaderEpoch(state.leader_epoch + somebody_leaves(state, replicas)),
        partition_epoch=state.partition_epoch + 1,
    )


def cancelled(state: PartitionState, can_lead: Callable[[BrokerId], bool]) -> PartitionState:
    """The state with the replicas from before. `InvalidReplicaAssignment` if none of those is in sync."""
    replicas = tuple(broker for broker in state.replicas if broker not in state.adding)
    isr = tuple(broker for broker in state.isr if broker not in state.adding)
    if not isr:
        raise InvalidReplicaAssignment(
            f"of the replicas before the move, {list(replicas)}, none is in sync: to go back would lose messages"
        )
    leader = state.leader
    if leader in state.adding:
        heirs = [broker for broker in replicas if broker in isr and can_lead(broker)]
        if not heirs:
            raise InvalidReplicaAssignment(
                f"of the replicas before the move, {list(replicas)}, none that is in sync is up: try again when one is"
            )
        leader = heirs[0]
    leader_epoch = LeaderEpoch(state.leader_epoch + somebody_leaves(state, replicas))
    return PartitionState(leader, leader_epoch, isr, replicas, state.partition_epoch + 1)


def somebody_leaves(state: PartitionState, replicas: Sequence[BrokerId]) -> bool:
    """Whether a broker has no replica any more when these are the replicas."""
    return not set(state.replicas) <= set(replicas)


def is_complete(state: PartitionState, isr: Sequence[BrokerId]) -> bool:
    """Whether those who are to go may go, with `isr` in sync: as many stay in sync as there were before."""
    kept = [broker for broker in isr if broker not in state.removing]
    before = [broker for broker in isr if broker not in state.adding]
    are_here = all(broker in isr for broker in state.adding)
    return are_here and bool(kept) and len(kept) >= min(len(target(state)), len(before))
