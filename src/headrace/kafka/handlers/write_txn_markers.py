"""WriteTxnMarkers (27), versions 1-2: end transactions on partitions of this broker.

A coordinator sends it to the leaders of a transaction's partitions, and an administrator to abort a hanging transaction
without a coordinator. Answered when the markers are committed; those that are not after two seconds are
REQUEST_TIMED_OUT, so that one partition does not delay the others. The transaction version of v2 is ignored: a marker
of an older epoch is INVALID_PRODUCER_EPOCH in either.

Permissions: ALTER or CLUSTER_ACTION on the cluster, else CLUSTER_AUTHORIZATION_FAILED for each partition.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code
from headrace.kafka.permissions import ALTER_CLUSTER, CLUSTER_ACTION
from headrace.model.errors import HeadraceError
from headrace.model.ids import ProducerIdAndEpoch, TopicName
from headrace.protocol.codec import make
from headrace.records.markers import Marker
from headrace.runtime.deferred import Deferred

if TYPE_CHECKING:
    from kio.schema.write_txn_markers.v2.request import WriteTxnMarkersRequest
    from kio.schema.write_txn_markers.v2.response import WriteTxnMarkersResponse

KEY = 27
_PATIENCE_MS = 2_000
_Place = tuple[int, TopicName, int]
"""Position of the marker in the request, topic, partition."""


@handles(KEY, 1, 2, needs=(ALTER_CLUSTER, CLUSTER_ACTION))
def write_txn_markers(ctx: Context, request: "WriteTxnMarkersRequest") -> "Deferred[WriteTxnMarkersResponse]":
    answer: Deferred[WriteTxnMarkersResponse] = Deferred()
    codes: dict[_Place, ErrorCode] = {}
    places: list[_Place] = [
        (at, TopicName(topic.name), index)
        for at, marker in enumerate(request.markers)
        for topic in marker.topics
        for index in topic.partition_indexes
    ]

    if not (ctx.shows(ALTER_CLUSTER) or ctx.allows(CLUSTER_ACTION)):
        answer.resolve(_answer(ctx, request, dict.fromkeys(places, ErrorCode.cluster_authorization_failed)))
        return answer
    services, wanted = ctx.services, dict.fromkeys(places)

    def written(place: _Place, error: HeadraceError | None) -> None:
        codes[place] = ErrorCode.none if error is None else error_code(error)
        if len(codes) == len(wanted):
            services.expiries.remove(expired)
            answer.resolve(_answer(ctx, request, codes))

    def expired() -> None:
        late = dict.fromkeys(wanted, ErrorCode.request_timed_out)
        answer.resolve(_answer(ctx, request, {**late, **codes}))

    for at, topic, index in wanted:
        asked = request.markers[at]
        done = ctx.services.transactions.markers.write(
            (topic, index),
            ProducerIdAndEpoch(asked.producer_id, asked.producer_epoch),
            Marker(asked.transaction_result, asked.coordinator_epoch),
        )
        done.then(partial(written, (at, topic, index)))
    if not places:
        answer.resolve(_answer(ctx, request, codes))
    if not answer.done:
        services.expiries.add(services.clock.monotonic_ms() + _PATIENCE_MS, expired)
    return answer


def _answer(
    ctx: Context, request: "WriteTxnMarkersRequest", codes: Mapping[_Place, ErrorCode]
) -> "WriteTxnMarkersResponse":
    schema = ctx.schema
    return make(
        schema.WriteTxnMarkersResponse,
        markers=tuple(
            make(
                schema.WritableTxnMarkerResult,
                producer_id=marker.producer_id,
                topics=tuple(
                    make(
                        schema.WritableTxnMarkerTopicResult,
                        name=topic.name,
                        partitions=tuple(
                            make(
                                schema.WritableTxnMarkerPartitionResult,
                                partition_index=index,
                                error_code=codes[at, TopicName(topic.name), index],
                            )
                            for index in topic.partition_indexes
                        ),
                    )
                    for topic in marker.topics
                ),
            )
            for at, marker in enumerate(request.markers)
        ),
    )
