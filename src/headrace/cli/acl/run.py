"""The work of `headrace acl`: rules are added, listed, removed and explained."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer

from headrace.cli.acl.rules import (
    Grants,
    adding,
    operation_name,
    parse_operation,
    parse_pattern,
    parse_resource,
    pattern_of,
    principal,
    removing,
    rules,
    user_of,
)
from headrace.cli.cluster.view import connected
from headrace.cli.errors import BadArgument, CommandFailed
from headrace.cli.names import nearest
from headrace.cli.output import count, print_json, say, table
from headrace.model.acls import EVERYONE, WILDCARD, Acl, PatternType, Permission
from headrace.security.acl_filter import AclFilter, PatternFilter
from headrace.security.authorizer import Authorizer, Decision
from headrace.wire import Cluster, ConfigResource, ErrorCode, Refused

_SUPER_USERS, _ALLOW_EVERYONE = "super.users", "allow.everyone.if.no.acl.found"
_ANY_HOST = "any host"
_OFF = "authorization is off on this cluster: every client may do everything"


def add(
    bootstrap: str, users: Sequence[str], grants: Grants, hosts: Sequence[str], *, denies: bool, as_json: bool
) -> None:
    wanted = rules(users, grants, hosts=hosts, denies=denies)
    with _connected(bootstrap) as cluster:
        before = set(cluster.acls())
        cluster.create_acls(wanted)
        _hint_at_users(cluster, users)
    if as_json:
        print_json([{**_plain(each), "added": each not in before} for each in wanted])
        return
    for each in wanted:
        print(f"{'Exists already' if each in before else 'Added'}: {each}")


def show(bootstrap: str, wanted: AclFilter, *, as_json: bool) -> None:
    with _connected(bootstrap) as cluster:
        found = cluster.acls(wanted)
    if as_json:
        print_json([_plain(each) for each in found])
    elif found:
        _print(found)
    elif wanted == AclFilter():
        print("There are no ACLs; `headrace acl add USER --read topic:NAME` makes one")
    else:
        print("No ACL is like that; `headrace acl list` shows all")


def remove(
    bootstrap: str,
    users: Sequence[str],
    grants: Grants,
    hosts: Sequence[str],
    *,
    denies: bool,
    yes: bool,
    as_json: bool,
) -> None:
    with _connected(bootstrap) as cluster:
        existing = cluster.acls()
        found = _selected(existing, users, grants, hosts, denies=denies)
        if not found:
            raise CommandFailed(_nothing_to_remove(existing, users))
        if not yes:
            _confirm(found)
        removed = cluster.delete_acls(found)
    if as_json:
        print_json([_plain(each) for each in removed])
        return
    for each in removed:
        print(f"Removed: {each}")


def _selected(
    existing: Iterable[Acl], users: Sequence[str], grants: Grants, hosts: Sequence[str], *, denies: bool
) -> list[Acl]:
    """The rules that `add` with the same options makes; with --operation or --on alone, all that have these."""
    if grants.has_short_forms or (grants.operation and grants.on):
        wanted = set(rules(users, grants, hosts=hosts, denies=denies))
        if not hosts:
            # Without --host a rule is removed wherever it holds.
            wanted |= {each for each in existing if _anywhere(each) in wanted}
        return [each for each in existing if each in wanted]
    principals = set(map(principal, users))
    operations = {parse_operation(each) for each in grants.operation}
    patterns = {parse_pattern(each) for each in grants.on}
    return [
        each
        for each in existing
        if each.principal in principals
        and (not operations or each.operation in operations)
        and (not patterns or pattern_of(each) in patterns)
        and (not hosts or each.host in hosts)
        and (not denies or each.permission is Permission.DENY)
    ]


def _anywhere(acl: Acl) -> Acl:
    return Acl(
        acl.resource_type,
        acl.pattern_type,
        acl.resource_name,
        acl.principal,
        WILDCARD,
        acl.operation,
        acl.permission,
    )


def _nothing_to_remove(existing: Iterable[Acl], users: Sequence[str]) -> str:
    known = {user_of(each.principal) for each in existing}
    strangers = [each for each in map(user_of, users) if each not in known]
    for each in strangers:
        if (near := nearest(each, known)) is not None:
            return f"no ACL is about {each}; did you mean {near}?"
    return "no ACL is like that, so none was removed; `headrace acl list` shows all"


def _confirm(found: Sequence[Acl]) -> None:
    if not sys.stdin.isatty():
        raise BadArgument(f"this removes {count(len(found), 'rule')} and there is no terminal to confirm on: add --yes")
    for each in found:
        say(f"  {each}")
    typer.confirm(f"Remove {count(len(found), 'rule')}?", abort=True, err=True)


def explain(
    bootstrap: str, user: str, operation_text: str, resource_text: str, host: str | None, *, as_json: bool
) -> None:
    """Say whether a user may do something, by which rule, and what would change it."""
    operation, resource = parse_operation(operation_text), parse_resource(resource_text)
    with connected(bootstrap) as cluster:
        authorizer = _authorizer(cluster)
        if authorizer is None:
            decision = Decision(True, None, _OFF)
        else:
            decision = authorizer.decide(principal(user), host or _ANY_HOST, operation, resource)
            _hint_at_users(cluster, [user])
            if host is None and any(_is_about_a_host(each, user) for each in authorizer.acls):
                say("note: some rules are about certain hosts; they count with --host ADDRESS only")
    advice = None
    if not decision.is_allowed:
        advice = adding(user, operation, resource) if decision.rule is None else removing(decision.rule)
    if as_json:
        print_json(
            {
                "principal": principal(user),
                "operation": operation_name(operation),
                "resource": str(resource),
                "host": host,
                "allowed": decision.is_allowed,
                "reason": decision.reason,
                "rule": None if decision.rule is None else _plain(decision.rule),
                "command": advice,
            }
        )
    else:
        print(f"{'yes' if decision.is_allowed else 'no'}: {decision.reason}")
        if advice is not None:
            print(f"{'To allow it' if decision.rule is None else 'To remove that rule'}: {advice}")
    if not decision.is_allowed:
        raise typer.Exit(1)


def _is_about_a_host(acl: Acl, user: str) -> bool:
    return acl.host != WILDCARD and acl.principal in (principal(user), EVERYONE)


def _authorizer(cluster: Cluster) -> Authorizer | None:
    """The decisions of the brokers, made here; None if authorization is off."""
    try:
        acls = cluster.acls()
    except Refused as error:
        if error.code is ErrorCode.security_disabled:
            return None
        raise
    settings = _settings(cluster)
    return Authorizer(
        acls,
        super_users=[each.strip() for each in settings.get(_SUPER_USERS, "").split(";") if each.strip()],
        allow_everyone=settings.get(_ALLOW_EVERYONE, "").lower() == "true",
    )


def _settings(cluster: Cluster) -> dict[str, str]:
    number = next((each for each, node in cluster.describe().brokers.items() if not node.is_fenced), None)
    if number is None:
        return {}
    try:
        found = cluster.settings_of(ConfigResource.BROKER, str(number))
    except Refused as error:
        say(f"note: {_SUPER_USERS} and {_ALLOW_EVERYONE} are not known here ({error}), and taken as not set")
        return {}
    return {each.name: each.value for each in found if each.value is not None}


def acl_filter(user: str | None, on: str | None, operation: str | None, host: str | None, *, denies: bool) -> AclFilter:
    """The filter of `headrace acl list`. A name selects the rules that are about it, also by a prefix or by `*`."""
    pattern = None if on is None else parse_pattern(on)
    filter_type = PatternFilter.ANY
    if pattern is not None:
        is_name = pattern.pattern_type is PatternType.LITERAL and pattern.name != WILDCARD
        filter_type = PatternFilter.MATCH if is_name else PatternFilter(pattern.pattern_type)
    return AclFilter(
        resource_type=None if pattern is None else pattern.kind,
        pattern=filter_type,
        resource_name=None if pattern is None else pattern.name,
        principal=None if user is None else principal(user),
        host=host,
        operation=None if operation is None else parse_operation(operation),
        permission=Permission.DENY if denies else None,
    )


@contextmanager
def _connected(bootstrap: str) -> Iterator[Cluster]:
    with connected(bootstrap) as cluster:
        try:
            yield cluster
        except Refused as error:
            if error.code is ErrorCode.security_disabled:
                raise CommandFailed(f"{_OFF}; `headrace secure` turns it on") from None
            raise


def _hint_at_users(cluster: Cluster, users: Iterable[str]) -> None:
    """Hint at a name that may be misspelt. Users may also come from certificates or tokens, so it is no error."""
    try:
        known = cluster.users()
    except Refused:
        return
    for name in map(user_of, users):
        if name != WILDCARD and name not in known and (near := nearest(name, known)) is not None:
            say(f"note: there is no user {name} with a password; did you mean {near}?")


def _plain(acl: Acl) -> dict[str, Any]:
    return {
        "principal": acl.principal,
        "permission": acl.permission.name.lower(),
        "operation": operation_name(acl.operation),
        "resource_type": acl.resource_type.name.lower(),
        "resource_name": acl.resource_name,
        "pattern_type": acl.pattern_type.name.lower(),
        "host": acl.host,
    }


def _print(found: Sequence[Acl]) -> None:
    columns = [(head, "left") for head in ("PRINCIPAL", "PERMISSION", "OPERATION", "RESOURCE", "HOST")]
    ordered = sorted(found, key=lambda acl: (acl.principal, acl))
    rows = [
        (acl.principal, acl.permission.name.lower(), operation_name(acl.operation), str(pattern_of(acl)), acl.host)
        for acl in ordered
    ]
    table(None, columns, rows)
