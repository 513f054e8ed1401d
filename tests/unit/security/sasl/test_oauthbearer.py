import pytest

from headrace.security.sasl.client import SaslClientError, client_exchange
from headrace.security.sasl.jwt_verifier import JwtVerifier, TokenRules
from headrace.security.sasl.mechanism import OAUTHBEARER, Authenticated, Challenge, Exchange, Rejected
from headrace.security.sasl.mechanisms import Mechanisms
from headrace.security.sasl.oauthbearer import INVALID_TOKEN

from .logins import SECRET, begin, login
from .provider import AUDIENCE, ISSUER, KEYS, claims, token

VERIFIER = JwtVerifier(KEYS, TokenRules(issuer=ISSUER, audiences=(AUDIENCE,)))


def exchange() -> Exchange:
    return begin(Mechanisms(lambda name: None, SECRET, tokens=VERIFIER), OAUTHBEARER)


def test_our_client_logs_in_and_the_login_ends_with_the_token() -> None:
    payload = claims()
    client = client_exchange(OAUTHBEARER, token=lambda: token(payload), extensions={"traceId": "7"})
    assert login(client, exchange()) == Authenticated(b"", "User:alice", payload["exp"] * 1000)
    assert client.next(b"") is None


@pytest.mark.parametrize("header", ["n,,", "y,,", "n,a=alice,"])
@pytest.mark.parametrize("scheme", ["Bearer ", "bearer  ", "BEARER "])
def test_headers_and_schemes_of_other_clients_log_in(header: str, scheme: str) -> None:
    message = f"{header}\x01auth={scheme}{token()}\x01host=h\x01port=9092\x01\x01"
    assert isinstance(exchange().step(message.encode()), Authenticated)


def test_an_invalid_token_is_rejected_after_the_client_has_read_why() -> None:
    server = exchange()
    client = client_exchange(OAUTHBEARER, token=lambda: token(claims(aud="other")))
    assert server.step(client.first()) == Challenge(INVALID_TOKEN)
    answer = client.next(INVALID_TOKEN)
    assert answer == b"\x01"
    rejected = server.step(answer)
    assert isinstance(rejected, Rejected)
    assert "Audience" in rejected.reason_for_log
    assert isinstance(server.step(answer), Rejected)
    with pytest.raises(SaslClientError):
        client.next(b"")


def test_a_good_token_after_an_invalid_one_is_rejected() -> None:
    server = exchange()
    server.step(client_exchange(OAUTHBEARER, token=lambda: token(claims(sub=""))).first())
    assert isinstance(server.step(client_exchange(OAUTHBEARER, token=token).first()), Rejected)


def test_the_authorization_id_must_be_the_subject() -> None:
    server = exchange()
    assert server.step(f"n,a=admin,\x01auth=Bearer {token()}\x01\x01".encode()) == Challenge(INVALID_TOKEN)
    assert server.step(b"\x01") == Rejected("the authorization id is not the token's subject", claimed_user="alice")


MESSAGES = {
    "nothing": "",
    "a separator": "\x01",
    "no token": "n,,\x01\x01",
    "an empty token": "n,,\x01auth=Bearer \x01\x01",
    "another scheme": "n,,\x01auth=Basic abc\x01\x01",
    "channel binding": "p=tls-unique,,\x01auth=Bearer TOKEN\x01\x01",
    "a malformed header": "n,\x01auth=Bearer TOKEN\x01\x01",
    "a malformed authorization id": "n,alice,\x01auth=Bearer TOKEN\x01\x01",
    "one separator at the end": "n,,\x01auth=Bearer TOKEN\x01",
    "something after the end": "n,,\x01auth=Bearer TOKEN\x01\x01more",
    "two tokens": "n,,\x01auth=Bearer TOKEN\x01auth=Bearer TOKEN\x01\x01",
    "a key with digits": "n,,\x01auth=Bearer TOKEN\x01a1=b\x01\x01",
    "an extension without a value": "n,,\x01auth=Bearer TOKEN\x01abc\x01\x01",
    "an extension with a control character": "n,,\x01auth=Bearer TOKEN\x01abc=\x02\x01\x01",
    "a long token": "n,,\x01auth=Bearer " + "a" * 16385 + "\x01\x01",
    "a long message": "n,,\x01auth=Bearer TOKEN\x01abc=" + "a" * 32768 + "\x01\x01",
}


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES.keys())
def test_a_malformed_message_is_rejected_at_once(message: str) -> None:
    server = exchange()
    assert isinstance(server.step(message.replace("TOKEN", token()).encode()), Rejected)
    assert server.step(client_exchange(OAUTHBEARER, token=token).first()) == Rejected("the exchange is over")


def test_a_message_that_is_no_text_is_rejected() -> None:
    assert isinstance(exchange().step(b"n,,\x01auth=Bearer \xff\x01\x01"), Rejected)
