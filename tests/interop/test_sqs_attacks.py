"""Attempts to get past the signatures of requests over HTTP, against a real broker."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from headrace.model import sigv4
from headrace.model.acls import AclOperation

from .secured import ACCOUNT, REGION, Key, SecuredBroker, SignedAnswer, secured_broker

WRONG = (403, "SignatureDoesNotMatch")
MISSING = (403, "MissingAuthenticationToken")
JSON = {"X-Amz-Target": "AmazonSQS.ListQueues", "Content-Type": "application/x-amz-json-1.0"}


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredBroker]:
    with secured_broker() as broker:
        for queue in ("work", "other"):
            broker.as_admin("CreateQueue", QueueName=queue)
        yield broker


@pytest.fixture(scope="module")
def bob(broker: SecuredBroker) -> Key:
    for queue in ("work", "other"):
        broker.allow("bob", AclOperation.ALL, queue)
    return broker.user("bob")


def outcome(answer: SignedAnswer) -> tuple[int, str]:
    return answer.status, answer.code


def host(broker: SecuredBroker) -> str:
    return urlsplit(broker.broker.http_url).netloc


def stamp(when: datetime) -> str:
    return when.strftime("%Y%m%dT%H%M%SZ")


def test_a_header_that_was_not_signed(broker: SecuredBroker, bob: Key) -> None:
    form = urlencode({"Action": "ListQueues"}).encode()
    assert outcome(broker.send(bob, {}, form)) == (200, "")
    for unsigned in (
        {"X-Amz-Target": "AmazonSQS.DeleteQueue"},
        {"X-Amz-Security-Token": "token"},
        {"x-amz-anything": "1"},
    ):
        assert outcome(broker.send(bob, {}, form, unsigned=unsigned)) == WRONG


def test_a_signed_header_that_was_replaced_or_removed(broker: SecuredBroker, bob: Key) -> None:
    given = {"Host": host(broker), **JSON}
    when = stamp(datetime.now(UTC))
    signed = sigv4.sign("POST", "/", given, b"{}", key_id=bob.id, secret=bob.secret, region=REGION, when=when)
    right = {**given, **signed}
    assert outcome(broker.raw("POST", "/", right, b"{}")) == (200, "")
    for name, value in (
        ("X-Amz-Target", "AmazonSQS.PurgeQueue"),
        ("Host", "elsewhere"),
        ("X-Amz-Date", when[:-2] + "0Z"),
    ):
        if right[name] != value:
            assert outcome(broker.raw("POST", "/", {**right, name: value}, b"{}")) == WRONG
    without = {name: value for name, value in right.items() if name != "X-Amz-Target"}
    assert outcome(broker.raw("POST", "/", without, b"{}")) == WRONG
    # A second header of the same name.
    assert outcome(broker.raw("POST", "/", {**right, "x-amz-target": "AmazonSQS.PurgeQueue"}, b"{}")) == WRONG


def test_a_host_that_was_not_signed(broker: SecuredBroker, bob: Key) -> None:
    when = stamp(datetime.now(UTC))
    names = {"x-amz-date": [when], "x-amz-target": ["AmazonSQS.ListQueues"]}
    scope = sigv4.scope_of(when[:8], REGION)
    payload = sha256(b"{}").hexdigest()
    canonical = sigv4.canonical_request("POST", "/", (), names, sorted(names), payload)
    authorization = (
        f"{sigv4.ALGORITHM} Credential={bob.id}/{scope}, SignedHeaders={';'.join(sorted(names))}, "
        f"Signature={sigv4.signature(bob.secret, when, scope, canonical)}"
    )
    answer = broker.raw("POST", "/", {**JSON, "X-Amz-Date": when, "Authorization": authorization}, b"{}")
    assert outcome(answer) == WRONG
    assert b"have to be signed: host" in answer.body


@pytest.mark.parametrize("payload", ["UNSIGNED-PAYLOAD", sha256(b"{}").hexdigest()])
def test_another_body_under_a_declared_hash(payload: str, broker: SecuredBroker, bob: Key) -> None:
    """The body is hashed, whatever X-Amz-Content-Sha256 says."""
    given = {"Host": host(broker), **JSON, "X-Amz-Content-Sha256": payload}
    when = stamp(datetime.now(UTC))
    signed = sigv4.sign("POST", "/", given, b"{}", key_id=bob.id, secret=bob.secret, region=REGION, when=when)
    assert outcome(broker.raw("POST", "/", {**given, **signed}, b"{}")) == (200, "")
    changed = b'{"QueueNamePrefix": "w"}'
    assert outcome(broker.raw("POST", "/", {**given, **signed}, changed)) == WRONG


@pytest.mark.parametrize(("minutes", "is_right"), [(-16, False), (-14, True), (14, True), (16, False)])
def test_a_replay_outside_of_the_window(minutes: int, is_right: bool, broker: SecuredBroker, bob: Key) -> None:
    when = datetime.now(UTC) + timedelta(minutes=minutes)
    assert outcome(broker.send(bob, JSON, b"{}", when=when)) == ((200, "") if is_right else WRONG)


def test_the_signature_of_another_key(broker: SecuredBroker, bob: Key) -> None:
    eve = broker.user("eve")
    assert outcome(broker.send(Key(bob.id, eve.secret), JSON, b"{}")) == WRONG
    given = {"Host": host(broker), **JSON}
    when = stamp(datetime.now(UTC))
    signed = sigv4.sign("POST", "/", given, b"{}", key_id=eve.id, secret=eve.secret, region=REGION, when=when)
    assert outcome(broker.raw("POST", "/", {**given, **signed}, b"{}")) == (200, "")
    signed["Authorization"] = signed["Authorization"].replace(eve.id, bob.id)
    assert outcome(broker.raw("POST", "/", {**given, **signed}, b"{}")) == WRONG


def test_two_signatures(broker: SecuredBroker, bob: Key) -> None:
    """A valid signature in the URL does not make a wrong one in the header right."""
    target = presigned(broker, bob, "work", Action="GetQueueAttributes")
    assert outcome(broker.raw("GET", target, {"Host": host(broker)})) == (200, "")
    forged = f"{sigv4.ALGORITHM} Credential={bob.id}/20260101/r/sqs/aws4_request, SignedHeaders=host, Signature=0"
    answer = broker.raw(
        "GET", target, {"Host": host(broker), "Authorization": forged, "X-Amz-Date": "20260101T000000Z"}
    )
    assert outcome(answer) == WRONG


def presigned(broker: SecuredBroker, key: Key, queue: str, expires: int = 60, **fields: str) -> str:
    url = f"{broker.broker.http_url}/{ACCOUNT}/{queue}?{urlencode(fields)}"
    request = AWSRequest(method="GET", url=url)
    SigV4QueryAuth(Credentials(key.id, key.secret), "sqs", REGION, expires=expires).add_auth(request)
    parts = urlsplit(request.prepare().url)
    return f"{parts.path}?{parts.query}"


def test_a_presigned_url_is_for_one_action_on_one_queue(broker: SecuredBroker, bob: Key) -> None:
    target = presigned(broker, bob, "work", Action="SendMessage", MessageBody="hello")
    given = {"Host": host(broker)}
    assert outcome(broker.raw("GET", target, given)) == (200, "")
    for changed in (
        target.replace("/work?", "/other?"),
        target.replace("SendMessage", "PurgeQueue"),
        target.replace("hello", "evil"),
        f"{target}&QueueUrl=http%3A%2F%2Fh%2F{ACCOUNT}%2Fother",
        f"{target}&MessageBody=evil",
        target.replace("X-Amz-Expires=60", "X-Amz-Expires=600000"),
    ):
        assert changed != target
        assert outcome(broker.raw("GET", changed, given)) == WRONG
    # A form with the URL, and another method.
    assert outcome(broker.raw("POST", target, given, b"MessageBody=evil")) == WRONG
    assert outcome(broker.raw("GET", target, {**given, "X-Amz-Target": "AmazonSQS.PurgeQueue"})) == WRONG


def test_a_presigned_url_ends_with_the_permission_of_its_signer(broker: SecuredBroker) -> None:
    frank = broker.user("frank")
    broker.allow("frank", AclOperation.WRITE, "work")
    target = presigned(broker, frank, "work", Action="SendMessage", MessageBody="hello")
    given = {"Host": host(broker)}
    assert outcome(broker.raw("GET", target, given)) == (200, "")
    broker.revoke("frank", AclOperation.WRITE, "work")
    assert outcome(broker.raw("GET", target, given)) == (403, "AccessDenied")


@pytest.mark.parametrize("expires", ["0", "-5", "604801", "x", ""])
def test_how_long_a_presigned_url_may_be_valid(expires: str, broker: SecuredBroker, bob: Key) -> None:
    target = presigned(broker, bob, "work", Action="GetQueueAttributes").replace(
        "X-Amz-Expires=60", f"X-Amz-Expires={expires}"
    )
    assert broker.raw("GET", target, {"Host": host(broker)}).status in (400, 403)


@pytest.mark.parametrize(
    "fields",
    [
        {"AWSAccessKeyId": "KEY", "SignatureVersion": "2", "SignatureMethod": "HmacSHA256", "Signature": "x"},
        {"AWSAccessKeyId": "KEY"},
    ],
)
def test_older_signatures_are_refused(fields: dict[str, Any], broker: SecuredBroker, bob: Key) -> None:
    form = {name: value.replace("KEY", bob.id) for name, value in fields.items()}
    body = urlencode({"Action": "ListQueues", **form}).encode()
    assert outcome(broker.raw("POST", "/", {"Host": host(broker)}, body)) == MISSING
    assert outcome(broker.raw("GET", f"/?{body.decode()}", {"Host": host(broker)})) == MISSING
    older = {"Host": host(broker), "Authorization": f"AWS {bob.id}:c2lnbmF0dXJl"}
    assert broker.raw("POST", "/", older, body).code == "IncompleteSignature"


def test_a_secret_of_the_setting_is_not_in_an_error(broker: SecuredBroker) -> None:
    answer = broker.send(Key("admin", "wrong"), JSON, b"{}")
    assert b"secret" not in answer.body.lower().replace(b"secret access key", b"")
