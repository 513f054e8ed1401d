"""Which ACLs a link creates and removes, and in which order."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.mirror.acl_plan import SourceAcls, local_acl, planned_acls, problem_of
from headrace.mirror.source_access import read_acls
from headrace.model.acls import Acl, AclOperation, PatternType, Permission, ResourceType
from headrace.model.errors import SourceUnavailable
from headrace.model.links import MAX_COPIED

ALLOW, DENY = Permission.ALLOW, Permission.DENY


def acl(name: str, permission: Permission = ALLOW, user: str = "alice", **changes: Any) -> Acl:
    given = {"resource_type": ResourceType.TOPIC, "pattern_type": PatternType.LITERAL, "resource_name": name}
    given |= {"principal": f"User:{user}", "host": "*", "operation": AclOperation.READ, "permission": permission}
    return Acl(**{**given, **changes})


def plan(
    source: Iterable[Acl], present: Iterable[Acl] = (), copied: Iterable[Acl] = (), prefix: str = ""
) -> list[tuple[str, Acl]]:
    changes = planned_acls(SourceAcls(frozenset(source)), {*present, *copied}, {*copied}, prefix)
    return [("remove" if each.is_removal else "create", each.acl) for each in changes]


def test_the_order_never_allows_more_than_the_source() -> None:
    source = [acl("new"), acl("new", DENY), acl("kept")]
    copied = [acl("old"), acl("old", DENY), acl("kept")]
    assert plan(source, copied=copied) == [
        ("remove", acl("old")),
        ("create", acl("new", DENY)),
        ("create", acl("new")),
        ("remove", acl("old", DENY)),
    ]
    assert plan(source, copied=source) == []


def test_rules_that_the_link_did_not_bring_are_left_alone() -> None:
    local = [acl("mine"), acl("mine", DENY), acl("both")]
    assert plan([acl("both")], present=local) == []
    assert plan([], present=local) == []
    assert plan([], present=local, copied=[acl("theirs")]) == [("remove", acl("theirs"))]


def test_rules_about_topics_are_about_their_mirrors() -> None:
    assert local_acl(acl("orders"), "eu.") == acl("eu.orders")
    prefixed = acl("ord", pattern_type=PatternType.PREFIXED)
    assert local_acl(prefixed, "eu.") == acl("eu.ord", pattern_type=PatternType.PREFIXED)
    assert local_acl(acl("*"), "eu.") == acl("eu.", pattern_type=PatternType.PREFIXED), "never all topics here"
    assert local_acl(acl("*"), "") == acl("*")
    group = acl("g", resource_type=ResourceType.GROUP)
    assert local_acl(group, "eu.") == group
    assert plan([acl("orders")], copied=[acl("eu.orders")], prefix="eu.") == []


def test_no_rule_allows_anything_while_a_denial_is_missing() -> None:
    source = SourceAcls(frozenset({acl("new"), acl("new", DENY)}), unusable_denies=("why",))
    changes = planned_acls(source, {acl("old"), acl("old", DENY)}, {acl("old"), acl("old", DENY)}, "")
    assert [(each.acl, each.is_removal) for each in changes] == [(acl("old"), True), (acl("new", DENY), False)]
    assert "no ALLOW rule is copied" in problem_of(source)
    assert "cannot be stored here, for example: why" in problem_of(SourceAcls(frozenset(), unusable_allows=("why",)))
    assert not problem_of(SourceAcls(frozenset()))


def answered(*rules: dict[str, Any], name: str = "orders", resource_type: int = 2) -> Any:
    given = {"principal": "User:alice", "host": "*", "operation": 3, "permission_type": 3}
    entries = [SimpleNamespace(**{**given, **rule}) for rule in rules]
    return SimpleNamespace(resource_type=resource_type, pattern_type=3, resource_name=name, acls=entries)


def test_answers_of_sources_are_checked() -> None:
    found = read_acls(
        [
            answered({}, {"permission_type": 2}, {"operation": 99}, {"operation": 99, "permission_type": 2}),
            answered({"host": "h" * 2000, "permission_type": 7}, {"principal": "nobody"}),
            answered({}, resource_type=55),
        ]
    )
    assert found.acls == {acl("orders"), acl("orders", DENY)}
    assert len(found.unusable_denies) == 2, "an unknown permission counts as a denial"
    assert len(found.unusable_allows) == 3
    assert all(len(each) < 300 for each in found.unusable_denies)
    with pytest.raises(SourceUnavailable, match="10,001 ACLs"):
        read_acls([answered(*[{}] * (MAX_COPIED + 1))])
