"""The work of `headrace user key`, through the HTTP API."""

import sys
from collections.abc import Sequence
from urllib.parse import quote

import typer

from headrace.cli.errors import BadArgument
from headrace.cli.http_api import HttpApi
from headrace.cli.output import print_json, table


def create(bootstrap: str, http: str, user: str, *, as_json: bool) -> None:
    made = HttpApi(bootstrap, http).post(_path(user), {})
    if as_json:
        print_json(made)
        return
    print(f"access key  {made['id']}\nsecret      {made['secret']}")
    print(
        f"\nThe secret is not shown again. For the SDK and commands: HEADRACE_ACCESS_KEY={made['id']}:SECRET",
        file=sys.stderr,
    )


def show(bootstrap: str, http: str, user: str, *, as_json: bool) -> None:
    keys = HttpApi(bootstrap, http).get(_path(user))["keys"]
    if as_json:
        print_json(keys)
    elif keys:
        table(None, [("KEY", "left"), ("CREATED", "left")], [(each["id"], each["created"]) for each in keys])
    else:
        print(f"{user} has no access keys; `headrace user key create {user}` makes one")


def delete(bootstrap: str, http: str, user: str, keys: Sequence[str], *, yes: bool) -> None:
    api = HttpApi(bootstrap, http)
    if not yes:
        if not sys.stdin.isatty():
            raise BadArgument("this deletes access keys and there is no terminal to confirm on: add --yes")
        typer.confirm(f"Delete {', '.join(keys)}? Clients that use them are refused at once", abort=True)
    for each in keys:
        api.delete(f"{_path(user)}/{quote(each, safe='')}")
        print(f"Deleted the access key {each}")


def _path(user: str) -> str:
    return f"/users/{quote(user, safe='')}/keys"
