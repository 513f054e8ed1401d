"""The work of `headrace user`: users and their passwords, through Kafka's API."""

import secrets
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from headrace.cli.cluster.view import connected
from headrace.cli.errors import BadArgument, CommandFailed
from headrace.cli.names import nearest, no_such
from headrace.cli.output import count, print_json, say, table
from headrace.model.users import principal_of
from headrace.security.acl_filter import AclFilter
from headrace.security.sasl.saslprep import is_prepared
from headrace.security.sasl.scram import HASHES
from headrace.wire import Cluster, Refused

_GENERATED_BYTES = 24
_LISTED_BY = "headrace user list"


def create(
    bootstrap: str, name: str, mechanisms: Sequence[str], *, from_stdin: bool, generates: bool, as_json: bool
) -> None:
    if not name or ":" in name:
        raise BadArgument("the name of a user is not empty and has no colon")
    chosen = [_mechanism(each) for each in dict.fromkeys(mechanisms)] or list(HASHES)
    _check_source(from_stdin=from_stdin, generates=generates)
    with connected(bootstrap) as cluster:
        if name in cluster.users():
            raise CommandFailed(f"the user {name} exists already; `headrace user passwd {name}` changes its password")
        password = _password(name, from_stdin=from_stdin, generates=generates)
        _set(cluster, name, password, chosen)
    _report("Created the user", name, password if generates else None, chosen, as_json=as_json)


def show(bootstrap: str, *, as_json: bool) -> None:
    with connected(bootstrap) as cluster:
        users = cluster.users()
    if as_json:
        print_json([{"user": name, "mechanisms": [each.mechanism for each in found]} for name, found in users.items()])
    elif users:
        rows = [(name, ", ".join(each.mechanism for each in found)) for name, found in users.items()]
        table(None, [("USER", "left"), ("MECHANISMS", "left")], rows)
    else:
        print("There are no users; `headrace user create NAME` makes one")


def change_password(bootstrap: str, name: str, *, from_stdin: bool, generates: bool, as_json: bool) -> None:
    """Set the password for all mechanisms that the user has: the old one must not stay valid for one of them."""
    _check_source(from_stdin=from_stdin, generates=generates)
    with connected(bootstrap) as cluster:
        users = cluster.users()
        if name not in users:
            raise CommandFailed(no_such("user", name, users, _LISTED_BY))
        password = _password(name, from_stdin=from_stdin, generates=generates)
        mechanisms = [each.mechanism for each in users[name]]
        _set(cluster, name, password, mechanisms)
    _report("Changed the password of", name, password if generates else None, mechanisms, as_json=as_json)


def delete_users(bootstrap: str, names: Sequence[str], *, yes: bool) -> None:
    with connected(bootstrap) as cluster:
        users = cluster.users()
        for name in names:
            if name not in users:
                raise CommandFailed(f"{no_such('user', name, users, _LISTED_BY)}; none was deleted")
        if not yes:
            if not sys.stdin.isatty():
                raise BadArgument("this deletes users and there is no terminal to confirm on: add --yes")
            typer.confirm(f"Delete {', '.join(names)} with passwords and access keys?", abort=True)
        for name in dict.fromkeys(names):
            for each in users[name]:
                cluster.delete_credential(name, each.mechanism)
            print(f"Deleted the user {name}")
        _hint_at_acls(cluster, names)


def _hint_at_acls(cluster: Cluster, names: Sequence[str]) -> None:
    for name in dict.fromkeys(names):
        try:
            left = len(cluster.acls(AclFilter(principal=principal_of(name))))
        except Refused:
            return
        if left:
            say(f"{count(left, 'ACL')} about {name} stay; `headrace acl remove {name}` removes them")


def _set(cluster: Cluster, name: str, password: str, mechanisms: Sequence[str]) -> None:
    # One request for each: a user may be only once in a request.
    for mechanism in mechanisms:
        cluster.set_password(name, password, mechanism)


def _mechanism(text: str) -> str:
    known = text.upper().replace("_", "-")
    if known not in HASHES:
        near = nearest(known, HASHES)
        raise BadArgument(f"there is no mechanism {text} with passwords; use {near or ' or '.join(HASHES)}")
    return known


def _check_source(*, from_stdin: bool, generates: bool) -> None:
    if from_stdin and generates:
        raise BadArgument("--password-stdin and --generate: choose one")
    if not (from_stdin or generates or sys.stdin.isatty()):
        raise BadArgument("there is no terminal to ask for a password on: use --password-stdin or --generate")


def _password(name: str, *, from_stdin: bool, generates: bool) -> str:
    if generates:
        return secrets.token_urlsafe(_GENERATED_BYTES)
    if from_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    else:
        password = str(typer.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True))
    if not password:
        raise BadArgument("the password is empty")
    if not is_prepared(password):
        raise BadArgument("the password has characters that clients encode differently; choose other ones")
    return password


def _report(done: str, name: str, generated: str | None, mechanisms: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        shown: Mapping[str, Any] = {"user": name, "mechanisms": list(mechanisms)}
        print_json({**shown, "password": generated} if generated is not None else shown)
        return
    if generated is None:
        print(f"{done} {name}")
        return
    say(f"{done} {name}; its password is not shown again:")
    print(generated)
