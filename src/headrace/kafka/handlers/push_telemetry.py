"""PushTelemetry (72), version 0: metrics of a client, in OpenTelemetry's format (KIP-714).

In the order of the checks, with Kafka's codes:
- no client instance id, or a push after the last one (`terminating`): INVALID_REQUEST;
- before the push interval is over, unless it is the first push after GetTelemetrySubscriptions or the last one:
  THROTTLING_QUOTA_EXCEEDED;
- for a subscription that the client does not have any more: UNKNOWN_SUBSCRIPTION_ID. It asks for the new one at once;
- with an unknown codec: UNSUPPORTED_COMPRESSION_TYPE; more than `telemetry.max.bytes`: TELEMETRY_TOO_LARGE;
- metrics that cannot be decompressed or read, or that decompress to more than eight times `telemetry.max.bytes`:
  INVALID_RECORD.

Decompression is bounded and streamed, and runs on a thread, as reading does (`monitor/clients/otlp.py`). No permission
is needed, as in Kafka.
"""

import asyncio
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code
from headrace.kafka.permissions import NOTHING
from headrace.kafka.telemetry_clients import client_facts
from headrace.model.errors import (
    CorruptBatch,
    HeadraceError,
    InvalidMetrics,
    ProtocolError,
    TelemetryTooLarge,
    UnsupportedCodec,
)
from headrace.monitor.clients.otlp import PushedMetrics, read_metrics
from headrace.monitor.clients.subscriptions import is_known
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE
from headrace.records.compression import Codec, decompress

if TYPE_CHECKING:
    from kio.schema.push_telemetry.v0.request import PushTelemetryRequest
    from kio.schema.push_telemetry.v0.response import PushTelemetryResponse

KEY = 72
_MAX_RATIO = 8
"""How much more than `telemetry.max.bytes` a push may have when it is decompressed."""
_CODECS = frozenset(map(int, Codec))


@handles(KEY, 0, 0, needs=NOTHING)
async def push_telemetry(ctx: Context, request: "PushTelemetryRequest") -> "PushTelemetryResponse":
    error = ErrorCode.none
    try:
        await _push(ctx, request)
    except HeadraceError as failure:
        error = error_code(failure)
    ctx.services.clients.count(error.name.upper())
    return make(ctx.schema.PushTelemetryResponse, throttle_time=NO_THROTTLE, error_code=error)


async def _push(ctx: Context, request: "PushTelemetryRequest") -> None:
    services, instance_id = ctx.services, request.client_instance_id
    # The request refers to the frame, which is valid until the handler has ended.
    codec, most_bytes, data = int(request.compression_type), services.settings.telemetry_max_bytes, request.metrics
    if instance_id is None or not is_known(instance_id):
        raise ProtocolError("a push names the client instance id that the client was given")
    client = services.clients.check_push(
        instance_id,
        client_facts(ctx, instance_id),
        services.clock.monotonic_ms(),
        request.subscription_id,
        is_last=request.terminating,
    )
    if codec not in _CODECS:
        client.may_ask_at_once = True
        raise UnsupportedCodec(f"the codec {codec} is not known")
    if len(data) > most_bytes:
        raise TelemetryTooLarge(f"a push has {len(data)} bytes: telemetry.max.bytes={most_bytes} are accepted")
    loop = asyncio.get_running_loop()
    found = await loop.run_in_executor(services.workers, _read, codec, bytes(data), _MAX_RATIO * most_bytes)
    services.clients.pushed(client, found, len(data), is_last=request.terminating)


def _read(codec: int, data: bytes, most_bytes: int) -> PushedMetrics:
    try:
        return read_metrics(decompress(codec, data, most_bytes))
    except CorruptBatch as error:
        raise InvalidMetrics(f"the metrics cannot be decompressed: {error}") from None
