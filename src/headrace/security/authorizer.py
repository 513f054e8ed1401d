"""Decides whether a principal may do an operation on a resource, by Kafka's rules. Pure.

- A super user may do everything.
- A DENY that matches principal, host, operation and resource wins over every ALLOW.
- READ, WRITE, DELETE and ALTER imply DESCRIBE, and ALTER_CONFIGS implies DESCRIBE_CONFIGS, in an ALLOW only.
- Without a matching ALLOW the answer is no. With `allow_everyone`, it is yes for a resource that no rule is about.

An `Authorizer` is immutable: a change of the rules makes a new one, and with it an empty cache, so a revoked
permission is gone at once. Decisions are cached by their arguments; the cache is emptied when it is full, so that
names chosen by clients cannot make it grow.
"""

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from headrace.model.acls import (
    CLUSTER_NAME,
    EVERYONE,
    IMPLIED_BY,
    WILDCARD,
    Acl,
    AclOperation,
    PatternType,
    Permission,
    Resource,
    ResourceType,
)

_CACHED_MAX = 20_000
_IPV4_MAPPED = "::ffff:"


@dataclass(frozen=True, slots=True)
class Decision:
    """An answer and its reason: the rule that decided, or None where no rule did."""

    is_allowed: bool
    rule: Acl | None
    reason: str


@dataclass(slots=True)
class _Rules:
    """The rules for one principal and resource type, found by name without looking at all of them."""

    by_name: defaultdict[str, list[Acl]] = field(default_factory=lambda: defaultdict(list))
    by_prefix: defaultdict[str, list[Acl]] = field(default_factory=lambda: defaultdict(list))
    prefix_lengths: list[int] = field(default_factory=list)

    def add(self, acl: Acl) -> None:
        if acl.pattern_type is PatternType.LITERAL:
            self.by_name[acl.resource_name].append(acl)
            return
        length = len(acl.resource_name)
        at = bisect_right(self.prefix_lengths, length)
        if not at or self.prefix_lengths[at - 1] != length:
            insort(self.prefix_lengths, length)
        self.by_prefix[acl.resource_name].append(acl)

    def matching(self, name: str) -> Iterator[Acl]:
        yield from self.by_name.get(name, ())
        if name != WILDCARD:
            yield from self.by_name.get(WILDCARD, ())
        for length in self.prefix_lengths:
            if length > len(name):
                return
            yield from self.by_prefix.get(name[:length], ())


class Authorizer:
    def __init__(self, acls: Iterable[Acl], *, super_users: Collection[str] = (), allow_everyone: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._allow_everyone = allow_everyone
        self._rules: defaultdict[tuple[str, ResourceType], _Rules] = defaultdict(_Rules)
        self._of_type: defaultdict[ResourceType, _Rules] = defaultdict(_Rules)
        self.acls = tuple(sorted(set(acls)))
        for acl in self.acls:
            self._rules[acl.principal, acl.resource_type].add(acl)
            self._of_type[acl.resource_type].add(acl)
        self._rules.default_factory = None
        self._of_type.default_factory = None
        self._cached: dict[tuple[str, str, AclOperation, ResourceType, str], bool] = {}

    def allows(self, principal: str, host: str, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        """Whether the operation is allowed. The hot path: one look into a dictionary, mostly."""
        key = (principal, host, operation, kind, name)
        cached = self._cached.get(key)
        if cached is None:
            if len(self._cached) >= _CACHED_MAX:
                self._cached.clear()
            cached = self._cached[key] = self.decide(principal, host, operation, Resource(kind, name)).is_allowed
        return cached

    def is_super_user(self, principal: str) -> bool:
        return principal in self._super_users

    def decide(self, principal: str, host: str, operation: AclOperation, resource: Resource) -> Decision:
        """The decision with its reason, for `headrace acl explain`, the audit log, and `allows`."""
        if principal in self._super_users:
            return Decision(True, None, f"{principal} is a super user")
        matching = [acl for acl in self._about(principal, resource) if _host_matches(acl.host, host)]
        for acl in matching:
            if acl.permission is Permission.DENY and acl.operation in (operation, AclOperation.ALL):
                return Decision(False, acl, f"a rule denies it: {acl}")
        granting = {operation, AclOperation.ALL} | IMPLIED_BY.get(operation, frozenset())
        for acl in matching:
            if acl.permission is Permission.ALLOW and acl.operation in granting:
                return Decision(True, acl, f"a rule allows it: {acl}")
        if self._allow_everyone and not self._has_rules_for(resource):
            return Decision(True, None, f"no rule is about {resource}, and allow.everyone.if.no.acl.found is true")
        return Decision(
            False, None, f"no rule allows {principal} from {host} to {operation.name.lower()} on {resource}"
        )

    def allows_on_any(self, principal: str, host: str, operation: AclOperation, kind: ResourceType) -> bool:
        """Whether there can be a resource of the type on which the operation is allowed.

        An idempotent producer needs WRITE on some topic, for example, before it names one.
        """
        if principal in self._super_users:
            return True
        rules = [acl for acl in self._for_type(principal, kind) if _host_matches(acl.host, host)]
        denies = [
            acl for acl in rules if acl.permission is Permission.DENY and acl.operation in (operation, AclOperation.ALL)
        ]
        if any(acl.resource_name == WILDCARD and acl.pattern_type is PatternType.LITERAL for acl in denies):
            return False
        granting = {operation, AclOperation.ALL} | IMPLIED_BY.get(operation, frozenset())
        allowed = (acl for acl in rules if acl.permission is Permission.ALLOW and acl.operation in granting)
        return self._allow_everyone or any(not _is_dominated(acl, denies) for acl in allowed)

    def operations_on(self, principal: str, host: str, resource: Resource) -> frozenset[AclOperation]:
        """The operations that are allowed on a resource, among those that its type knows."""
        return frozenset(
            operation
            for operation in OPERATIONS[resource.resource_type]
            if self.allows(principal, host, operation, resource.resource_type, resource.name)
        )

    def _about(self, principal: str, resource: Resource) -> Iterator[Acl]:
        for who in (principal, EVERYONE):
            rules = self._rules.get((who, resource.resource_type))
            if rules is not None:
                yield from rules.matching(resource.name)

    def _for_type(self, principal: str, kind: ResourceType) -> Iterator[Acl]:
        for who in (principal, EVERYONE):
            rules = self._rules.get((who, kind))
            if rules is not None:
                for group in (*rules.by_name.values(), *rules.by_prefix.values()):
                    yield from group

    def _has_rules_for(self, resource: Resource) -> bool:
        rules = self._of_type.get(resource.resource_type)
        return rules is not None and any(True for _ in rules.matching(resource.name))


OPERATIONS: dict[ResourceType, frozenset[AclOperation]] = {
    ResourceType.TOPIC: frozenset(
        {
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.CREATE,
            AclOperation.DELETE,
            AclOperation.ALTER,
            AclOperation.DESCRIBE,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
        }
    ),
    ResourceType.GROUP: frozenset(
        {
            AclOperation.READ,
            AclOperation.DELETE,
            AclOperation.DESCRIBE,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
        }
    ),
    ResourceType.CLUSTER: frozenset(
        {
            AclOperation.CREATE,
            AclOperation.ALTER,
            AclOperation.DESCRIBE,
            AclOperation.CLUSTER_ACTION,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
            AclOperation.IDEMPOTENT_WRITE,
        }
    ),
    ResourceType.TRANSACTIONAL_ID: frozenset(
        {AclOperation.DESCRIBE, AclOperation.WRITE, AclOperation.TWO_PHASE_COMMIT}
    ),
    ResourceType.DELEGATION_TOKEN: frozenset({AclOperation.DESCRIBE}),
    ResourceType.USER: frozenset({AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS}),
}
"""The operations that a resource of each type knows; a rule with another one is refused."""


def problem_with(acl: Acl) -> str | None:
    """Why a rule cannot be stored, in one sentence; None if it can."""
    if not acl.resource_name:
        return "the name of a resource must not be empty"
    if acl.resource_type is ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        return f"the only resource of type cluster is {CLUSTER_NAME}, not {acl.resource_name}"
    if acl.operation is not AclOperation.ALL and acl.operation not in OPERATIONS[acl.resource_type]:
        known = ", ".join(sorted(each.name.lower() for each in OPERATIONS[acl.resource_type]))
        return f"{acl.operation.name.lower()} is no operation on a {acl.resource_type.name.lower()}: {known}, or all"
    kind, colon, name = acl.principal.partition(":")
    if not (colon and kind and name):
        return f"{acl.principal!r} is no principal: write User:NAME, or {EVERYONE} for everyone"
    if acl.host != WILDCARD and _network(acl.host) is None:
        return f"{acl.host!r} is no host: write an IP address, a network such as 10.0.0.0/8, or *"
    return None


def _is_dominated(allow: Acl, denies: Iterable[Acl]) -> bool:
    """Whether denials cover everything that a rule allows."""
    for deny in denies:
        if deny.pattern_type is PatternType.PREFIXED:
            if allow.resource_name.startswith(deny.resource_name) and not _is_wildcard(allow):
                return True
        elif allow.pattern_type is PatternType.LITERAL and allow.resource_name == deny.resource_name:
            return True
    return False


def _is_wildcard(acl: Acl) -> bool:
    return acl.pattern_type is PatternType.LITERAL and acl.resource_name == WILDCARD


def _host_matches(rule: str, host: str) -> bool:
    if rule in (WILDCARD, host):
        return True
    network = _network(rule)
    if network is None:
        return False
    try:
        address = ip_address(host.removeprefix(_IPV4_MAPPED))
    except ValueError:
        return False
    return address in network


def _network(text: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(text.removeprefix(_IPV4_MAPPED), strict=False)
    except ValueError:
        return None
