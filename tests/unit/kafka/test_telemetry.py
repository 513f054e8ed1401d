"""GetTelemetrySubscriptions and PushTelemetry: Kafka's codes, in the order in which it checks, and the bounds."""

import gzip
from typing import Any
from uuid import UUID

import cramjam
import pytest
from kio.schema.errors import ErrorCode

from headrace.records.compression import Codec, compress
from tests.unit.monitor.clients.protobuf import counter, gauge, metrics_data

from .harness import Harness

GET, PUSH, ALTER = 71, 72, 44
DATA = metrics_data(gauge("connections", 2.0, node="1"), counter("sent", 5))


def subscribe(harness: Harness, **settings: str) -> None:
    def build(schema: Any) -> Any:
        configs = tuple(
            schema.AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
            for name, value in settings.items()
        )
        resource = schema.AlterConfigsResource(resource_type=16, resource_name="m", configs=configs)
        return schema.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)

    assert harness.call(ALTER, 1, build).responses[0].error_code is ErrorCode.none


def ask(harness: Harness, instance_id: UUID | None = None) -> Any:
    return harness.call(GET, 0, lambda schema: schema.GetTelemetrySubscriptionsRequest(client_instance_id=instance_id))


def push(harness: Harness, instance_id: UUID | None, data: bytes = DATA, **more: Any) -> ErrorCode:
    fields = {"subscription_id": 0, "terminating": False, "compression_type": 0, **more}
    answer = harness.call(
        PUSH,
        0,
        lambda schema: schema.PushTelemetryRequest(client_instance_id=instance_id, metrics=data, **fields),
    )
    assert isinstance(answer.error_code, ErrorCode)
    return answer.error_code


@pytest.fixture
def subscribed(harness: Harness) -> tuple[Harness, UUID, int]:
    """A client with a subscription."""
    subscribe(harness, metrics="*", interval_ms="1000")
    answer = ask(harness)
    return harness, answer.client_instance_id, answer.subscription_id


def test_without_a_subscription_no_metrics_are_requested(harness: Harness) -> None:
    answer = ask(harness)
    assert answer.error_code is ErrorCode.none
    assert answer.client_instance_id is not None
    assert answer.requested_metrics == ()
    assert answer.subscription_id == 0
    assert answer.push_interval.total_seconds() == 300
    assert ask(harness).client_instance_id != answer.client_instance_id
    assert ask(harness, answer.client_instance_id).error_code is ErrorCode.throttling_quota_exceeded


def test_a_subscription_that_matches(harness: Harness) -> None:
    subscribe(harness, metrics="org.apache.kafka", interval_ms="1000", match="client_id=te.*")
    answer = ask(harness)
    assert answer.requested_metrics == ("org.apache.kafka",)
    assert answer.push_interval.total_seconds() == 1
    assert answer.accepted_compression_types == (4, 3, 1, 2)
    assert answer.telemetry_max_bytes == 1024 * 1024
    assert answer.delta_temporality is True


@pytest.mark.parametrize("codec", list(Codec))
def test_metrics_are_stored(subscribed: tuple[Harness, UUID, int], codec: Codec) -> None:
    harness, instance_id, subscription_id = subscribed
    data = compress(codec, DATA)
    assert (
        push(harness, instance_id, data, subscription_id=subscription_id, compression_type=int(codec)) is ErrorCode.none
    )
    ((_, client),) = harness.services.clients.clients(0)
    assert client.values == {("connections", (("node", "1"),)): 2.0, ("sent", ()): 5.0}
    assert (client.facts.client_id, client.pushes, client.pushed_bytes) == ("test", 1, len(data))


def test_errors(subscribed: tuple[Harness, UUID, int]) -> None:
    harness, instance_id, subscription_id = subscribed
    given: dict[str, Any] = {"subscription_id": subscription_id}
    assert push(harness, None, **given) is ErrorCode.invalid_request
    assert push(harness, UUID(int=5), **given) is ErrorCode.unknown_subscription_id
    assert push(harness, instance_id, subscription_id=subscription_id + 1) is ErrorCode.unknown_subscription_id
    assert ask(harness, instance_id).error_code is ErrorCode.none  # at once
    assert push(harness, instance_id, **given) is ErrorCode.throttling_quota_exceeded
    last: dict[str, Any] = {**given, "terminating": True}
    assert push(harness, instance_id, compression_type=9, **last) is ErrorCode.unsupported_compression_type
    assert push(harness, instance_id, b"x" * (1024 * 1024 + 1), **last) is ErrorCode.telemetry_too_large
    assert push(harness, instance_id, b"\x0a\x05ab", **last) is ErrorCode.invalid_record
    assert push(harness, instance_id, **last) is ErrorCode.none
    assert push(harness, instance_id, **last) is ErrorCode.invalid_request
    assert harness.services.clients.pushes_by_result["NONE"] == 1


@pytest.mark.parametrize(
    ("codec", "bomb"),
    [
        (Codec.GZIP, gzip.compress(b"\0" * 100_000_000)),
        (Codec.ZSTD, bytes(cramjam.zstd.compress(b"\0" * 100_000_000))),
        (Codec.LZ4, compress(Codec.LZ4, b"\0" * 100_000_000)),
        (Codec.SNAPPY, compress(Codec.SNAPPY, b"\0" * 20_000_000)),
        (Codec.GZIP, b"no gzip"),
    ],
)
def test_decompression_bombs_are_refused(subscribed: tuple[Harness, UUID, int], codec: Codec, bomb: bytes) -> None:
    harness, instance_id, subscription_id = subscribed
    assert len(bomb) < 1024 * 1024
    given: dict[str, Any] = {"subscription_id": subscription_id, "compression_type": int(codec)}
    assert push(harness, instance_id, bomb, **given) is ErrorCode.invalid_record
    ((_, client),) = harness.services.clients.clients(0)
    assert client.values == {}
