"""Decisions by Kafka's rules, one rule at a time; tests/property/security tries them all together."""

import pytest

from headrace.model.acls import (
    CLUSTER,
    EVERYONE,
    Acl,
    AclOperation,
    PatternType,
    Permission,
    Resource,
    ResourceType,
)
from headrace.security.authorizer import Authorizer, problem_with

ALICE = "User:alice"
HERE = "10.1.2.3"
ORDERS = Resource(ResourceType.TOPIC, "orders")


def rule(
    operation: AclOperation = AclOperation.READ,
    permission: Permission = Permission.ALLOW,
    *,
    name: str = "orders",
    pattern: PatternType = PatternType.LITERAL,
    principal: str = ALICE,
    host: str = "*",
    kind: ResourceType = ResourceType.TOPIC,
) -> Acl:
    return Acl(kind, pattern, name, principal, host, operation, permission)


def allows(
    *acls: Acl,
    operation: AclOperation = AclOperation.READ,
    name: str = "orders",
    host: str = HERE,
    everyone: bool = False,
) -> bool:
    authorizer = Authorizer(acls, allow_everyone=everyone)
    return authorizer.allows(ALICE, host, operation, ResourceType.TOPIC, name)


def test_without_a_rule_nothing_is_allowed() -> None:
    decision = Authorizer(()).decide(ALICE, HERE, AclOperation.READ, ORDERS)
    assert not decision.is_allowed
    assert decision.reason == "no rule allows User:alice from 10.1.2.3 to read on topic orders"


def test_a_denial_wins_and_is_named() -> None:
    deny = rule(permission=Permission.DENY, name="ord", pattern=PatternType.PREFIXED)
    decision = Authorizer((rule(), deny)).decide(ALICE, HERE, AclOperation.READ, ORDERS)
    assert not decision.is_allowed
    assert decision.rule == deny
    assert decision.reason == "a rule denies it: deny User:alice read on topic ord*"


def test_a_super_user_may_do_what_a_rule_denies() -> None:
    authorizer = Authorizer((rule(permission=Permission.DENY),), super_users=[ALICE])
    assert authorizer.allows(ALICE, HERE, AclOperation.READ, ResourceType.TOPIC, "orders")
    assert authorizer.allows_on_any(ALICE, HERE, AclOperation.WRITE, ResourceType.TOPIC)


@pytest.mark.parametrize("given", [AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER])
def test_an_allowed_operation_implies_describe_and_a_denied_one_does_not(given: AclOperation) -> None:
    assert allows(rule(given), operation=AclOperation.DESCRIBE)
    both = (rule(given, Permission.DENY), rule(AclOperation.DESCRIBE))
    assert allows(*both, operation=AclOperation.DESCRIBE)
    assert not allows(rule(AclOperation.DESCRIBE), operation=given)


def test_alter_configs_implies_describe_configs() -> None:
    assert allows(rule(AclOperation.ALTER_CONFIGS), operation=AclOperation.DESCRIBE_CONFIGS)
    assert not allows(rule(AclOperation.ALTER_CONFIGS), operation=AclOperation.DESCRIBE)


def test_all_covers_every_operation() -> None:
    assert allows(rule(AclOperation.ALL), operation=AclOperation.WRITE)
    assert not allows(rule(AclOperation.ALL), rule(AclOperation.ALL, Permission.DENY), operation=AclOperation.WRITE)


@pytest.mark.parametrize(
    ("pattern", "name", "asked", "expected"),
    [
        (PatternType.LITERAL, "orders", "orders", True),
        (PatternType.LITERAL, "orders", "orders.eu", False),
        (PatternType.LITERAL, "*", "anything", True),
        (PatternType.PREFIXED, "orders", "orders", True),
        (PatternType.PREFIXED, "orders", "orders.eu", True),
        (PatternType.PREFIXED, "orders", "order", False),
        (PatternType.PREFIXED, "*", "anything", False),
        (PatternType.PREFIXED, "*", "*anything", True),
    ],
)
def test_patterns(pattern: PatternType, name: str, asked: str, expected: bool) -> None:
    assert allows(rule(name=name, pattern=pattern), name=asked) is expected


@pytest.mark.parametrize(
    ("host", "client", "expected"),
    [
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.4", False),
        ("10.1.0.0/16", "10.1.2.3", True),
        ("10.1.0.0/16", "10.2.2.3", False),
        ("10.1.0.0/16", "::ffff:10.1.2.3", True),
        ("2001:db8::/32", "2001:db8::7", True),
        ("2001:db8::/32", "10.1.2.3", False),
        ("10.1.0.0/16", "not an address", False),
    ],
)
def test_hosts(host: str, client: str, expected: bool) -> None:
    assert allows(rule(host=host), host=client) is expected


def test_everyone_is_every_principal() -> None:
    assert allows(rule(principal=EVERYONE))
    assert not allows(rule(), rule(permission=Permission.DENY, principal=EVERYONE))


def test_everyone_may_use_what_no_rule_is_about() -> None:
    of_another = rule(principal="User:bob", name="payments")
    assert allows(of_another, everyone=True)
    assert not allows(of_another, everyone=True, name="payments")


@pytest.mark.parametrize(
    ("acls", "expected"),
    [
        ([], False),
        ([rule(AclOperation.WRITE)], True),
        ([rule(AclOperation.WRITE), rule(AclOperation.WRITE, Permission.DENY)], False),
        ([rule(AclOperation.WRITE, name="*"), rule(AclOperation.WRITE, Permission.DENY)], True),
        ([rule(AclOperation.WRITE), rule(AclOperation.ALL, Permission.DENY, name="*")], False),
        (
            [
                rule(AclOperation.WRITE, name="orders.", pattern=PatternType.PREFIXED),
                rule(AclOperation.WRITE, Permission.DENY, name="ord", pattern=PatternType.PREFIXED),
            ],
            False,
        ),
        (
            [
                rule(AclOperation.WRITE, name="ord", pattern=PatternType.PREFIXED),
                rule(AclOperation.WRITE, Permission.DENY, name="orders.", pattern=PatternType.PREFIXED),
            ],
            True,
        ),
    ],
)
def test_an_operation_on_any_topic(acls: list[Acl], expected: bool) -> None:
    assert Authorizer(acls).allows_on_any(ALICE, HERE, AclOperation.WRITE, ResourceType.TOPIC) is expected


def test_operations_of_a_resource() -> None:
    found = Authorizer((rule(AclOperation.WRITE),)).operations_on(ALICE, HERE, ORDERS)
    assert found == {AclOperation.WRITE, AclOperation.DESCRIBE}
    assert Authorizer((), super_users=[ALICE]).operations_on(ALICE, HERE, CLUSTER) == {
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    }


@pytest.mark.parametrize(
    ("acl", "problem"),
    [
        (rule(), None),
        (rule(host="10.0.0.0/8"), None),
        (rule(name=""), "the name of a resource must not be empty"),
        (rule(kind=ResourceType.CLUSTER), "the only resource of type cluster is kafka-cluster, not orders"),
        (rule(AclOperation.CLUSTER_ACTION), "cluster_action is no operation on a topic"),
        (rule(principal="alice"), "'alice' is no principal: write User:NAME"),
        (rule(host="example.org"), "'example.org' is no host: write an IP address"),
    ],
)
def test_rules_that_cannot_be_stored(acl: Acl, problem: str | None) -> None:
    found = problem_with(acl)
    assert found is None if problem is None else (found or "").startswith(problem)
