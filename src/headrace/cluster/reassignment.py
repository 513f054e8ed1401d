"""Partition reassignment, as Kafka does it (KIP-455). Pure: from one state to the next.

    replicas = the target replicas, then those being removed
    adding   = the target replicas that are new
    removing = the replicas being removed

During a reassignment every broker in `replicas` fetches, and every ISR member counts for acks. It completes when every
added replica is in the ISR and no fewer than before are in sync; then `removing` leave. It can be changed or cancelled
at any time. It never removes the last member of an ISR.

Removing a replica raises the leader epoch (invariant 36). A broker that has not seen its removal yet still fetches into
the log that it will delete on seeing it: if it were added again by then, that log would count as the new replica.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from headrace.model.errors import InvalidReplicaAssignment
from headrace.model.ids import BrokerId, LeaderEpoch
from headrace.model.image import PartitionState


def target(state: PartitionState) -> tuple[BrokerId, ...]:
    """The partition's replicas once the reassignment completes."""
    return tuple(broker for broker in state.replicas if broker not in state.removing)


def begun(state: PartitionState, wanted: Sequence[BrokerId]) -> PartitionState:
    """The state with a reassignment to `wanted` in progress; the same state if there is nothing to do.

    A new reassignment replaces a running one: a replica that only the old one added is dropped at once, unless it is in
    sync already; then it is removed with the others on completion.
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
        leader_epoch=LeaderEpoch(state.leader_epoch + removes_replica(state, replicas)),
        partition_epoch=state.partition_epoch + 1,
    )


def cancelled(state: PartitionState, can_lead: Callable[[BrokerId], bool]) -> PartitionState:
    """The state with the original replicas. `InvalidReplicaAssignment` if none of those is in sync."""
    replicas = tuple(broker for broker in state.replicas if broker not in state.adding)
    isr = tuple(broker for broker in state.isr if broker not in state.adding)
    if not isr:
        raise InvalidReplicaAssignment(
            f"none of the original replicas {list(replicas)} is in sync: cancelling would lose messages"
        )
    leader = state.leader
    if leader in state.adding:
        heirs = [broker for broker in replicas if broker in isr and can_lead(broker)]
        if not heirs:
            raise InvalidReplicaAssignment(
                f"none of the original replicas {list(replicas)} is both in sync and up: try again when one is"
            )
        leader = heirs[0]
    leader_epoch = LeaderEpoch(state.leader_epoch + removes_replica(state, replicas))
    return PartitionState(leader, leader_epoch, isr, replicas, state.partition_epoch + 1)


def removes_replica(state: PartitionState, replicas: Sequence[BrokerId]) -> bool:
    """True if a current replica is not among `replicas`."""
    return not set(state.replicas) <= set(replicas)


def is_complete(state: PartitionState, isr: Sequence[BrokerId]) -> bool:
    """True if, with this ISR, `removing` may leave: all of `adding` are in sync, and no fewer in all than before."""
    staying = [broker for broker in isr if broker not in state.removing]
    before = [broker for broker in isr if broker not in state.adding]
    are_added = all(broker in isr for broker in state.adding)
    return are_added and bool(staying) and len(staying) >= min(len(target(state)), len(before))
