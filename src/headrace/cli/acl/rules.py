"""The rules that the options of `headrace acl` describe, and the options that describe a rule.

A resource is written as `topic:orders`, `group:billing`, `transaction:etl-1`, `queue:emails` (a queue is a topic) or
`cluster`; a name alone is a topic. `topic:logs*` stands for all names that begin with `logs`, `topic:*` for all topics.
"""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.cli.errors import BadArgument
from headrace.cli.names import nearest
from headrace.model.acls import (
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    AclOperation,
    PatternType,
    Permission,
    Resource,
    ResourceType,
)
from headrace.model.users import USER_TYPE, principal_of
from headrace.security.authorizer import problem_with

KINDS = {
    "topic": ResourceType.TOPIC,
    "queue": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transaction": ResourceType.TRANSACTIONAL_ID,
    "txn": ResourceType.TRANSACTIONAL_ID,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.CLUSTER,
    "user": ResourceType.USER,
    "token": ResourceType.DELEGATION_TOKEN,
}
_NAMES = {
    ResourceType.TOPIC: "topic",
    ResourceType.GROUP: "group",
    ResourceType.TRANSACTIONAL_ID: "transaction",
    ResourceType.CLUSTER: "cluster",
    ResourceType.USER: "user",
    ResourceType.DELEGATION_TOKEN: "token",
}
_OPERATIONS = {each.name.replace("_", ""): each for each in AclOperation}
_SHORT = {AclOperation.READ: "--read", AclOperation.WRITE: "--write"}


class Pattern(NamedTuple):
    """The resources that a rule is about."""

    kind: ResourceType
    pattern_type: PatternType
    name: str

    def __str__(self) -> str:
        if self.kind is ResourceType.CLUSTER:
            return "cluster"
        return f"{_NAMES[self.kind]}:{self.name}{'*' if self.pattern_type is PatternType.PREFIXED else ''}"


@dataclass(frozen=True, slots=True)
class Grants:
    """The options of `headrace acl add` and `remove` that say which operations on which resources."""

    read: Sequence[str] = ()
    write: Sequence[str] = ()
    group: Sequence[str] = ()
    transactional_id: Sequence[str] = ()
    producer: Sequence[str] = ()
    consumer: Sequence[str] = ()
    operation: Sequence[str] = ()
    on: Sequence[str] = ()
    admin: bool = False

    @property
    def has_short_forms(self) -> bool:
        """Whether an option is given that says both the operation and the resource."""
        return self.admin or any(
            (self.read, self.write, self.group, self.transactional_id, self.producer, self.consumer)
        )


def principal(user: str) -> str:
    """`alice` and `User:alice` as `User:alice`; `*` for everyone."""
    return user if user.startswith(f"{USER_TYPE}:") else principal_of(user)


def user_of(name: str) -> str:
    """The opposite of `principal`."""
    return name.removeprefix(f"{USER_TYPE}:")


def parse_operation(text: str) -> AclOperation:
    found = _OPERATIONS.get(text.upper().replace("-", "").replace("_", ""))
    if found is None:
        known = [operation_name(each) for each in AclOperation]
        near = nearest(text, known)
        hint = f"did you mean {near}?" if near else f"use one of {', '.join(known)}"
        raise BadArgument(f"there is no operation {text}; {hint}")
    return found


def operation_name(operation: AclOperation) -> str:
    return operation.name.lower().replace("_", "-")


def parse_pattern(text: str, default: ResourceType = ResourceType.TOPIC) -> Pattern:
    kind_text, colon, name = text.partition(":")
    if text.lower() == "cluster" or (colon and kind_text.lower() == "cluster"):
        if name not in ("", CLUSTER_NAME, WILDCARD):
            raise BadArgument(f"{text}: there is only one cluster; write cluster")
        return Pattern(ResourceType.CLUSTER, PatternType.LITERAL, CLUSTER_NAME)
    kind = default
    if colon and kind_text.lower() in KINDS:
        kind = KINDS[kind_text.lower()]
    elif colon and default is ResourceType.TOPIC:
        near = nearest(kind_text, KINDS)
        hint = f"did you mean {near}:{name}?" if near else f"write one of {', '.join(f'{each}:NAME' for each in KINDS)}"
        raise BadArgument(f"{text} is not a resource; {hint}")
    else:
        name = text
    if not name:
        raise BadArgument(f"{text} names no {_NAMES[kind]}: write {_NAMES[kind]}:NAME, or {_NAMES[kind]}:'*' for all")
    if name != WILDCARD and name.endswith(WILDCARD):
        return Pattern(kind, PatternType.PREFIXED, name[:-1])
    return Pattern(kind, PatternType.LITERAL, name)


def parse_resource(text: str) -> Resource:
    """One resource by its exact name."""
    found = parse_pattern(text)
    if found.pattern_type is PatternType.PREFIXED or found.name == WILDCARD:
        raise BadArgument(f"{text} stands for many resources: give the name of one")
    return Resource(found.kind, found.name)


def rules(users: Iterable[str], grants: Grants, *, hosts: Sequence[str] = (), denies: bool = False) -> tuple[Acl, ...]:
    """The rules that the options describe. `BadArgument` if they describe none, or an invalid one."""
    permission = Permission.DENY if denies else Permission.ALLOW
    pairs = list(dict.fromkeys(_granted(grants)))
    if not pairs:
        raise BadArgument(
            "which permission? Give --read, --write, --group, --producer, --consumer, or --operation with --on"
        )
    made = [
        Acl(pattern.kind, pattern.pattern_type, pattern.name, principal(user), host, operation, permission)
        for user in users
        for pattern, operation in pairs
        for host in hosts or (WILDCARD,)
    ]
    for acl in made:
        if (problem := problem_with(acl)) is not None:
            raise BadArgument(problem)
    return tuple(sorted(set(made)))


def _granted(grants: Grants) -> Iterator[tuple[Pattern, AclOperation]]:
    yield from ((parse_pattern(each), AclOperation.READ) for each in grants.read)
    yield from ((parse_pattern(each), AclOperation.WRITE) for each in grants.write)
    for each in grants.group:
        yield parse_pattern(each, ResourceType.GROUP), AclOperation.READ
    for each in grants.transactional_id:
        pattern = parse_pattern(each, ResourceType.TRANSACTIONAL_ID)
        yield from ((pattern, operation) for operation in (AclOperation.WRITE, AclOperation.DESCRIBE))
    for each in grants.producer:
        pattern = parse_pattern(each)
        yield from ((pattern, one) for one in (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE))
    if grants.consumer and not grants.group:
        raise BadArgument("a consumer needs its group: add --group NAME, or --group '*' for any")
    for each in grants.consumer:
        yield from ((parse_pattern(each), one) for one in (AclOperation.READ, AclOperation.DESCRIBE))
    if bool(grants.operation) != bool(grants.on):
        raise BadArgument("--operation and --on belong together: --operation describe --on topic:orders")
    for each in grants.on:
        yield from ((parse_pattern(each), parse_operation(one)) for one in grants.operation)
    if grants.admin:
        yield from _everything()


def _everything() -> Iterator[tuple[Pattern, AclOperation]]:
    for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID):
        yield Pattern(kind, PatternType.LITERAL, WILDCARD), AclOperation.ALL
    yield Pattern(ResourceType.CLUSTER, PatternType.LITERAL, CLUSTER_NAME), AclOperation.ALL


def pattern_of(acl: Acl) -> Pattern:
    return Pattern(acl.resource_type, acl.pattern_type, acl.resource_name)


def adding(user: str, operation: AclOperation, resource: Resource) -> str:
    """The command that allows a user an operation on a resource."""
    pattern = Pattern(resource.resource_type, PatternType.LITERAL, resource.name)
    return _command("add", user_of(principal(user)), *_options(operation, pattern))


def removing(acl: Acl) -> str:
    """The command that removes one rule."""
    options = ["--operation", operation_name(acl.operation), "--on", str(pattern_of(acl))]
    if acl.permission is Permission.DENY:
        options.append("--deny")
    if acl.host != WILDCARD:
        options += ["--host", acl.host]
    return _command("remove", user_of(acl.principal), *options)


def _options(operation: AclOperation, pattern: Pattern) -> Sequence[str]:
    if operation is AclOperation.READ and pattern.kind is ResourceType.GROUP:
        return ("--group", pattern.name)
    if operation in _SHORT:
        return (_SHORT[operation], str(pattern))
    return ("--operation", operation_name(operation), "--on", str(pattern))


def _command(*words: str) -> str:
    return shlex.join(["headrace", "acl", *words])
