"""The SASL state of a connection, with real mechanisms."""

import pytest

from headrace.kafka.authentication import Authentication, Stage
from headrace.model.users import User
from headrace.security.sasl.client import client_exchange
from headrace.security.sasl.mechanism import Authenticated, Challenge, Rejected
from headrace.security.sasl.mechanisms import Mechanisms
from headrace.security.sasl.scram import new_credential

PRODUCE, API_VERSIONS, HANDSHAKE, AUTHENTICATE = 0, 18, 17, 36
SCRAM = "SCRAM-SHA-256"
USERS = {name: User(name, {SCRAM: new_credential(f"{name}'s password", SCRAM, 4096)}) for name in ("alice", "bob")}


class Time:
    now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def time() -> Time:
    return Time()


def authentication(time: Time, *, max_reauth_ms: int = 0) -> Authentication:
    return Authentication(Mechanisms(USERS.get, b"secret"), (SCRAM, "PLAIN"), max_reauth_ms=max_reauth_ms, wall_ms=time)


def log_in(state: Authentication, user: str = "alice", *, password: str = "", mechanism: str = SCRAM) -> bool:
    """Whether the client gets in."""
    if not state.begin(mechanism, with_raw_tokens=False):
        return False
    client = client_exchange(mechanism, user=user, password=password or f"{user}'s password")
    token: bytes | None = client.first()
    while token is not None:
        answer = state.settle(state.step(token))
        if isinstance(answer, Rejected):
            return False
        token = client.next(answer.token) if isinstance(answer, Challenge) else None
    return True


def test_only_the_handshake_is_answered_before(time: Time) -> None:
    state = authentication(time)
    assert state.why_not(PRODUCE)
    assert not any(map(state.why_not, (API_VERSIONS, HANDSHAKE, AUTHENTICATE)))
    assert state.begin(SCRAM, with_raw_tokens=False)
    assert state.why_not(PRODUCE)


def test_a_client_that_authenticates_is_served(time: Time) -> None:
    state = authentication(time)
    assert log_in(state)
    assert (state.stage, state.principal, state.why_not(PRODUCE)) == (Stage.DONE, "User:alice", None)
    assert state.session_lifetime_ms == 0


@pytest.mark.parametrize("mechanism", [SCRAM, "PLAIN"])
@pytest.mark.parametrize("user", ["alice", "mallory"])
def test_after_a_failure_nothing_is_answered(time: Time, mechanism: str, user: str) -> None:
    state = authentication(time)
    assert not log_in(state, user, password="wrong", mechanism=mechanism)
    assert all(map(state.why_not, (PRODUCE, API_VERSIONS, HANDSHAKE, AUTHENTICATE)))
    assert not state.begin(SCRAM, with_raw_tokens=False)


@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "GSSAPI", ""])
def test_mechanisms_that_the_listener_does_not_offer(time: Time, mechanism: str) -> None:
    state = authentication(time)
    assert not state.begin(mechanism, with_raw_tokens=False)
    assert state.stage is Stage.FAILED


def test_a_second_handshake_within_an_exchange_fails(time: Time) -> None:
    state = authentication(time)
    assert state.begin(SCRAM, with_raw_tokens=False)
    assert not state.begin(SCRAM, with_raw_tokens=False)
    assert state.stage is Stage.FAILED


def test_a_token_without_a_handshake_is_rejected(time: Time) -> None:
    assert isinstance(authentication(time).step(b"n,,n=alice,r=x"), Rejected)


def test_a_session_ends_and_can_be_renewed(time: Time) -> None:
    state = authentication(time, max_reauth_ms=60_000)
    assert log_in(state)
    assert state.session_lifetime_ms == 60_000
    time.now_ms += 60_001
    assert state.why_not(PRODUCE)
    assert log_in(state)
    assert state.why_not(PRODUCE) is None


def test_the_credentials_expiry_ends_the_session(time: Time) -> None:
    state = authentication(time, max_reauth_ms=60_000)
    assert state.begin(SCRAM, with_raw_tokens=False)
    state.settle(Authenticated(b"", "User:alice", time.now_ms + 5_000))
    assert state.session_lifetime_ms == 5_000
    time.now_ms += 5_001
    assert state.why_not(PRODUCE)


@pytest.mark.parametrize(("user", "mechanism"), [("bob", SCRAM), ("alice", "PLAIN")])
def test_who_authenticates_again_must_be_the_same_by_the_same_mechanism(time: Time, user: str, mechanism: str) -> None:
    state = authentication(time)
    assert log_in(state)
    assert not log_in(state, user, mechanism=mechanism)
    assert state.stage is Stage.FAILED
    assert state.why_not(PRODUCE)


def test_requests_go_on_while_a_client_authenticates_again(time: Time) -> None:
    state = authentication(time)
    assert log_in(state)
    assert state.begin(SCRAM, with_raw_tokens=False)
    assert state.why_not(PRODUCE) is None
