"""AddPartitionsToTxn (24), versions 0-5: add the partitions that a transaction is about to write to.

- All or none: if one partition does not exist, the others get OPERATION_NOT_ATTEMPTED and nothing is added.
- v4 and later have many transactions per request, and may only verify that partitions are part of one (verify only), as
  a broker does before it appends: those that are not get TRANSACTION_ABORTABLE.
- Answered when the addition is committed: a marker will be written to each of these partitions, whatever happens.
- v4 and later are used between brokers: answers are in the order of the requests, so one transaction must not delay the
  others. It gets CONCURRENT_TRANSACTIONS at once while its predecessor is being completed, and
  COORDINATOR_NOT_AVAILABLE if the addition cannot be committed for a while. Earlier versions wait.
- Permissions: before v4 WRITE on the transactional id, and on each topic: one without it is TOPIC_AUTHORIZATION_FAILED,
  whether or not it exists, and so is an internal topic. v4 and later: CLUSTER_ACTION, since the broker that a client
  produces to has checked those; else the request is CLUSTER_AUTHORIZATION_FAILED.
"""

import asyncio
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias, cast

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.kafka.forbidden_topics import forbidden_topics
from headrace.kafka.permissions import CLUSTER_ACTION, WRITE_TOPIC, WRITE_TRANSACTIONAL_ID
from headrace.kafka.transaction_requests import code_for, producer_of
from headrace.model.errors import HeadraceError
from headrace.model.image import INTERNAL_TOPICS
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE
from headrace.transactions.records import Place

if TYPE_CHECKING:
    from kio.schema.add_partitions_to_txn.v3.request import AddPartitionsToTxnRequest as SingleRequest
    from kio.schema.add_partitions_to_txn.v3.request import AddPartitionsToTxnTopic as SingleTopic
    from kio.schema.add_partitions_to_txn.v5.request import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnTopic,
        AddPartitionsToTxnTransaction,
    )
    from kio.schema.add_partitions_to_txn.v5.response import AddPartitionsToTxnResponse, AddPartitionsToTxnTopicResult

_Topic: TypeAlias = "AddPartitionsToTxnTopic | SingleTopic"

KEY = 24
_BATCHED_FROM = 4
_BATCH_PATIENCE_S = 2.0


@handles(KEY, 0, 5, needs=(WRITE_TRANSACTIONAL_ID, WRITE_TOPIC, CLUSTER_ACTION))
async def add_partitions_to_txn(ctx: Context, request: "AddPartitionsToTxnRequest") -> "AddPartitionsToTxnResponse":
    schema = ctx.schema
    if ctx.version >= _BATCHED_FROM and not ctx.allows(CLUSTER_ACTION):
        return make(
            schema.AddPartitionsToTxnResponse,
            throttle_time=NO_THROTTLE,
            error_code=ErrorCode.cluster_authorization_failed,
            results_by_transaction=(),
        )
    if ctx.version >= _BATCHED_FROM:
        codes_of_each = await asyncio.gather(
            *(_add(ctx, asked, asked.topics, verify_only=asked.verify_only) for asked in request.transactions)
        )
        return make(
            schema.AddPartitionsToTxnResponse,
            throttle_time=NO_THROTTLE,
            error_code=ErrorCode.none,
            results_by_transaction=tuple(
                make(
                    schema.AddPartitionsToTxnResult,
                    transactional_id=asked.transactional_id,
                    topic_results=_topics(schema, asked.topics, codes),
                )
                for asked, codes in zip(request.transactions, codes_of_each, strict=True)
            ),
        )
    single = _Single(cast("SingleRequest", request))
    codes = _denied(ctx, single) or await _add(ctx, single, single.topics, verify_only=False)
    return make(
        schema.AddPartitionsToTxnResponse,
        throttle_time=NO_THROTTLE,
        results_by_topic_v3_and_below=_topics(schema, single.topics, codes),
    )


class _Single:
    """Adapts a request of an early version to the field names of a transaction in a later one."""

    def __init__(self, request: "SingleRequest") -> None:
        self.transactional_id = request.v3_and_below_transactional_id
        self.producer_id = request.v3_and_below_producer_id
        self.producer_epoch = request.v3_and_below_producer_epoch
        self.topics = request.v3_and_below_topics


def _denied(ctx: Context, asked: _Single) -> Mapping[Place, ErrorCode] | None:
    """Return the results for a client that lacks a permission; None if it may add all partitions."""
    if ctx.services.security.authorizer is None:
        return None
    places: list[Place] = [(topic.name, index) for topic in asked.topics for index in topic.partitions]
    if not ctx.allows(WRITE_TRANSACTIONAL_ID, asked.transactional_id):
        return dict.fromkeys(places, ErrorCode.transactional_id_authorization_failed)
    names = {topic.name for topic in asked.topics}
    forbidden = forbidden_topics(ctx, WRITE_TOPIC, names - INTERNAL_TOPICS) | (names & INTERNAL_TOPICS)
    if not forbidden:
        return None
    image = ctx.services.metadata.image

    def code(place: Place) -> ErrorCode:
        if place[0] in forbidden:
            return ErrorCode.topic_authorization_failed
        is_known = image.has_partition(*place)
        return ErrorCode.operation_not_attempted if is_known else ErrorCode.unknown_topic_or_partition

    return {place: code(place) for place in places}


async def _add(
    ctx: Context,
    asked: "AddPartitionsToTxnTransaction | _Single",
    topics: "Iterable[_Topic]",
    *,
    verify_only: bool,
) -> Mapping[Place, ErrorCode]:
    """Add or verify the partitions of one transaction; returns the result of each."""
    knows_fenced = ctx.version >= 2
    places: list[Place] = [(topic.name, index) for topic in topics for index in topic.partitions]
    transactions, image = ctx.services.transactions, ctx.services.metadata.image
    unknown = {place for place in places if not image.has_partition(*place)}
    try:
        producer = producer_of(asked)
        if verify_only:
            codes = {}
            for place in places:
                try:
                    transactions.verify(asked.transactional_id, producer, place)
                    codes[place] = ErrorCode.none
                except HeadraceError as error:
                    codes[place] = code_for(error)
            return codes
        if unknown:
            return {
                place: ErrorCode.unknown_topic_or_partition if place in unknown else ErrorCode.operation_not_attempted
                for place in places
            }
        mirrored = {topic for topic, _ in places if image.read_only_mirror(topic) is not None}
        if mirrored:
            return {
                place: ErrorCode.policy_violation if place[0] in mirrored else ErrorCode.operation_not_attempted
                for place in places
            }
        if ctx.version < _BATCHED_FROM:
            await transactions.add(asked.transactional_id, producer, places)
        else:
            async with asyncio.timeout(_BATCH_PATIENCE_S):
                await transactions.add(asked.transactional_id, producer, places, patient=False)
    except TimeoutError:
        return dict.fromkeys(places, ErrorCode.coordinator_not_available)
    except HeadraceError as error:
        return dict.fromkeys(places, code_for(error, knows_fenced=knows_fenced))
    return dict.fromkeys(places, ErrorCode.none)


def _topics(
    schema: ModuleType, topics: "Iterable[_Topic]", codes: Mapping[Place, ErrorCode]
) -> "tuple[AddPartitionsToTxnTopicResult, ...]":
    return tuple(
        make(
            schema.AddPartitionsToTxnTopicResult,
            name=topic.name,
            results_by_partition=tuple(
                make(
                    schema.AddPartitionsToTxnPartitionResult,
                    partition_index=index,
                    partition_error_code=codes[topic.name, index],
                )
                for index in topic.partitions
            ),
        )
        for topic in topics
    )
