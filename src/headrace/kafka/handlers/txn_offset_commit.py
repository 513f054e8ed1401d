"""TxnOffsetCommit (28), versions 0-5: write a group's offsets, which take effect if the transaction commits.

- Before v5 the group must have been added with AddOffsetsToTxn; from v5 on (transaction version 2) this adds it.
- From v3 on the client names the member and generation for which it commits, and is refused as for OffsetCommit.
- Refused by the transaction's state: INVALID_TXN_STATE, TRANSACTION_ABORTABLE from v4 on; a producer that is not the
  current one is INVALID_PRODUCER_EPOCH. Partitions that do not exist are refused individually.
- Permissions: WRITE on the transactional id and READ on the group, else they are the error of every partition; READ on
  each topic, else its partitions are TOPIC_AUTHORIZATION_FAILED, whether or not it exists, and the rest is written.
"""

import asyncio
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.coordinator.result import Result
from headrace.groups.machine import Refused
from headrace.groups.offsets import Committer, OffsetCommit
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code
from headrace.kafka.forbidden_topics import forbidden_topics
from headrace.kafka.permissions import READ_GROUP, READ_TOPIC, WRITE_TRANSACTIONAL_ID
from headrace.kafka.transaction_requests import code_for_writing, joined, producer_of
from headrace.model.errors import HeadraceError, TransactionError
from headrace.model.ids import ProducerIdAndEpoch
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE
from headrace.runtime.deferred import Deferred

if TYPE_CHECKING:
    from kio.schema.txn_offset_commit.v5.request import TxnOffsetCommitRequest
    from kio.schema.txn_offset_commit.v5.response import TxnOffsetCommitResponse

KEY = 28
_ADDS_FROM = 5


@handles(KEY, 0, 5, needs=(WRITE_TRANSACTIONAL_ID, READ_GROUP, READ_TOPIC))
async def txn_offset_commit(ctx: Context, request: "TxnOffsetCommitRequest") -> "TxnOffsetCommitResponse":
    refused: Refused = {}
    problem = ErrorCode.none
    forbidden: frozenset[str] = frozenset()
    try:
        ctx.require(WRITE_TRANSACTIONAL_ID, request.transactional_id)
        ctx.require(READ_GROUP, request.group_id)
        forbidden = forbidden_topics(ctx, READ_TOPIC, (topic.name for topic in request.topics))
        if not forbidden or any(topic.name not in forbidden for topic in request.topics):
            refused = await _commit(ctx, request, forbidden)
    except TransactionError as error:
        problem = code_for_writing(error, knows_abortable=ctx.version >= 4, knows_concurrent=True)
    except HeadraceError as error:
        problem = error_code(error)
    image = ctx.services.metadata.image

    def outcome(topic: str, index: int) -> ErrorCode:
        if topic in forbidden:
            return ErrorCode.topic_authorization_failed
        if problem is not ErrorCode.none:
            return problem
        if not image.has_partition(topic, index):
            return ErrorCode.unknown_topic_or_partition
        error = refused.get((topic, index))
        return ErrorCode.none if error is None else error_code(error)

    schema = ctx.schema
    return make(
        schema.TxnOffsetCommitResponse,
        throttle_time=NO_THROTTLE,
        topics=tuple(
            make(
                schema.TxnOffsetCommitResponseTopic,
                name=topic.name,
                partitions=tuple(
                    make(
                        schema.TxnOffsetCommitResponsePartition,
                        partition_index=one.partition_index,
                        error_code=outcome(topic.name, one.partition_index),
                    )
                    for one in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


async def _commit(ctx: Context, request: "TxnOffsetCommitRequest", forbidden: frozenset[str]) -> Refused:
    producer, services = producer_of(request), ctx.services
    await services.groups.coordinator.ensure_topic()
    partition = services.groups.coordinator.shard(request.group_id).partition
    wanted = {producer: [partition]}
    async with joined(services, request.transactional_id, wanted, adds=ctx.version >= _ADDS_FROM) as problems:
        if problems:
            raise problems[partition.topic, partition.index]
        written = _write(ctx, request, producer, forbidden)
    return (await _until(written)).get()


def _write(
    ctx: Context, request: "TxnOffsetCommitRequest", producer: ProducerIdAndEpoch, forbidden: frozenset[str]
) -> Deferred[Result[Refused]]:
    image = ctx.services.metadata.image
    commits = [
        OffsetCommit(
            topic.name,
            one.partition_index,
            one.committed_offset,
            getattr(one, "committed_leader_epoch", -1),
            one.committed_metadata or "",
        )
        for topic in request.topics
        for one in topic.partitions
        if topic.name not in forbidden and image.has_partition(topic.name, one.partition_index)
    ]
    by = Committer(
        getattr(request, "member_id", ""),
        getattr(request, "group_instance_id", None),
        getattr(request, "generation_id", -1),
    )
    return ctx.services.groups.commit_in_transaction(
        request.group_id, by, commits, producer.producer_id, producer.epoch
    )


async def _until(written: Deferred[Result[Refused]]) -> Result[Refused]:
    done: asyncio.Future[Result[Refused]] = asyncio.get_running_loop().create_future()
    written.then(lambda result: None if done.done() else done.set_result(result))
    return await done
