"""Requests that are made for a person: with that person's permissions, and only those of the table."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headrace.kafka.forwarded_calls import FORWARDED, ForwardedCall, ForwardedCalls, serve_forwarded
from headrace.model.acls import Acl, AclOperation, PatternType, Permission, ResourceType
from headrace.model.errors import PeerUnavailable, ProtocolError
from headrace.protocol.client_codec import read_response, read_response_header, request_schema, write_request
from headrace.protocol.codec import make
from headrace.protocol.units import from_ms
from headrace.replication.calls import encode_call, read_answer
from headrace.security.authorizer import Authorizer
from headrace.security.subject import Subject
from tests.unit.kafka.harness import Harness
from tests.unit.kafka.harness import broker as harness_of

BOB = Subject("User:bob", "10.0.0.7", "BASIC", "https")
LIST_OFFSETS, CREATE_TOPICS, SASL_AUTHENTICATE, ENVELOPE = 2, 19, 36, 58


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with harness_of(tmp_path) as made:
        yield made


def allow(harness: Harness, operation: AclOperation, topic: str) -> None:
    rule = Acl(ResourceType.TOPIC, PatternType.LITERAL, topic, BOB.principal, "10.0.0.0/8", operation, Permission.ALLOW)
    harness.services.security.authorizer = Authorizer({rule}, super_users=())


def create_request(name: str) -> Any:
    schema = request_schema(CREATE_TOPICS, 7)
    topic: Any = make(
        schema.CreatableTopic, name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()
    )
    return make(schema.CreateTopicsRequest, topics=(topic,), timeout=from_ms(1000), validate_only=True)


def test_the_permissions_are_those_of_the_person(harness: Harness) -> None:
    allow(harness, AclOperation.CREATE, "orders")
    calls = ForwardedCalls(harness.services, None)

    def create(subject: Subject, name: str) -> ErrorCode:
        (result,) = harness.run(calls.call(subject, create_request(name))).topics
        return ErrorCode(result.error_code)

    assert create(BOB, "orders") is ErrorCode.none
    assert create(BOB, "others") is ErrorCode.topic_authorization_failed
    assert create(BOB._replace(host="192.168.1.1"), "orders") is ErrorCode.topic_authorization_failed
    assert create(Subject("User:eve", "10.0.0.7"), "orders") is ErrorCode.topic_authorization_failed


def test_the_call_of_another_broker_has_the_same_permissions(harness: Harness) -> None:
    allow(harness, AclOperation.CREATE, "orders")

    def served(name: str) -> ErrorCode:
        call = encode_call(ForwardedCall(write_request(create_request(name), 0, "dashboard"), *BOB))
        frame = read_answer(harness.run(serve_forwarded(harness.services, call)), bytes)
        _, body_at = read_response_header(CREATE_TOPICS, 7, frame)
        (result,) = read_response(CREATE_TOPICS, 7, frame, body_at).topics
        return ErrorCode(result.error_code)

    assert served("orders") is ErrorCode.none
    assert served("others") is ErrorCode.topic_authorization_failed


def test_a_denial_is_in_the_audit_log_of_the_person(harness: Harness) -> None:
    denied: list[Any] = []
    harness.services.security.on_denied = [denied.append]
    allow(harness, AclOperation.CREATE, "orders")
    harness.run(ForwardedCalls(harness.services, None).call(BOB, create_request("others")))
    (denial,) = denied
    assert (denial.subject, denial.client_id, denial.action) == (BOB, "dashboard", "CreateTopics")


@pytest.mark.parametrize("key", [SASL_AUTHENTICATE, ENVELOPE, 11, 12, 18, 27])
def test_other_requests_are_not_forwarded(harness: Harness, key: int) -> None:
    assert key not in FORWARDED
    frame = key.to_bytes(2, "big") + b"\x00\x00\x00\x00\x00\x07\xff\xff"
    answer = harness.run(serve_forwarded(harness.services, encode_call(ForwardedCall(frame, *BOB))))
    with pytest.raises(ProtocolError, match="not forwarded"):
        read_answer(answer, bytes)


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x13\x00\x07" + b"\xff" * 40])
def test_what_is_no_request_does_no_harm(harness: Harness, data: bytes) -> None:
    answer = harness.run(serve_forwarded(harness.services, encode_call(ForwardedCall(data, *BOB))))
    with pytest.raises(ProtocolError):
        read_answer(answer, bytes)


def test_a_broker_that_is_down_is_an_error_at_once(harness: Harness) -> None:
    async def run() -> None:
        async with asyncio.timeout(5):
            await ForwardedCalls(harness.services, None).call(BOB, create_request("orders"), broker_id=9)

    with pytest.raises(PeerUnavailable, match="broker 9 is down"):
        harness.run(run())
