"""GetTelemetrySubscriptions (71), version 0: which of its metrics a client is to push, and how often (KIP-714).

- The first request has no client instance id, and is answered with a random one. The client names it from then on.
- The subscriptions of the cluster that match the client decide (`monitor/clients/subscriptions.py`). Without one no
  metrics are requested, and the client asks again after five minutes.
- Counters are pushed as deltas. Accepted are zstd, lz4, gzip and snappy, in this order of preference, and no
  compression; at most `telemetry.max.bytes`.
- A client that asks before its push interval is over gets THROTTLING_QUOTA_EXCEEDED, unless its last push was refused
  with UNKNOWN_SUBSCRIPTION_ID or UNSUPPORTED_COMPRESSION_TYPE.
- No permission is needed, as in Kafka.
"""

from typing import TYPE_CHECKING
from uuid import uuid4

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code
from headrace.kafka.permissions import NOTHING
from headrace.kafka.telemetry_clients import client_facts
from headrace.model.errors import TelemetryError
from headrace.monitor.clients.subscriptions import is_known
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE, from_ms
from headrace.records.compression import Codec

if TYPE_CHECKING:
    from kio.schema.get_telemetry_subscriptions.v0.request import GetTelemetrySubscriptionsRequest
    from kio.schema.get_telemetry_subscriptions.v0.response import GetTelemetrySubscriptionsResponse

KEY = 71
ACCEPTED = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)


@handles(KEY, 0, 0, needs=NOTHING)
def get_telemetry_subscriptions(
    ctx: Context, request: "GetTelemetrySubscriptionsRequest"
) -> "GetTelemetrySubscriptionsResponse":
    response, services = ctx.schema.GetTelemetrySubscriptionsResponse, ctx.services
    given = request.client_instance_id
    instance_id = given if given is not None and is_known(given) else uuid4()
    try:
        client = services.clients.ask(instance_id, client_facts(ctx, instance_id), services.clock.monotonic_ms())
    except TelemetryError as error:
        return make(
            response,
            throttle_time=NO_THROTTLE,
            error_code=error_code(error),
            client_instance_id=None,
            subscription_id=0,
            accepted_compression_types=(),
            push_interval=from_ms(0),
            telemetry_max_bytes=0,
            delta_temporality=False,
            requested_metrics=(),
        )
    return make(
        response,
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        client_instance_id=instance_id,
        subscription_id=client.subscription_id,
        accepted_compression_types=tuple(map(int, ACCEPTED)),
        push_interval=from_ms(client.wanted.interval_ms),
        telemetry_max_bytes=services.settings.telemetry_max_bytes,
        delta_temporality=True,
        requested_metrics=client.wanted.prefixes,
    )
