"""What a broker decides by: settings and ACLs, replaced as they change."""

from headrace.config.broker import broker_settings
from headrace.model.acls import Acl, AclOperation, PatternType, Permission, ResourceType
from headrace.model.image import SecurityImage
from headrace.security.denial import Denial
from headrace.security.security import Security
from headrace.security.subject import Subject

ALICE = Subject("User:alice", "10.0.0.7", "SCRAM-SHA-256", "public")
ACL = Acl(ResourceType.TOPIC, PatternType.LITERAL, "orders", "User:alice", "*", AclOperation.READ, Permission.ALLOW)
ON = broker_settings({"authorization.enable": "true"})
READ_ORDERS = (AclOperation.READ, ResourceType.TOPIC, "orders")


def test_everything_is_allowed_while_authorization_is_off() -> None:
    security = Security()
    security.update(SecurityImage(), broker_settings({}))
    assert security.authorizer is None
    assert security.allows(ALICE, *READ_ORDERS)


def test_a_revoked_permission_is_gone_at_once() -> None:
    security = Security()
    security.update(SecurityImage(acls=frozenset({ACL})), ON)
    assert security.allows(ALICE, *READ_ORDERS)
    security.update(SecurityImage(), ON)
    assert not security.allows(ALICE, *READ_ORDERS)


def test_decisions_are_compiled_again_only_when_they_may_change() -> None:
    security = Security()
    security.update(SecurityImage(acls=frozenset({ACL})), ON)
    compiled = security.authorizer
    security.update(SecurityImage(acls=frozenset({ACL})), ON)
    assert security.authorizer is compiled


def test_brokers_and_super_users_may_do_everything() -> None:
    security = Security()
    settings = broker_settings(
        {"authorization.enable": "true", "super.users": "User:root; User:alice", "inter.broker.user": "brokers"}
    )
    security.update(SecurityImage(), settings)
    for principal in ("User:root", "User:alice", "User:brokers"):
        assert security.allows(ALICE._replace(principal=principal), *READ_ORDERS)
    assert not security.allows(ALICE._replace(principal="User:bob"), *READ_ORDERS)


def test_a_denial_is_reported_with_its_reason() -> None:
    security = Security()
    security.update(SecurityImage(), ON)
    seen: list[Denial] = []
    security.on_denied.append(seen.append)
    security.denied(ALICE, "app", "Fetch", *READ_ORDERS)
    (denial,) = seen
    assert (denial.subject, denial.client_id, denial.action) == (ALICE, "app", "Fetch")
    assert "no rule allows User:alice from 10.0.0.7 to read on topic orders" in denial.reason
