"""InitProducerId (22), versions 0-6: an id and an epoch for a producer.

- Without a transactional id each request gets a new id with epoch 0, also one that names its current id and epoch
  (v3 and later), as in Kafka: the state of an idempotent producer is stored only in the partitions.
- With one, the epoch is bumped: the previous instance of the producer is fenced, and its open transaction is aborted
  before the answer. A client that names its id and epoch (v3 and later, KIP-360) gets the next epoch, the same one on a
  retry, and PRODUCER_FENCED if another instance came between (INVALID_PRODUCER_EPOCH before v4).
- An id without an epoch, an epoch without an id and an empty transactional id are INVALID_REQUEST; a timeout that is
  not within transaction.max.timeout.ms is INVALID_TRANSACTION_TIMEOUT.
- v6 is two-phase commit (KIP-939). Enable2Pc: the producer's transactions have no timeout, if
  transaction.two.phase.commit.enable is on, else TRANSACTIONAL_ID_AUTHORIZATION_FAILED. KeepPreparedTxn: an open
  transaction stays open; the answer has the new epoch to end it with, and the id and epoch that it was begun with.
- Permissions: WRITE on the transactional id, and TWO_PHASE_COMMIT on it for Enable2Pc. Without a transactional id:
  IDEMPOTENT_WRITE on the cluster, or WRITE on any topic, else CLUSTER_AUTHORIZATION_FAILED.
"""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.kafka.permissions import IDEMPOTENT_WRITE, TWO_PHASE_COMMIT, WRITE_TOPIC, WRITE_TRANSACTIONAL_ID
from headrace.kafka.transaction_requests import code_for
from headrace.model.errors import HeadraceError, ProtocolError, TwoPhaseCommitRefused
from headrace.model.ids import NO_PRODUCER, ProducerIdAndEpoch
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE, to_ms
from headrace.transactions.machine import ResumedProducer

if TYPE_CHECKING:
    from kio.schema.init_producer_id.v6.request import InitProducerIdRequest
    from kio.schema.init_producer_id.v6.response import InitProducerIdResponse

KEY = 22


@handles(KEY, 0, 6, needs=(WRITE_TRANSACTIONAL_ID, TWO_PHASE_COMMIT, IDEMPOTENT_WRITE, WRITE_TOPIC))
async def init_producer_id(ctx: Context, request: "InitProducerIdRequest") -> "InitProducerIdResponse":
    error, resumed = ErrorCode.none, ResumedProducer(NO_PRODUCER, NO_PRODUCER)
    try:
        resumed = await _init(ctx, request)
    except HeadraceError as failure:
        error = code_for(failure, knows_fenced=ctx.version >= 4)
    return make(
        ctx.schema.InitProducerIdResponse,
        throttle_time=NO_THROTTLE,
        error_code=error,
        producer_id=resumed.producer.producer_id,
        producer_epoch=resumed.producer.epoch,
        ongoing_txn_producer_id=resumed.ongoing.producer_id,
        ongoing_txn_producer_epoch=resumed.ongoing.epoch,
    )


async def _init(ctx: Context, request: "InitProducerIdRequest") -> ResumedProducer:
    two_phase = getattr(request, "enable2_pc", False)
    _check(ctx, request.transactional_id, two_phase=two_phase)
    claimed = ProducerIdAndEpoch(getattr(request, "producer_id", -1), getattr(request, "producer_epoch", -1))
    if (claimed.producer_id < 0 or claimed.epoch < 0) and claimed != NO_PRODUCER:
        raise ProtocolError("a producer id and an epoch come together, or not at all")
    if request.transactional_id is None:
        return ResumedProducer(ProducerIdAndEpoch(await ctx.services.producer_ids.next(), 0), NO_PRODUCER)
    if not request.transactional_id:
        raise ProtocolError("a transactional id may not be empty")
    if two_phase and not ctx.services.settings.transaction_two_phase_commit_enable:
        raise TwoPhaseCommitRefused("transaction.two.phase.commit.enable is off on this broker")
    claimed = NO_PRODUCER if claimed == NO_PRODUCER else claimed
    timeout_ms = to_ms(request.transaction_timeout)
    transactions = ctx.services.transactions
    if getattr(request, "keep_prepared_txn", False):
        return await transactions.resume(request.transactional_id, timeout_ms, claimed, two_phase=two_phase)
    producer = await transactions.init(request.transactional_id, timeout_ms, claimed, two_phase=two_phase)
    return ResumedProducer(producer, NO_PRODUCER)


def _check(ctx: Context, transactional_id: str | None, *, two_phase: bool) -> None:
    if transactional_id is not None:
        ctx.require(WRITE_TRANSACTIONAL_ID, transactional_id)
        if two_phase:
            ctx.require(TWO_PHASE_COMMIT, transactional_id)
    elif not ctx.shows(IDEMPOTENT_WRITE) and not _may_write_some_topic(ctx):
        ctx.require(IDEMPOTENT_WRITE)


def _may_write_some_topic(ctx: Context) -> bool:
    authorizer, subject = ctx.services.security.authorizer, ctx.peer.subject
    return authorizer is None or authorizer.allows_on_any(
        subject.principal, subject.host, WRITE_TOPIC.operation, WRITE_TOPIC.kind
    )
