"""Envelope: how brokers call each other, and nobody else calls them."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from kio.schema.errors import ErrorCode

from headrace.kafka.audit_topic import AuditCall
from headrace.kafka.dispatch import APIS, Context, Peer
from headrace.model.errors import NotCoordinator, NotLeader, PeerUnavailable, UnknownQueue
from headrace.model.image import Endpoint
from headrace.model.queue_state import StateChangesPage, StatePosition
from headrace.monitor.calls import AskGroup, AskTotals
from headrace.monitor.snapshots import BrokerTotals
from headrace.protocol.codec import RequestHeader
from headrace.queues.api import QueueEdit
from headrace.queues.remote import CountCall
from headrace.replication.calls import call_name, encode_call, read_answer
from headrace.replication.link_calls import AskQueueState
from headrace.replication.peers import BROKER_SOFTWARE, CLIENT_SOFTWARE
from headrace.runtime.deferred import Deferred
from tests.unit.kafka.harness import Harness
from tests.unit.kafka.harness import broker as harness_of

ENVELOPE, API_VERSIONS = 58, 18


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with harness_of(tmp_path) as made:
        yield made


def envelope(harness: Harness, data: bytes, software: str) -> Any:
    header, request = harness.received(
        ENVELOPE,
        0,
        lambda schema: schema.EnvelopeRequest(request_data=data, request_principal=None, client_host_address=b""),
    )

    async def run() -> Any:
        answer = APIS[ENVELOPE].handler(_context(header, harness, software), request)
        if not isinstance(answer, Deferred):
            return answer
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.then(future.set_result)
        async with asyncio.timeout(60):
            return await future

    return harness.run(run())


def _context(header: RequestHeader, harness: Harness, software: str) -> Context:
    return Context(header, Peer("10.1.2.3:5", Endpoint("seen", 1), software), harness.services)


def test_brokers_call_each_other(harness: Harness) -> None:
    answer = envelope(harness, encode_call(CountCall("none")), f"{BROKER_SOFTWARE} 1")
    assert answer.error_code is ErrorCode.none
    with pytest.raises(NotLeader, match="there is no queue none, or not yet"):
        read_answer(answer.response_data, int)


@pytest.mark.parametrize("software", ["unknown", "headrace 1", "librdkafka 2", f"{BROKER_SOFTWARE}2 1"])
def test_nobody_else_does(harness: Harness, software: str) -> None:
    answer = envelope(harness, encode_call(CountCall("none")), software)
    assert (answer.error_code, answer.response_data) == (ErrorCode.cluster_authorization_failed, None)


@pytest.mark.parametrize("data", [b"", b"\xff" * 20, b"\x91\xa5Count", b"\x92\xa9NoSuchCall\x01"])
def test_what_is_no_call_does_no_harm(harness: Harness, data: bytes) -> None:
    answer = envelope(harness, data, f"{BROKER_SOFTWARE} 1")
    assert answer.error_code is not ErrorCode.none or answer.response_data is not None


def test_a_call_of_a_newer_version_is_refused_so_that_the_caller_goes_on_without_an_answer(harness: Harness) -> None:
    answer = envelope(harness, b"\x92\xaaNoSuchCall\x01", f"{BROKER_SOFTWARE} 1")
    with pytest.raises(PeerUnavailable, match="unknown here: NoSuchCall"):
        read_answer(answer.response_data, int)


def test_every_call_has_a_service_and_its_name_is_read_from_its_bytes(harness: Harness) -> None:
    for call in (CountCall("none"), AskTotals(), AskGroup("g" * 300), AuditCall([])):
        assert call_name(encode_call(call)) == type(call).__name__
    answer = envelope(harness, encode_call(AskTotals()), f"{BROKER_SOFTWARE} 1")
    assert read_answer(answer.response_data, BrokerTotals).leaders == 0


@pytest.mark.parametrize(
    ("software", "is_told"), [(BROKER_SOFTWARE, True), (CLIENT_SOFTWARE, True), ("headrace", False)]
)
def test_it_is_told_to_brokers_and_links_only(harness: Harness, software: str, is_told: bool) -> None:
    header, request = harness.received(
        API_VERSIONS,
        3,
        lambda schema: schema.ApiVersionsRequest(client_software_name=software, client_software_version="1"),
    )
    answer: Any = APIS[API_VERSIONS].handler(_context(header, harness, "unknown"), request)
    assert (ENVELOPE in {api.api_key for api in answer.api_keys}) is is_told


@pytest.mark.parametrize("software", [f"{CLIENT_SOFTWARE} 1", "unknown"])
def test_a_link_asks_for_the_state_of_a_queue_and_for_nothing_else(harness: Harness, software: str) -> None:
    made = harness.run(harness.services.queues.create("jobs", QueueEdit()))
    asked = AskQueueState("jobs", UUID(made.topic_id), StatePosition())
    answer = envelope(harness, encode_call(asked), software)
    with pytest.raises(NotCoordinator):  # The store of the state, which the harness does not start.
        read_answer(answer.response_data, StateChangesPage)
    for other in (
        AskQueueState("none", UUID(made.topic_id), StatePosition()),
        AskQueueState("jobs", uuid4(), StatePosition()),
    ):
        answer = envelope(harness, encode_call(other), software)
        with pytest.raises(UnknownQueue):
            read_answer(answer.response_data, StateChangesPage)
    answer = envelope(harness, b"\x92\xadAskQueueState\xa4jobs", software)
    with pytest.raises(PeerUnavailable, match="unknown here"):
        read_answer(answer.response_data, StateChangesPage)
    answer = envelope(harness, encode_call(CountCall("jobs")), software)
    assert answer.error_code is ErrorCode.cluster_authorization_failed
