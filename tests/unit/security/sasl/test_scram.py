import hmac
from base64 import b64decode, b64encode

import pytest
import scramp

from headrace.model.users import ScramCredential, User
from headrace.security.sasl.client import SaslClientError, ScramClient, client_exchange
from headrace.security.sasl.mechanism import SCRAM_SHA_256, SCRAM_SHA_512, Authenticated, Challenge, Rejected
from headrace.security.sasl.scram import (
    CredentialLookup,
    ScramExchange,
    credential_from_salted,
    new_credential,
    salted_password,
)

from .logins import MECHANISMS, PASSWORD, SECRET, begin, login, server, user

# RFC 7677, section 3.
RFC_SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
RFC_CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
RFC_SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
RFC_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
RFC_CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
RFC_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
RFC_SIGNATURE = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def rfc_server() -> ScramExchange:
    salted = salted_password("pencil", SCRAM_SHA_256, RFC_SALT, 4096)
    known = User("user", {SCRAM_SHA_256: credential_from_salted(SCRAM_SHA_256, RFC_SALT, salted, 4096)})
    return ScramExchange(SCRAM_SHA_256, CredentialLookup({"user": known}.get, SECRET, 4096), nonce=RFC_SERVER_NONCE)


def test_server_follows_the_vector_of_rfc_7677() -> None:
    exchange = rfc_server()
    assert exchange.step(RFC_FIRST) == Challenge(RFC_CHALLENGE)
    assert exchange.step(RFC_FINAL) == Authenticated(RFC_SIGNATURE, "User:user")


def test_client_follows_the_vector_of_rfc_7677() -> None:
    client = ScramClient(SCRAM_SHA_256, "user", "pencil", nonce=RFC_CLIENT_NONCE)
    assert client.first() == RFC_FIRST
    assert client.next(RFC_CHALLENGE) == RFC_FINAL
    assert client.next(RFC_SIGNATURE) is None


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", ["alice", "a=b,c", "jürgen", "=2C"])
def test_our_client_logs_in(mechanism: str, name: str) -> None:
    answer = login(client_exchange(mechanism, user=name, password=PASSWORD), begin(server(user(name)), mechanism))
    assert isinstance(answer, Authenticated)
    assert (answer.principal, answer.expires_at_ms) == (f"User:{name}", None)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", ["alice", "a=b,c", "jürgen"])
def test_the_client_of_scramp_logs_in(mechanism: str, name: str) -> None:
    exchange = begin(server(user(name)), mechanism)
    client = scramp.ScramClient([mechanism], name, PASSWORD)
    challenge = exchange.step(client.get_client_first().encode())
    client.set_server_first(challenge.token.decode())
    answer = exchange.step(client.get_client_final().encode())
    assert isinstance(answer, Authenticated)
    client.set_server_final(answer.token.decode())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_client_logs_in_to_the_server_of_scramp(mechanism: str) -> None:
    scheme = scramp.ScramMechanism(mechanism)
    theirs = scheme.make_server(lambda name: scheme.make_auth_info(PASSWORD))
    client = client_exchange(mechanism, user="alice", password=PASSWORD)
    theirs.set_client_first(client.first().decode())
    final = client.next(theirs.get_server_first().encode())
    assert final is not None
    theirs.set_client_final(final.decode())
    assert client.next(theirs.get_server_final().encode()) is None


def test_a_wrong_password_is_rejected_without_a_token() -> None:
    answer = login(client_exchange(SCRAM_SHA_256, user="alice", password="wrong"), begin(server(user()), SCRAM_SHA_256))
    assert answer == Rejected("wrong password", claimed_user="alice")


def test_a_user_without_a_credential_for_the_mechanism_is_rejected() -> None:
    mechanisms = server(user(mechanisms=(SCRAM_SHA_512,)))
    answer = login(client_exchange(SCRAM_SHA_256, user="alice", password=PASSWORD), begin(mechanisms, SCRAM_SHA_256))
    assert isinstance(answer, Rejected)


FINALS = {
    "a nonce that only starts with the client's": RFC_FINAL.replace(b"RaTCAfuxFIlj)hNlF$k0", b"RaTCAfuxFIlj)hNlF$k1"),
    "the client's nonce alone": RFC_FINAL.replace(RFC_SERVER_NONCE.encode(), b""),
    "a longer nonce": RFC_FINAL.replace(b",p=", b"x,p="),
    "another binding": RFC_FINAL.replace(b"c=biws", b"c=eSws"),
    "no binding": RFC_FINAL.replace(b"c=biws,", b""),
    "a malformed binding": RFC_FINAL.replace(b"c=biws", b"c=bi ws"),
    "another proof": RFC_FINAL.replace(b"p=dHz", b"p=eHz"),
    "a short proof": RFC_FINAL[: -len("dVQ=")],
    "an empty proof": RFC_FINAL[: RFC_FINAL.index(b",p=") + 3],
    "no proof": RFC_FINAL[: RFC_FINAL.index(b",p=")],
    "an extension that the proof does not cover": RFC_FINAL.replace(b",p=", b",x=1,p="),
    "a malformed extension": RFC_FINAL.replace(b",p=", b",,p="),
    "no UTF-8": RFC_FINAL + b"\xff",
    "a NUL": RFC_FINAL + b"\0",
    "nothing": b"",
    "too much": RFC_FINAL + b"A" * 5000,
    "the first message again": RFC_FIRST,
}


@pytest.mark.parametrize("final", FINALS.values(), ids=FINALS.keys())
def test_a_tampered_final_message_is_rejected_and_ends_the_exchange(final: bytes) -> None:
    exchange = rfc_server()
    exchange.step(RFC_FIRST)
    answer = exchange.step(final)
    assert isinstance(answer, Rejected)
    assert (answer.token, answer.claimed_user) == (b"", "user")
    assert exchange.step(RFC_FINAL) == Rejected("the exchange is over")


def test_an_old_librdkafka_is_named_as_the_reason() -> None:
    """It puts its nonce before that of the challenge, which begins with it already; Kafka 4 refuses it, too."""
    exchange = rfc_server()
    exchange.step(RFC_FIRST)
    both = RFC_CLIENT_NONCE.encode()
    answer = exchange.step(RFC_FINAL.replace(b"r=" + both, b"r=" + both + both))
    assert isinstance(answer, Rejected)
    assert "librdkafka before 2.6.1" in answer.reason_for_log


def signed_final(credential: ScramCredential, bare: str, challenge: str, without_proof: str) -> bytes:
    """A final message of a client that knows the password, whatever it says before the proof."""
    signed = f"{bare},{challenge},{without_proof}".encode()
    salted = salted_password(PASSWORD, SCRAM_SHA_256, credential.salt, credential.iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(credential.stored_key, signed, "sha256")
    proof = b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    return f"{without_proof},p={proof}".encode()


@pytest.mark.parametrize(
    ("without_proof", "reason"),
    [
        ("c=biws,r=mine", "the nonce is not the challenge's"),
        ("c=biws,r=mineother", "the nonce is not the challenge's"),
        ("c=biws,NONCEx", "the nonce is not the challenge's"),
        ("c=eSws,NONCE", "the channel binding is not the first message's"),
        ("c=biws,NONCE,m=x", "a mandatory extension that is not supported"),
    ],
)
def test_a_right_password_does_not_excuse_another_nonce_or_binding(without_proof: str, reason: str) -> None:
    """CVE-2024-56128: the proof is right, for a nonce or a header that the exchange did not have."""
    known = user()
    exchange = begin(server(known), SCRAM_SHA_256)
    challenge = exchange.step(b"n,,n=alice,r=mine").token.decode()
    text = without_proof.replace("NONCE", challenge.split(",")[0])
    answer = exchange.step(signed_final(known.credentials[SCRAM_SHA_256], "n=alice,r=mine", challenge, text))
    assert answer == Rejected(reason, claimed_user="alice")


FIRSTS = {
    "channel binding": b"p=tls-unique,,n=user,r=abc",
    "an unknown flag": b"x,,n=user,r=abc",
    "another authorization id": b"n,a=admin,n=user,r=abc",
    "a malformed authorization id": b"n,user,n=user,r=abc",
    "a delegation token": b"n,,n=user,r=abc,tokenauth=true",
    "a delegation token, in capitals": b"n,,n=user,r=abc,TokenAuth=TRUE",
    "a mandatory extension": b"n,,m=ext,n=user,r=abc",
    "a late mandatory extension": b"n,,n=user,r=abc,m=ext",
    "no nonce": b"n,,n=user",
    "an empty nonce": b"n,,n=user,r=",
    "a nonce with a space": b"n,,n=user,r=a c",
    "no name": b"n,,n=,r=abc",
    "an unescaped = in the name": b"n,,n=us=er,r=abc",
    "an escape in small letters": b"n,,n=us=2cer,r=abc",
    "no header": b"n=user,r=abc",
    "nothing": b"",
    "no UTF-8": b"n,,n=\xff,r=abc",
    "a NUL in the name": b"n,,n=us\0er,r=abc",
    "too much": b"n,,n=user,r=" + b"a" * 5000,
}


@pytest.mark.parametrize("first", FIRSTS.values(), ids=FIRSTS.keys())
def test_a_first_message_against_the_rules_is_rejected(first: bytes) -> None:
    exchange = rfc_server()
    assert isinstance(exchange.step(first), Rejected)
    assert exchange.step(RFC_FIRST) == Rejected("the exchange is over")


@pytest.mark.parametrize("header", ["n,,", "y,,", "n,a=a=3Db=2Cc,", "y,a=a=3Db=2Cc,"])
def test_headers_without_channel_binding_log_in(header: str) -> None:
    """The binding of the final message repeats the header of the first one, whatever it is."""
    name = "a=b,c"
    credential = new_credential(PASSWORD, SCRAM_SHA_256, 4096)
    exchange = begin(server(User(name, {SCRAM_SHA_256: credential})), SCRAM_SHA_256)
    bare = "n=a=3Db=2Cc,r=mine"
    challenge = exchange.step(f"{header}{bare}".encode()).token.decode()
    without_proof = f"c={b64encode(header.encode()).decode()},{challenge.split(',')[0]}"
    assert isinstance(exchange.step(signed_final(credential, bare, challenge, without_proof)), Authenticated)


def test_a_recorded_exchange_cannot_be_replayed() -> None:
    mechanisms = server(user())
    client = client_exchange(SCRAM_SHA_256, user="alice", password=PASSWORD)
    recorded = [first := client.first()]
    exchange = begin(mechanisms, SCRAM_SHA_256)
    final = client.next(exchange.step(first).token)
    assert final is not None
    recorded.append(final)
    assert isinstance(exchange.step(final), Authenticated)
    assert isinstance(exchange.step(final), Rejected)

    replayed = begin(mechanisms, SCRAM_SHA_256)
    assert isinstance(replayed.step(recorded[0]), Challenge)
    assert isinstance(replayed.step(recorded[1]), Rejected)


def challenge_for(name: str, *, secret: bytes = SECRET, mechanism: str = SCRAM_SHA_256) -> dict[str, str]:
    exchange = begin(server(user(), secret=secret), mechanism)
    answer = exchange.step(f"n,,n={name},r=mine".encode())
    assert isinstance(answer, Challenge)
    return {each[0]: each[2:] for each in answer.token.decode().split(",")}


def test_an_unknown_user_gets_the_same_kind_of_challenge_every_time() -> None:
    known, unknown, again = challenge_for("alice"), challenge_for("bob"), challenge_for("bob")
    assert unknown["s"] == again["s"]
    assert unknown["r"] != again["r"]
    assert len(unknown["r"]) == len(known["r"])
    assert len(unknown["s"]) == len(known["s"])
    assert unknown["i"] == known["i"]


def test_the_salt_of_an_unknown_user_depends_on_name_mechanism_and_secret() -> None:
    salts = {
        challenge_for("bob")["s"],
        challenge_for("carol")["s"],
        challenge_for("bob", mechanism=SCRAM_SHA_512)["s"],
        challenge_for("bob", secret=b"another cluster")["s"],
    }
    assert len(salts) == 4


def test_an_unknown_user_is_rejected_with_the_token_of_a_wrong_password() -> None:
    answers = [
        login(client_exchange(SCRAM_SHA_256, user=name, password="wrong"), begin(server(user()), SCRAM_SHA_256))
        for name in ("alice", "bob")
    ]
    assert [type(each) for each in answers] == [Rejected, Rejected]
    assert [each.token for each in answers] == [b"", b""]


def test_a_credential_that_changes_during_the_exchange_is_rejected() -> None:
    users = {"alice": user()}
    exchange = ScramExchange(SCRAM_SHA_256, CredentialLookup(users.get, SECRET, 4096))
    client = client_exchange(SCRAM_SHA_256, user="alice", password=PASSWORD)
    final = client.next(exchange.step(client.first()).token)
    assert final is not None
    del users["alice"]
    assert isinstance(exchange.step(final), Rejected)


def test_a_name_is_found_by_its_prepared_form() -> None:
    exchange = begin(server(user("IX")), SCRAM_SHA_256)
    answer = login(client_exchange(SCRAM_SHA_256, user="I\u00adX", password=PASSWORD), exchange)
    assert isinstance(answer, Authenticated)
    assert answer.principal == "User:IX"


@pytest.mark.parametrize("password", ["", "\u2168", "a\u00adb", "a\x00b", "e\u0301", "\ud800"])
def test_a_password_that_clients_would_encode_differently_is_refused(password: str) -> None:
    with pytest.raises(ValueError, match="password"):
        new_credential(password)


@pytest.mark.parametrize("iterations", [-1, 0, 4095, 16385])
def test_iterations_have_bounds(iterations: int) -> None:
    with pytest.raises(ValueError, match="between 4096 and 16384"):
        new_credential(PASSWORD, SCRAM_SHA_256, iterations)
    with pytest.raises(ValueError, match="between 4096 and 16384"):
        credential_from_salted(SCRAM_SHA_256, b"salt", bytes(32), iterations)


def test_a_salted_password_has_the_length_of_its_digest() -> None:
    with pytest.raises(ValueError, match="64 bytes"):
        credential_from_salted(SCRAM_SHA_512, b"salt", bytes(32), 4096)
    with pytest.raises(ValueError, match="salt"):
        credential_from_salted(SCRAM_SHA_512, b"", bytes(64), 4096)
    with pytest.raises(ValueError, match="SCRAM-SHA-1"):
        credential_from_salted("SCRAM-SHA-1", b"salt", bytes(20), 4096)


def test_credentials_show_no_key() -> None:
    credential = new_credential(PASSWORD, SCRAM_SHA_256, 4096)
    assert repr(credential) == "ScramCredential(mechanism='SCRAM-SHA-256', iterations=4096)"
    assert isinstance(credential, ScramCredential)
    assert credential.salt != new_credential(PASSWORD, SCRAM_SHA_256, 4096).salt


SERVER_MESSAGES = {
    "a nonce that is not ours": RFC_CHALLENGE.replace(b"r=rOpr", b"r=xOpr"),
    "our nonce alone": RFC_CHALLENGE.replace(RFC_SERVER_NONCE.encode(), b""),
    "few iterations": RFC_CHALLENGE.replace(b"i=4096", b"i=4095"),
    "very many iterations": RFC_CHALLENGE.replace(b"i=4096", b"i=999999999"),
    "iterations that are no number": RFC_CHALLENGE.replace(b"i=4096", b"i=+4096"),
    "no salt": RFC_CHALLENGE.replace(b"s=W22ZaJ0SNY7soEsUEjb6gQ==", b"s="),
    "an extension first": b"m=x," + RFC_CHALLENGE,
    "a signature": RFC_SIGNATURE,
    "nothing": b"",
}


@pytest.mark.parametrize("message", SERVER_MESSAGES.values(), ids=SERVER_MESSAGES.keys())
def test_the_client_refuses_a_malformed_challenge(message: bytes) -> None:
    client = ScramClient(SCRAM_SHA_256, "user", "pencil", nonce=RFC_CLIENT_NONCE)
    with pytest.raises(SaslClientError):
        client.next(message)
    with pytest.raises(SaslClientError):
        client.next(RFC_CHALLENGE)


@pytest.mark.parametrize("final", [b"", b"e=invalid-proof", b"v=", RFC_SIGNATURE.replace(b"v=6", b"v=7"), b"v=6rri"])
def test_the_client_refuses_a_server_that_does_not_know_the_credential(final: bytes) -> None:
    client = ScramClient(SCRAM_SHA_256, "user", "pencil", nonce=RFC_CLIENT_NONCE)
    client.next(RFC_CHALLENGE)
    with pytest.raises(SaslClientError):
        client.next(final)
    with pytest.raises(SaslClientError):
        client.next(RFC_SIGNATURE)
