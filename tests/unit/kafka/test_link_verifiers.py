"""What verifies passwords is given to a link with a permission, over TLS, and to nobody else."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import APIS, Context, Peer
from headrace.mirror.reports import AskVerifiers
from headrace.mirror.user_plan import SourceVerifiers
from headrace.model.errors import NotAuthorized
from headrace.model.image import Endpoint
from headrace.monitor.calls import AskTotals
from headrace.replication.calls import Call, encode_call, read_answer
from headrace.replication.peers import CLIENT_SOFTWARE
from headrace.runtime.deferred import Deferred
from headrace.security.authorizer import Authorizer
from headrace.security.sasl.scram import new_credential
from headrace.security.subject import Subject
from tests.unit.kafka.harness import Harness
from tests.unit.kafka.harness import broker as harness_of

ENVELOPE = 58
LINK = Subject("User:link", "127.0.0.1", "SCRAM-SHA-256")


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with harness_of(tmp_path) as made:
        made.services.security.authorizer = Authorizer((), super_users=("User:link",))
        made.run(made.services.access.put_credential("alice", new_credential("password")))
        yield made


def answer_to(harness: Harness, call: Call, subject: Subject = LINK, software: str = CLIENT_SOFTWARE) -> Any:
    header, request = harness.received(
        ENVELOPE,
        0,
        lambda schema: schema.EnvelopeRequest(
            request_data=encode_call(call), request_principal=None, client_host_address=b""
        ),
    )
    peer = Peer("10.1.2.3:5", Endpoint("seen", 1), f"{software} 1", subject=subject)

    async def run() -> Any:
        answer = APIS[ENVELOPE].handler(Context(header, peer, harness.services), request)
        if not isinstance(answer, Deferred):
            return answer
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.then(future.set_result)
        async with asyncio.timeout(60):
            return await future

    return harness.run(run())


def asked(harness: Harness, subject: Subject = LINK, known: str = "") -> SourceVerifiers:
    answer = answer_to(harness, AskVerifiers(known), subject)
    assert answer.error_code is ErrorCode.none
    return read_answer(answer.response_data, SourceVerifiers)


def test_a_link_with_the_permission_gets_them_once(harness: Harness) -> None:
    found = asked(harness)
    assert found.verifiers is not None
    assert [each.user for each in found.verifiers] == ["alice"]
    assert asked(harness, known=found.digest) == SourceVerifiers(found.digest)
    harness.run(harness.services.access.put_credential("alice", new_credential("another")))
    assert asked(harness, known=found.digest).verifiers is not None


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        (LINK._replace(principal="User:alice"), "User:alice needs the permission CLUSTER_ACTION"),
        (LINK._replace(principal="User:ANONYMOUS"), "has not logged in"),
        (LINK._replace(host="10.1.2.3"), "over TLS only"),
    ],
)
def test_others_get_a_refusal_in_words(harness: Harness, subject: Subject, words: str) -> None:
    with pytest.raises(NotAuthorized, match=words):
        asked(harness, subject)


def test_without_authorization_nobody_gets_them(harness: Harness) -> None:
    harness.services.security.authorizer = None
    with pytest.raises(NotAuthorized, match="authorization is off"):
        asked(harness)


def test_a_link_can_make_no_other_call_and_no_other_client_this_one(harness: Harness) -> None:
    refused = ErrorCode.cluster_authorization_failed
    assert answer_to(harness, AskTotals()).error_code is refused
    assert answer_to(harness, AskVerifiers(), software="librdkafka").error_code is refused
