import pytest

from headrace.model.users import User
from headrace.security.sasl import plain
from headrace.security.sasl.client import SaslClientError, client_exchange
from headrace.security.sasl.mechanism import PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, Authenticated, Rejected
from headrace.security.sasl.plain import PasswordVerifier
from headrace.security.sasl.scram import CredentialLookup, new_credential, salted_password

from .logins import PASSWORD, SECRET, begin, login, server, user


@pytest.mark.parametrize("mechanisms", [(SCRAM_SHA_256,), (SCRAM_SHA_512,), (SCRAM_SHA_256, SCRAM_SHA_512)])
def test_a_right_password_logs_in_with_any_stored_credential(mechanisms: tuple[str, ...]) -> None:
    exchange = begin(server(user(mechanisms=mechanisms)), PLAIN)
    answer = login(client_exchange(PLAIN, user="alice", password=PASSWORD), exchange)
    assert answer == Authenticated(b"", "User:alice")


def test_the_authorization_id_may_be_the_name() -> None:
    exchange = begin(server(user()), PLAIN)
    assert isinstance(exchange.step(f"alice\0alice\0{PASSWORD}".encode()), Authenticated)


@pytest.mark.parametrize(
    "token",
    [
        b"\0alice\0wrong",
        b"\0bob\0correct horse",
        b"bob\0alice\0correct horse",
        b"\0alice\0correct horse\0",
        b"alice\0correct horse",
        b"\0alice\0",
        b"\0\0correct horse",
        b"\0alice\0\xff",
        b"",
        b"\0alice\0" + b"x" * 5000,
    ],
)
def test_another_message_is_rejected_and_ends_the_exchange(token: bytes) -> None:
    exchange = begin(server(user()), PLAIN)
    answer = exchange.step(token)
    assert isinstance(answer, Rejected)
    assert answer.token == b""
    assert "horse" not in repr(answer)
    assert isinstance(exchange.step(f"\0alice\0{PASSWORD}".encode()), Rejected)


def test_unknown_users_and_wrong_passwords_are_rejected_alike() -> None:
    answers = [begin(server(user()), PLAIN).step(f"\0{name}\0wrong".encode()) for name in ("alice", "bob")]
    assert answers == [Rejected("no such user, or a wrong password", claimed_user=name) for name in ("alice", "bob")]


@pytest.mark.parametrize("name", ["alice", "old", "bob", "nothing"])
def test_each_failed_login_does_the_same_work(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One PBKDF2 for each SCRAM mechanism, whether the user exists and whichever credentials it has."""
    work: list[tuple[str, int]] = []

    def counted(password: str, mechanism: str, salt: bytes, iterations: int) -> bytes:
        work.append((mechanism, iterations))
        return salted_password(password, mechanism, salt, iterations)

    monkeypatch.setattr(plain, "salted_password", counted)
    mechanisms = server(user(), user("old", mechanisms=(SCRAM_SHA_256,)), User("nothing", {}))
    assert isinstance(begin(mechanisms, PLAIN).step(f"\0{name}\0wrong".encode()), Rejected)
    assert work == [(SCRAM_SHA_512, 4096), (SCRAM_SHA_256, 4096)]


def test_only_the_first_login_is_slow() -> None:
    mechanisms = server(user())
    token = f"\0alice\0{PASSWORD}".encode()
    first = begin(mechanisms, PLAIN)
    assert first.is_slow(token)
    assert isinstance(first.step(token), Authenticated)
    again = begin(mechanisms, PLAIN)
    assert not again.is_slow(token)
    assert isinstance(again.step(token), Authenticated)
    assert begin(mechanisms, PLAIN).is_slow(b"\0alice\0wrong")
    assert begin(mechanisms, PLAIN).is_slow(b"\0bob\0wrong")


def test_a_malformed_message_is_not_slow() -> None:
    assert not begin(server(user()), PLAIN).is_slow(b"alice")


def test_a_remembered_login_ends_with_the_credential_and_with_the_user() -> None:
    users = {"alice": user()}
    passwords = PasswordVerifier(CredentialLookup(users.get, SECRET, 4096))
    assert passwords.verify("alice", PASSWORD) is users["alice"]
    users["alice"] = user(password="another")
    assert passwords.verify("alice", PASSWORD) is None
    del users["alice"]
    assert passwords.verify("alice", PASSWORD) is None
    assert not passwords.is_cached("alice", PASSWORD)


def test_failed_logins_are_not_remembered_and_others_only_up_to_a_limit() -> None:
    users = {name: user(name) for name in "abc"}
    passwords = PasswordVerifier(CredentialLookup(users.get, SECRET, 4096), cached_logins=2)
    assert passwords.verify("a", "wrong") is None
    assert not passwords.is_cached("a", "wrong")
    for name in "abc":
        assert passwords.verify(name, PASSWORD) is users[name]
    assert [passwords.is_cached(name, PASSWORD) for name in "abc"] == [False, True, True]


def test_the_stronger_credential_decides_where_passwords_differ() -> None:
    both = {
        SCRAM_SHA_256: new_credential("former", SCRAM_SHA_256, 4096),
        SCRAM_SHA_512: new_credential("present", SCRAM_SHA_512, 4096),
    }
    mechanisms = server(User("alice", both))
    assert isinstance(begin(mechanisms, PLAIN).step(b"\0alice\0present"), Authenticated)
    assert isinstance(begin(mechanisms, PLAIN).step(b"\0alice\0former"), Rejected)


def test_the_client_refuses_a_challenge() -> None:
    client = client_exchange(PLAIN, user="alice", password=PASSWORD)
    client.first()
    with pytest.raises(SaslClientError):
        client.next(b"more")


@pytest.mark.parametrize("name", ["SCRAM-SHA-1", "GSSAPI", ""])
def test_other_mechanisms_do_not_exist(name: str) -> None:
    assert server(user()).begin(name) is None
    with pytest.raises(ValueError, match="mechanism"):
        client_exchange(name, user="alice", password=PASSWORD)


def test_a_client_needs_a_credential() -> None:
    with pytest.raises(ValueError, match="a user and a password"):
        client_exchange(PLAIN, user="alice")
    with pytest.raises(ValueError, match="a token"):
        client_exchange("OAUTHBEARER", user="alice", password=PASSWORD)


def test_oauthbearer_exists_only_with_a_verifier() -> None:
    mechanisms = server(user())
    assert set(mechanisms.names) == {PLAIN, SCRAM_SHA_256, SCRAM_SHA_512}
    assert mechanisms.begin("OAUTHBEARER") is None
