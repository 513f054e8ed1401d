"""Fetch (1), versions 4-18: bytes from the log to the socket, never decoded.

- A request that repeats an earlier one of its connection may be answered by `quick_fetch.py`, without coming here.
- Long polling: an answer with less than min bytes waits for data or for max wait, whichever is first, without polling:
  partitions notify the fetch when their high watermark advances.
- max bytes never starves: the first batch is returned even if it is larger. Partitions take turns across requests of a
  session.
- A fetch into the middle of a batch returns the whole batch, and the last batch is whole, too: a client would discard
  one that is cut off, and fetch it again.
- read_committed stops at the last stable offset and carries the list of aborted transactions.
- Fetch sessions: see `fetch_sessions.py`. From v13 on topics are named by id.
- A client whose last fetched epoch diverges from the log gets the offset of the divergence (v12 on).
- Consumers are served by the leader, and from v11 on by followers, too, up to the follower's high watermark. A leader
  redirects a consumer to a follower in its rack (KIP-392).
- Replicas (replica id ≥ 0) are served up to the end of the log, and woken when it grows. A replica's fetch offset
  reports how far it is, once its leader epoch, its history and its broker epoch (v15 on) have been checked. A client
  that claims to be a replica and is not one is refused.
- A broker that does not lead answers NOT_LEADER_OR_FOLLOWER, from v12 on with the leader's id, from v16 on also with
  its endpoint (KIP-951).
- Records whose key was shredded are POLICY_VIOLATION, and encrypted batches that were changed CORRUPT_MESSAGE: clients
  do not retry these. Records whose key this broker lacks are KAFKA_STORAGE_ERROR, which they do.
- A request of a session ends the wait of the previous one.
- A consumer that exceeds its quota consumer_byte_rate gets an empty answer, and is then delayed; replicas have none.
- Permissions: READ on each topic of the request and of its session, else TOPIC_AUTHORIZATION_FAILED; a forbidden topic
  is not looked up by name, an unknown id is UNKNOWN_TOPIC_ID. They are checked at each request, and again when it has
  waited. A replica needs CLUSTER_ACTION on the cluster instead, else TOPIC_AUTHORIZATION_FAILED.
"""

from typing import TYPE_CHECKING, cast

from kio.schema.errors import ErrorCode

from headrace.kafka.consumer_fetch import FetchingConsumer
from headrace.kafka.dispatch import Answer, Context, handles
from headrace.kafka.errors import error_code
from headrace.kafka.fetch import Fetch, FetchClient, answer_with
from headrace.kafka.fetch_sessions import NO_SESSION
from headrace.kafka.permissions import CLUSTER_ACTION, READ_TOPIC
from headrace.kafka.replica_fetch import FetchingReplica
from headrace.model.errors import HeadraceError
from headrace.model.ids import BrokerId
from headrace.protocol.fast import FETCH_TOPIC_IDS_FROM, FetchedPartition
from headrace.runtime.deferred import Deferred

if TYPE_CHECKING:
    from kio.schema.fetch.v14.request import FetchRequest as EarlyFetchRequest
    from kio.schema.fetch.v18.request import FetchRequest, ReplicaState

KEY = 1


@handles(KEY, 4, 18, needs=(READ_TOPIC, CLUSTER_ACTION))
def fetch(ctx: Context, request: "FetchRequest") -> Answer | Deferred[Answer]:
    by_id = ctx.version >= FETCH_TOPIC_IDS_FROM
    services = ctx.services
    replica_id, replica_epoch = _replica(request)
    try:
        plan = services.fetch_sessions.plan(
            request, by_id=by_id, now_ms=services.clock.monotonic_ms(), is_replica=replica_id >= 0
        )
    except HeadraceError as error:
        return answer_with(ctx, (), error=error_code(error), session_id=NO_SESSION)
    if replica_id >= 0 and (refusal := _refusal(ctx, replica_id, replica_epoch)) is not None:
        refused = [(key, FetchedPartition(key.partition, refusal.value)) for key, _ in plan.wanted]
        return answer_with(
            ctx, refused, error=refusal if plan.is_incremental else ErrorCode.none, session_id=NO_SESSION
        )
    if plan.session is not None and plan.session.waiting is not None:
        plan.session.waiting()
    client: FetchClient
    if replica_id < 0:
        client = FetchingConsumer(ctx, request, plan)
    else:
        client = FetchingReplica(ctx, plan, BrokerId(replica_id), replica_epoch)
    return Fetch(ctx, request, plan, client).run()


def _refusal(ctx: Context, replica_id: int, replica_epoch: int) -> ErrorCode | None:
    """Return the error for a client that claims to be a replica but is not a current one or lacks the permission."""
    if not ctx.allows(CLUSTER_ACTION):
        return ErrorCode.topic_authorization_failed
    metadata = ctx.services.metadata
    broker = metadata.image.brokers.get(BrokerId(replica_id))
    if broker is None or replica_id == metadata.broker_id or replica_epoch < 0:
        return ErrorCode.cluster_authorization_failed
    # With a newer epoch than in the image its offsets count, but it cannot join the ISR before the image has the epoch.
    return ErrorCode.stale_broker_epoch if replica_epoch < broker.epoch else None


def _replica(request: "FetchRequest") -> tuple[int, int]:
    """Replica id and broker epoch, -1 each where there is none."""
    state: ReplicaState | None = getattr(request, "replica_state", None)
    return (
        (cast("EarlyFetchRequest", request).replica_id, -1)
        if state is None
        else (state.replica_id, state.replica_epoch)
    )
