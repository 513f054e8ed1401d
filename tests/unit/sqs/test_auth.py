"""Signatures, compared with those of botocore."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import botocore.auth
import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from headrace.model import sigv4
from headrace.sqs import auth
from headrace.sqs.errors import SqsError

from .fake import Client, run

NOW = datetime(2026, 1, 31, 23, 55, 0, tzinfo=UTC)
KEYS = {"AKIDEXAMPLE": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "other": "secret"}
BODY = b'{"QueueUrl": "http://localhost:9324/000000000000/work", "MessageBody": "hello"}'


@pytest.fixture(autouse=True)
def _the_time_of_botocore(monkeypatch: pytest.MonkeyPatch) -> None:
    class Now(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return NOW if tz is not None else NOW.replace(tzinfo=None)

        @classmethod
        def utcnow(cls) -> Any:
            return NOW.replace(tzinfo=None)

    if hasattr(botocore.auth, "get_current_datetime"):
        monkeypatch.setattr(
            botocore.auth,
            "get_current_datetime",
            lambda remove_tzinfo=True: NOW.replace(tzinfo=None) if remove_tzinfo else NOW,
        )
    else:
        monkeypatch.setattr(botocore.auth.datetime, "datetime", Now)


def signed(
    method: str = "POST",
    url: str = "http://localhost:9324/",
    body: bytes = BODY,
    headers: dict[str, str] | None = None,
    key_id: str = "AKIDEXAMPLE",
    secret: str | None = None,
    token: str | None = None,
    region: str = "eu-west-1",
    service: str = "sqs",
    make: Callable[..., Any] = SigV4Auth,
) -> auth.SignedRequest:
    """A request that botocore has signed, as it arrives."""
    given = {"X-Amz-Target": "AmazonSQS.SendMessage"} if headers is None else headers
    request = AWSRequest(method=method, url=url, data=body, headers=given)
    make(Credentials(key_id, secret or KEYS[key_id], token), service, region).add_auth(request)
    prepared = request.prepare()
    parts = urlsplit(prepared.url)
    arrived = {name.lower(): [_text(value)] for name, value in prepared.headers.items()}
    arrived.setdefault("host", [parts.netloc])
    return auth.SignedRequest(method, parts.path, sigv4.query_pairs(parts.query), arrived)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def verify(request: auth.SignedRequest, body: bytes = BODY, now: datetime = NOW) -> str:
    return auth.verify(request, body, KEYS.get, now.timestamp())


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"key_id": "other"},
        {"url": "http://localhost:9324/000000000000/my%20queue~a"},
        {
            "url": "http://localhost:9324/?Action=ListQueues&Version=2012-11-05&QueueNamePrefix=a%2Fb%20c&x=",
            "headers": {},
        },
        {"headers": {"X-Amz-Target": "AmazonSQS.ListQueues", "X-Odd": "  two   spaces  ", "Content-Type": "text/x"}},
        {"token": "a session's token"},
    ],
)
def test_what_botocore_signs_is_right(arguments: dict[str, Any]) -> None:
    assert verify(signed(**arguments)) == arguments.get("key_id", "AKIDEXAMPLE")


def test_a_url_that_was_signed_ahead() -> None:
    url = "http://localhost:9324/000000000000/work?Action=ReceiveMessage&MaxNumberOfMessages=1"

    def make(*arguments: Any) -> SigV4QueryAuth:
        return SigV4QueryAuth(*arguments, expires=600)

    request = signed("GET", url, b"", {}, make=make)
    assert verify(request, b"", NOW + timedelta(seconds=599)) == "AKIDEXAMPLE"
    with pytest.raises(SqsError, match="Signature expired"):
        verify(request, b"", NOW + timedelta(seconds=601))
    changed = [(name, "2" if name == "MaxNumberOfMessages" else value) for name, value in request.query]
    with pytest.raises(SqsError, match="does not match"):
        verify(auth.SignedRequest("GET", request.path, changed, request.headers), b"")


@pytest.mark.parametrize("minutes", [-14, 14])
def test_a_clock_may_be_a_little_wrong(minutes: int) -> None:
    assert verify(signed(), now=NOW + timedelta(minutes=minutes))


@pytest.mark.parametrize(("minutes", "words"), [(16, "Signature expired"), (-16, "not yet current")])
def test_an_old_signature_is_refused(minutes: int, words: str) -> None:
    with pytest.raises(SqsError, match=words) as caught:
        verify(signed(), now=NOW + timedelta(minutes=minutes))
    assert (caught.value.status, caught.value.code) == (403, "SignatureDoesNotMatch")


def test_what_was_changed_on_the_way_is_refused() -> None:
    request = signed()
    for changed, body in (
        (request, BODY + b" "),
        (auth.SignedRequest("GET", request.path, request.query, request.headers), BODY),
        (auth.SignedRequest("POST", "/elsewhere", request.query, request.headers), BODY),
        (auth.SignedRequest("POST", "/", [("Action", "DeleteQueue")], request.headers), BODY),
        (auth.SignedRequest("POST", "/", (), {**request.headers, "x-amz-target": ["AmazonSQS.PurgeQueue"]}), BODY),
        (auth.SignedRequest("POST", "/", (), {**request.headers, "host": ["elsewhere"]}), BODY),
    ):
        with pytest.raises(SqsError, match="does not match"):
            verify(changed, body)


def test_the_parts_of_the_header_come_in_any_order() -> None:
    request = signed()
    (header,) = request.headers["authorization"]
    algorithm, _, rest = header.partition(" ")
    parts = [part.strip() for part in rest.split(",")]
    assert [part.partition("=")[0] for part in parts] == ["Credential", "SignedHeaders", "Signature"]
    for text in (
        f"{algorithm} {','.join(parts)}",
        f"{algorithm} {', '.join(reversed(parts))}",
        f"{algorithm} {' , '.join(parts)}",
        f"{algorithm} {', '.join(parts)}, Later=x",
        f"{algorithm} Signature=00, {', '.join(parts)}",
    ):
        assert verify(request._replace(headers={**request.headers, "authorization": [text]})) == "AKIDEXAMPLE", text
    for text in (
        f"{algorithm} {', '.join(parts)}0",
        f"{algorithm} {', '.join(parts)}, Signature=00",
        f"{algorithm} {', '.join(parts)}, Signature=",
        f"AWS3 {', '.join(parts)}",
    ):
        with pytest.raises(SqsError):
            verify(request._replace(headers={**request.headers, "authorization": [text]}))


def test_headers_that_decide_have_to_be_signed() -> None:
    request = signed(headers={})
    added = auth.SignedRequest("POST", "/", (), {**request.headers, "x-amz-target": ["AmazonSQS.PurgeQueue"]})
    with pytest.raises(SqsError, match="have to be signed: x-amz-target"):
        verify(added)


def test_a_wrong_secret_an_unknown_key_another_service() -> None:
    with pytest.raises(SqsError) as caught:
        verify(signed(secret="wrong"))
    assert (caught.value.status, caught.value.code) == (403, "SignatureDoesNotMatch")
    with pytest.raises(SqsError) as caught:
        verify(signed(key_id="nobody", secret="x"))
    assert (caught.value.status, caught.value.code) == (403, "InvalidClientTokenId")
    with pytest.raises(SqsError, match="correct service"):
        verify(signed(service="s3"))


@pytest.mark.parametrize(
    ("authorization", "code"),
    [
        ("Basic YTpi", "IncompleteSignature"),
        ("AWS4-HMAC-SHA256 nonsense", "IncompleteSignature"),
        ("AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host, Signature=0", "IncompleteSignature"),
        ("AWS4-HMAC-SHA256 Credential=a/20260131/r/sqs/aws4_request, SignedHeaders=host", "IncompleteSignature"),
        (
            "AWS4-HMAC-SHA256 Credential=a/20260131/r/sqs/aws4_request, SignedHeaders=host, Signature=\u20ac",
            "SignatureDoesNotMatch",
        ),
    ],
)
def test_half_a_signature(authorization: str, code: str) -> None:
    with pytest.raises(SqsError) as caught:
        verify(auth.SignedRequest("POST", "/", (), {"host": ["h"], "authorization": [authorization]}))
    assert caught.value.code == code


def test_ours_is_theirs() -> None:
    headers = {"Host": "localhost:9324", "X-Amz-Target": "Headrace.Receive", "Content-Type": "application/x-msgpack"}
    added = sigv4.sign(
        "POST", "/", headers, BODY, key_id="other", secret="secret", region="us-east-1", when="20260131T235500Z"
    )
    arrived = {name.lower(): [value] for name, value in {**headers, **added}.items()}
    assert verify(auth.SignedRequest("POST", "/", (), arrived)) == "other"


def test_an_endpoint_with_keys_accepts_signed_requests() -> None:
    async def test(client: Client) -> None:
        refused = await client.json("ListQueues")
        assert refused.error == (403, "MissingAuthenticationToken", "Request is missing Authentication Token")
        headers = {"Host": "queues.test:9324", "X-Amz-Target": "AmazonSQS.ListQueues"}
        client.now_ms = int(NOW.timestamp() * 1000)
        added = sigv4.sign(
            "POST", "/", headers, b"{}", key_id="other", secret="secret", region="r", when="20260131T235500Z"
        )
        assert (await client.request("POST", "/", {**headers, **added}, b"{}")).json == {}
        assert (await client.request("POST", "/", {**headers, **added}, b"{ }")).error[1] == "SignatureDoesNotMatch"
        target = {"X-Amz-Target": "Headrace.ListQueues", "Content-Type": "application/json"}
        assert (await client.request("POST", "/", {**headers, **target}, b"{}")).status == 403

    run(test, keys=KEYS)
