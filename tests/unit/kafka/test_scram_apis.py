"""DescribeUserScramCredentials and AlterUserScramCredentials: users of the cluster, with and without authorization."""

import hashlib
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headrace.model.users import ScramCredential
from headrace.security.sasl.mechanism import SCRAM_SHA_256, SCRAM_SHA_512
from headrace.security.sasl.scram import credential_from_salted

from .harness import Harness
from .test_unsecured import ask

SALT = b"a salt"


def password(name: str, mechanism: int = 1, iterations: int = 4096, **fields: Any) -> dict[str, Any]:
    salted = hashlib.pbkdf2_hmac("sha256" if mechanism == 1 else "sha512", b"secret", SALT, 4096)
    return {
        "name": name,
        "mechanism": mechanism,
        "iterations": iterations,
        "salt": SALT,
        "salted_password": salted,
        **fields,
    }


def alter(
    harness: Harness, *upsertions: dict[str, Any], deletions: list[dict[str, Any]] | None = None
) -> dict[str, ErrorCode]:
    answer = ask(harness, 51, 0, "AlterUserScramCredentials", upsertions=upsertions, deletions=deletions or [])
    assert len({one.user for one in answer.results}) == len(answer.results)
    assert all((one.error_message is None) == (one.error_code is ErrorCode.none) for one in answer.results)
    return {one.user: one.error_code for one in answer.results}


def describe(harness: Harness, *names: str) -> dict[str, tuple[ErrorCode, list[tuple[int, int]]]]:
    users = [{"name": name} for name in names] if names else None
    answer = ask(harness, 50, 0, "DescribeUserScramCredentials", users=users)
    assert answer.error_code is ErrorCode.none
    return {
        one.user: (one.error_code, [(each.mechanism, each.iterations) for each in one.credential_infos])
        for one in answer.results
    }


def credentials(harness: Harness, name: str) -> dict[str, ScramCredential]:
    user = harness.metadata.image.security.users.get(name)
    return {} if user is None else dict(user.credentials)


def test_a_user_gets_credentials_and_loses_them(harness: Harness) -> None:
    assert describe(harness) == {}
    assert alter(harness, password("alice"), password("bob", 2)) == {"alice": ErrorCode.none, "bob": ErrorCode.none}
    assert alter(harness, password("alice", 2, 8192)) == {"alice": ErrorCode.none}
    everyone = {
        "alice": (ErrorCode.none, [(1, 4096), (2, 8192)]),
        "bob": (ErrorCode.none, [(2, 4096)]),
    }
    assert describe(harness) == everyone
    assert describe(harness, "bob", "eve") == {"bob": everyone["bob"], "eve": (ErrorCode.resource_not_found, [])}
    assert describe(harness, "bob", "bob") == {"bob": (ErrorCode.duplicate_resource, [])}
    assert alter(harness, deletions=[{"name": "alice", "mechanism": 1}]) == {"alice": ErrorCode.none}
    assert set(credentials(harness, "alice")) == {SCRAM_SHA_512}
    assert alter(harness, deletions=[{"name": "alice", "mechanism": 2}, {"name": "bob", "mechanism": 1}]) == {
        "alice": ErrorCode.none,
        "bob": ErrorCode.resource_not_found,
    }
    assert describe(harness) == {"bob": everyone["bob"]}


def test_only_what_verifies_a_password_is_stored(harness: Harness) -> None:
    wanted = password("alice")
    alter(harness, wanted)
    stored = credentials(harness, "alice")[SCRAM_SHA_256]
    assert stored == credential_from_salted(SCRAM_SHA_256, SALT, wanted["salted_password"], 4096)
    assert wanted["salted_password"] not in (stored.stored_key, stored.server_key)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"iterations": 4095}, ErrorCode.unacceptable_credential),
        ({"iterations": 16385}, ErrorCode.unacceptable_credential),
        ({"salt": b""}, ErrorCode.unacceptable_credential),
        ({"salted_password": b"short"}, ErrorCode.unacceptable_credential),
        ({"salted_password": b""}, ErrorCode.unacceptable_credential),
        ({"name": ""}, ErrorCode.unacceptable_credential),
        ({"mechanism": 0}, ErrorCode.unsupported_sasl_mechanism),
        ({"mechanism": 3}, ErrorCode.unsupported_sasl_mechanism),
    ],
)
def test_a_credential_that_is_not_acceptable_is_refused(
    harness: Harness, change: dict[str, Any], error: ErrorCode
) -> None:
    wanted = {**password("alice"), **change}
    assert alter(harness, wanted, password("bob", iterations=16384)) == {
        wanted["name"]: error,
        "bob": ErrorCode.none,
    }
    assert set(describe(harness)) == {"bob"}


def test_a_user_that_appears_twice_has_the_error_of_its_first_entry(harness: Harness) -> None:
    """As Kafka, which looks at deletions first."""
    outcomes = alter(
        harness,
        password("alice"),
        password("bob", iterations=1),
        password("bob"),
        password("carol"),
        password("carol", iterations=1),
        deletions=[{"name": "alice", "mechanism": 1}],
    )
    assert outcomes == {
        "alice": ErrorCode.resource_not_found,
        "bob": ErrorCode.unacceptable_credential,
        "carol": ErrorCode.duplicate_resource,
    }
    assert describe(harness) == {}


def test_a_user_that_appears_twice_is_not_changed(harness: Harness) -> None:
    alter(harness, password("carol"))
    outcomes = alter(
        harness,
        password("alice"),
        password("alice", 2),
        password("carol", 2),
        deletions=[{"name": "carol", "mechanism": 1}, {"name": "", "mechanism": 1}, {"name": "odd", "mechanism": 9}],
    )
    assert outcomes == {
        "alice": ErrorCode.duplicate_resource,
        "carol": ErrorCode.duplicate_resource,
        "": ErrorCode.unacceptable_credential,
        "odd": ErrorCode.unsupported_sasl_mechanism,
    }
    assert describe(harness) == {"carol": (ErrorCode.none, [(1, 4096)])}
