"""Whatever a client sends, an exchange answers, and only the password logs in."""

import pytest
import scramp.utils
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.profile import examples

from headrace.model.users import User
from headrace.security.sasl.client import client_exchange
from headrace.security.sasl.jwt_verifier import JwtVerifier, TokenRules
from headrace.security.sasl.mechanism import OAUTHBEARER, PLAIN, Authenticated, Challenge, Exchange, Rejected
from headrace.security.sasl.mechanisms import Mechanisms
from headrace.security.sasl.oauthbearer import InvalidTokenError
from headrace.security.sasl.saslprep import is_prepared, saslprep
from headrace.security.sasl.scram import HASHES, escaped, new_credential, unescaped

SECRET = b"secret"
PASSWORD = "pencil"
ALICE = User("alice", {each: new_credential(PASSWORD, each, 4096) for each in HASHES})
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)
ALL_MECHANISMS = st.sampled_from([*HASHES, PLAIN, OAUTHBEARER])


class NoKeys:
    def find(self, key_id: str | None) -> None:
        return None


VERIFIER = JwtVerifier(NoKeys(), TokenRules())


def begin(user: User, name: str) -> Exchange:
    mechanisms = Mechanisms({user.name: user}.get, SECRET, iterations=4096, tokens=VERIFIER)
    exchange = mechanisms.begin(name)
    assert exchange is not None
    return exchange


@settings(max_examples=examples(50))
@given(st.sampled_from(list(HASHES)), TEXTS, TEXTS.filter(is_prepared), TEXTS)
def test_only_the_password_logs_in(mechanism: str, name: str, password: str, tried: str) -> None:
    user = User(name, {mechanism: new_credential(password, mechanism, 4096)})
    for attempt in (password, tried):
        client = client_exchange(mechanism, user=name, password=attempt)
        exchange = begin(user, mechanism)
        final = client.next(exchange.step(client.first()).token)
        assert final is not None
        answer = exchange.step(final)
        plain = begin(user, PLAIN).step(client_exchange(PLAIN, user=name, password=attempt).first())
        assert isinstance(answer, Authenticated) == isinstance(plain, Authenticated) == (attempt == password)
        if isinstance(answer, Authenticated):
            assert client.next(answer.token) is None
            assert answer.principal == f"User:{name}"


@given(ALL_MECHANISMS, st.lists(st.binary(max_size=60), min_size=1, max_size=3))
def test_arbitrary_bytes_are_rejected(mechanism: str, tokens: list[bytes]) -> None:
    exchange = begin(ALICE, mechanism)
    answers = [exchange.step(each) for each in tokens]
    assert not any(isinstance(each, Authenticated) for each in answers)


PIECES = st.sampled_from(
    (*"ny,= \0\x01", "p=", "a=", "n=", "r=", "c=biws", "alice", "abc", "m=x", "auth=", "Bearer ", "e30.e30.")
)


@given(ALL_MECHANISMS, st.lists(PIECES, max_size=12).map("".join))
def test_almost_right_messages_log_nobody_in(mechanism: str, text: str) -> None:
    exchange = begin(ALICE, mechanism)
    answer = exchange.step(text.encode())
    assert isinstance(answer, Challenge | Rejected)
    if isinstance(answer, Rejected):
        assert isinstance(exchange.step(text.encode()), Rejected)


@settings(max_examples=examples(50))
@given(st.data())
def test_any_changed_byte_of_a_login_is_rejected(data: st.DataObject) -> None:
    mechanism = data.draw(st.sampled_from(list(HASHES)))
    client = client_exchange(mechanism, user="alice", password=PASSWORD)
    exchange = begin(ALICE, mechanism)
    final = client.next(exchange.step(client.first()).token)
    assert final is not None
    position = data.draw(st.integers(0, len(final) - 1))
    changed = bytearray(final)
    changed[position] ^= data.draw(st.integers(1, 255))
    assert isinstance(exchange.step(bytes(changed)), Rejected)


@given(TEXTS)
def test_names_are_escaped_and_back(name: str) -> None:
    assert "," not in escaped(name)
    assert unescaped(escaped(name)) == name


@given(st.text(max_size=12))
def test_saslprep_agrees_with_that_of_scramp(text: str) -> None:
    try:
        theirs = scramp.utils.saslprep(text)
    except scramp.ScramException:
        theirs = None
    try:
        ours = saslprep(text)
    except ValueError:
        ours = None
    assert ours == theirs


@given(st.text("abce.30-_=é\n", max_size=40))
def test_no_text_is_a_token_without_a_key(text: str) -> None:
    with pytest.raises(InvalidTokenError) as refused:
        VERIFIER.verify(text)
    assert str(refused.value).isprintable()
