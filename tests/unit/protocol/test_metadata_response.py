"""Metadata responses are written as kio writes them, in every version."""

from io import BytesIO
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from headrace.protocol.codec import make, response_schema
from headrace.protocol.metadata_response import KEY, write_metadata_response
from headrace.protocol.units import NO_THROTTLE, from_ms

TOPIC_ID = UUID("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0")


def response(version: int, throttle_ms: int = 0) -> Any:
    schema: Any = response_schema(KEY, version)

    def partition(index: int, leader: int, isr: tuple[int, ...], offline: tuple[int, ...] = ()) -> Any:
        return make(
            schema.MetadataResponsePartition,
            error_code=ErrorCode.none if leader >= 0 else ErrorCode.leader_not_available,
            partition_index=index,
            leader_id=leader,
            leader_epoch=index + 7,
            replica_nodes=(1, 2, 3),
            isr_nodes=isr,
            offline_replicas=offline,
        )

    topics: list[Any] = [
        make(
            schema.MetadataResponseTopic,
            error_code=ErrorCode.none,
            name="orders-é",
            topic_id=TOPIC_ID,
            is_internal=True,
            partitions=(partition(0, 1, (1, 2, 3)), partition(1, -1, (), (1, 2, 3)), *[partition(2, 3, (3,))] * 200),
            topic_authorized_operations=3576,
        ),
        make(
            schema.MetadataResponseTopic,
            error_code=ErrorCode.unknown_topic_id,
            name=None if version >= 12 else "",
            topic_id=None,
            partitions=(),
        ),
    ]
    brokers: Any = tuple(
        make(schema.MetadataResponseBroker, node_id=node, host=f"host-{node}", port=9092, rack=rack)
        for node, rack in ((1, None), (2, "a"))
    )
    return make(
        schema.MetadataResponse,
        throttle_time=from_ms(throttle_ms) if throttle_ms else NO_THROTTLE,
        brokers=brokers,
        cluster_id="cluster" if version % 2 else None,
        controller_id=2,
        topics=tuple(topics),
        cluster_authorized_operations=264,
        error_code=ErrorCode.none,
    )


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("throttle_ms", [0, 1500])
def test_the_bytes_are_those_of_kio(version: int, throttle_ms: int) -> None:
    answer, expected, written = response(version, throttle_ms), BytesIO(), BytesIO()
    entity_writer(load_response_schema(KEY, version))(expected, answer)
    write_metadata_response(version)(written, answer)
    assert written.getvalue() == expected.getvalue()


@pytest.mark.parametrize("version", [1, 9])
def test_an_answer_without_topics(version: int) -> None:
    schema: Any = response_schema(KEY, version)
    answer: Any = make(
        schema.MetadataResponse, throttle_time=NO_THROTTLE, brokers=(), cluster_id=None, controller_id=-1, topics=()
    )
    expected, written = BytesIO(), BytesIO()
    entity_writer(load_response_schema(KEY, version))(expected, answer)
    write_metadata_response(version)(written, answer)
    assert written.getvalue() == expected.getvalue()
