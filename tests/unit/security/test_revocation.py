import pytest

from headrace.model.users import User
from headrace.security.revocation import Revocation
from headrace.security.sasl.mechanism import OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from headrace.security.sasl.scram import new_credential
from headrace.security.subject import Subject

OLD_256 = new_credential("old", SCRAM_SHA_256, 4096)
OLD_512 = new_credential("old", SCRAM_SHA_512, 4096)
NEW_256 = new_credential("new", SCRAM_SHA_256, 4096)
BEFORE = {"alice": User("alice", {SCRAM_SHA_256: OLD_256, SCRAM_SHA_512: OLD_512}), "bob": User("bob")}


def _revoked(after: dict[str, User], mechanism: str, user: str = "alice") -> bool:
    return Revocation(BEFORE, after).revokes(Subject(f"User:{user}", "10.0.0.1", mechanism))


@pytest.mark.parametrize("mechanism", [PLAIN, SCRAM_SHA_256, SCRAM_SHA_512])
def test_a_deleted_user(mechanism: str) -> None:
    assert _revoked({"bob": BEFORE["bob"]}, mechanism)
    assert not _revoked({"bob": BEFORE["bob"]}, mechanism, "bob")


def test_a_credential_that_was_replaced() -> None:
    after = BEFORE | {"alice": User("alice", {SCRAM_SHA_256: NEW_256, SCRAM_SHA_512: OLD_512})}
    assert _revoked(after, SCRAM_SHA_256)
    # The password is verified with the other one.
    assert not _revoked(after, SCRAM_SHA_512)
    assert not _revoked(after, PLAIN)


def test_a_credential_that_was_removed() -> None:
    after = BEFORE | {"alice": User("alice", {SCRAM_SHA_256: OLD_256})}
    assert not _revoked(after, SCRAM_SHA_256)
    assert _revoked(after, SCRAM_SHA_512)
    assert _revoked(after, PLAIN)


@pytest.mark.parametrize("mechanism", [OAUTHBEARER, "TLS", "none"])
def test_clients_without_a_password_do_not_depend_on_it(mechanism: str) -> None:
    assert not _revoked({}, mechanism)


def test_other_changes_revoke_nothing() -> None:
    assert not Revocation(BEFORE, BEFORE)
    assert not Revocation(BEFORE, dict(BEFORE) | {"carol": User("carol")})
