"""Which ACLs a link creates and removes here so that those of its source are in force. Pure.

The order keeps every state in between from allowing more than the source did before or does now: ALLOW rules are
removed, DENY rules created, ALLOW rules created, DENY rules removed. So a plan may be carried out in parts.

A rule that is here already and was not brought by the link is left alone, whatever happens to it at the source. If a
DENY rule of the source cannot be stored here, no ALLOW rule is created and no DENY rule removed.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from itertools import chain

from headrace.model.acls import WILDCARD, Acl, PatternType, Permission, ResourceType


@dataclass(frozen=True, slots=True)
class SourceAcls:
    """The ACLs of a source cluster."""

    acls: frozenset[Acl]
    unusable_denies: tuple[str, ...] = ()
    """Why DENY rules of the source cannot be stored here, each in words."""
    unusable_allows: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AclChange:
    acl: Acl
    is_removal: bool


def planned_acls(
    source: SourceAcls, present: Collection[Acl], copied: Collection[Acl], prefix: str
) -> tuple[AclChange, ...]:
    """The changes, in the order in which they are made.

    `present` are all ACLs here, `copied` those of them that the link has brought.
    """
    wanted = {local_acl(acl, prefix) for acl in source.acls}
    new, old = wanted.difference(present), set(copied) - wanted
    steps: list[Iterable[AclChange]] = [_removals(old, Permission.ALLOW), _creations(new, Permission.DENY)]
    if not source.unusable_denies:
        steps += [_creations(new, Permission.ALLOW), _removals(old, Permission.DENY)]
    return tuple(chain.from_iterable(steps))


def local_acl(acl: Acl, prefix: str) -> Acl:
    """A rule of the source as it is here: one about topics is about their mirrors, whose names have the prefix."""
    if not prefix or acl.resource_type is not ResourceType.TOPIC:
        return acl
    if acl.pattern_type is PatternType.LITERAL and acl.resource_name == WILDCARD:
        return replace(acl, pattern_type=PatternType.PREFIXED, resource_name=prefix)
    return replace(acl, resource_name=prefix + acl.resource_name)


def problem_of(source: SourceAcls) -> str:
    """What of the source is not in force here, in one sentence; empty if everything is."""
    if source.unusable_denies:
        return (
            f"{len(source.unusable_denies)} DENY rules of the source cannot be stored here, for example: "
            f"{source.unusable_denies[0]}. So no ALLOW rule is copied until they are changed or removed at the source"
        )
    if source.unusable_allows:
        return (
            f"{len(source.unusable_allows)} ALLOW rules of the source cannot be stored here, for example: "
            f"{source.unusable_allows[0]}"
        )
    return ""


def _removals(acls: Iterable[Acl], permission: Permission) -> Iterable[AclChange]:
    return (AclChange(acl, True) for acl in sorted(acls) if acl.permission is permission)


def _creations(acls: Iterable[Acl], permission: Permission) -> Iterable[AclChange]:
    return (AclChange(acl, False) for acl in sorted(acls) if acl.permission is permission)
