"""Which users a link creates, changes and removes, and how it asks for them."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headrace.mirror.source_users import verifiers_of
from headrace.mirror.user_plan import (
    SourceUsers,
    SourceVerifier,
    SourceVerifiers,
    planned_users,
    problem_with_users,
    read_verifiers,
)
from headrace.model.errors import NotAuthorized, SourceLacksApi, SourceUnavailable
from headrace.model.users import ScramCredential, User
from headrace.replication.calls import answer_to

SHA_256 = "SCRAM-SHA-256"


def credential(salt: bytes = b"s", mechanism: str = SHA_256) -> ScramCredential:
    return ScramCredential(mechanism, salt, 8192, b"k" * 32, b"v" * 32)


def users(**salts: bytes) -> dict[str, Any]:
    return {name: {SHA_256: credential(salt)} for name, salt in salts.items()}


def present(**salts: bytes) -> dict[str, User]:
    return {name: User(name, credentials) for name, credentials in users(**salts).items()}


def test_new_changed_and_removed_users_follow() -> None:
    source = SourceUsers(users(new=b"1", changed=b"2", same=b"3"))
    here = present(changed=b"old", same=b"3", gone=b"4", local=b"5")
    plan = planned_users(source, here, {"changed", "same", "gone"}, ())
    assert plan.changes == {"gone": None, **users(new=b"1", changed=b"2")}
    assert list(plan.changes) == ["gone", "changed", "new"], "those that may log in no more are removed first"
    assert problem_with_users(source, plan) == ""


def test_users_of_this_cluster_are_never_changed() -> None:
    source = SourceUsers(users(local=b"1", same=b"2"))
    plan = planned_users(source, present(local=b"mine", same=b"2"), (), ())
    assert (plan.changes, plan.retained) == ({}, ("local",))
    assert "1 users exist here" in problem_with_users(source, plan)
    assert planned_users(SourceUsers({}), present(local=b"mine"), (), ()).changes == {}


def test_a_super_user_of_this_cluster_is_never_brought() -> None:
    source = SourceUsers(users(admin=b"1", boss=b"2"))
    plan = planned_users(source, present(boss=b"old"), {"boss"}, {"User:admin", "User:boss"})
    assert (plan.changes, plan.protected) == ({}, ("admin", "boss"))
    assert "2 users of the source are super users here" in problem_with_users(source, plan)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"user": ""}, "name"),
        ({"user": "a\nb"}, "name"),
        ({"user": "x" * 2000}, "name"),
        ({"user": "ANONYMOUS"}, "without a login"),
        ({"mechanism": "MD5"}, "mechanism"),
        ({"iterations": 1}, "iterations"),
        ({"iterations": 10**9}, "iterations"),
        ({"salt": b""}, "wrong length"),
        ({"salt": b"s" * 5000}, "wrong length"),
        ({"stored_key": b"k"}, "wrong length"),
        ({"mechanism": "SCRAM-SHA-512"}, "wrong length"),
    ],
)
def test_what_is_not_possible_here_is_left_out(changes: dict[str, Any], words: str) -> None:
    fields = {"user": "a", "mechanism": SHA_256, "salt": b"s", "iterations": 8192}
    given = {**fields, "stored_key": b"k" * 32, "server_key": b"v" * 32, **changes}
    found = read_verifiers([SourceVerifier(**given), SourceVerifier("ok", SHA_256, b"s", 8192, b"k" * 32, b"v" * 32)])
    assert list(found.users) == ["ok"]
    assert words in found.unusable[0]


def test_verifiers_are_not_shown() -> None:
    shown = repr(SourceVerifiers("d", [SourceVerifier("a", SHA_256, b"salt", 8192, b"stored", b"server")]))
    assert not any(each in shown for each in ("salt", "stored", "server"))


class Source:
    """A source at this address, which gives this answer to the call."""

    def __init__(self, answer: Any, host: str = "127.0.0.1", *, tls: bool = False) -> None:
        self._answer = answer
        self.link = SimpleNamespace(tls=tls)
        self.image = SimpleNamespace(brokers={1: SimpleNamespace(endpoint=SimpleNamespace(host=host))})

    async def ask(self, _: Any, max_answer_bytes: int) -> Any:
        if isinstance(self._answer, SourceLacksApi):
            raise self._answer
        return SimpleNamespace(error_code=ErrorCode.none, response_data=await answer_to(self._given))

    async def _given(self) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def asked(source: Source) -> SourceVerifiers:
    given: Any = source
    return asyncio.run(verifiers_of(given, ""))


def test_a_source_is_asked_over_tls_only() -> None:
    answer = SourceVerifiers("d")
    assert asked(Source(answer)) == answer
    assert asked(Source(answer, "10.0.0.1", tls=True)) == answer
    with pytest.raises(SourceUnavailable, match="over TLS only, and the link has none"):
        asked(Source(answer, "10.0.0.1"))


def test_apache_kafka_cannot_give_them() -> None:
    with pytest.raises(SourceUnavailable, match="Apache Kafka has no API for that"):
        asked(Source(SourceLacksApi("no Envelope")))


def test_a_refusal_is_told_in_the_words_of_the_source() -> None:
    with pytest.raises(SourceUnavailable, match="does not give its users: alice needs more"):
        asked(Source(NotAuthorized("alice needs more")))
