"""`headrace user`: users, their passwords and their access keys."""

from typing import Annotated

import typer

from headrace.cli.names import complete_users
from headrace.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap

user_app = typer.Typer(help="Create, list and delete users, and change their passwords.", no_args_is_help=True)
key_app = typer.Typer(help="Access keys of users, for queues over HTTP (SQS).", no_args_is_help=True)
user_app.add_typer(key_app, name="key")

_NewUser = Annotated[str, typer.Argument(metavar="NAME", help="The name of the user.", show_default=False)]
_User = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The name of the user.", show_default=False, autocompletion=complete_users),
]
_FromStdin = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from standard input: its first line.")
]
_Generate = Annotated[bool, typer.Option("--generate", help="Make up a strong password, and print it once.")]
_Http = Annotated[
    str,
    typer.Option(
        "--http", metavar="URL", envvar="HEADRACE_HTTP", help="The broker's HTTP address; without it brokers are asked."
    ),
]


@user_app.command("create")
def create(
    name: _NewUser,
    password_stdin: _FromStdin = False,
    generate: _Generate = False,
    mechanism: Annotated[
        list[str] | None,
        typer.Option(
            "--mechanism",
            metavar="MECHANISM",
            help="SCRAM-SHA-256 or SCRAM-SHA-512; without it both, so that every client can log in.",
        ),
    ] = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Create a user with a password. It is asked for, read from standard input, or made up: never an argument.

    The password stays on this machine: brokers get and store what verifies it. A new user may do nothing until
    `headrace acl add` allows it.

    Examples:

    * `headrace user create alice`
    * `headrace user create billing --generate`
    * `pass show headrace/billing | headrace user create billing --password-stdin`
    """
    from headrace.cli.user.run import create as work

    work(bootstrap, name, mechanism or [], from_stdin=password_stdin, generates=generate, as_json=as_json)


@user_app.command("list")
def list_users(as_json: AsJson = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """List the users that have a password. Clients with certificates or tokens are not listed.

    Example: `headrace user list`
    """
    from headrace.cli.user.run import show

    show(bootstrap, as_json=as_json)


@user_app.command("passwd")
def passwd(
    name: _User,
    password_stdin: _FromStdin = False,
    generate: _Generate = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Change the password of a user. Connections that are open stay; new ones need the new password.

    Examples:

    * `headrace user passwd alice`
    * `headrace user passwd billing --generate`
    """
    from headrace.cli.user.run import change_password

    change_password(bootstrap, name, from_stdin=password_stdin, generates=generate, as_json=as_json)


@user_app.command("delete")
def delete(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME…", help="The names of the users.", show_default=False, autocompletion=complete_users
        ),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before users are deleted.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete users with their passwords and access keys. Their ACLs stay: remove them with `headrace acl remove`.

    Example: `headrace user delete alice --yes`
    """
    from headrace.cli.user.run import delete_users

    delete_users(bootstrap, names, yes=yes)


@key_app.command("create")
def create_key(
    name: _User, as_json: AsJson = False, http: _Http = "", bootstrap: Bootstrap = DEFAULT_BOOTSTRAP
) -> None:
    """Create an access key of a user, and print its secret once. It signs requests of SQS clients.

    To change keys without an interruption: create a second one, give it to the clients, delete the first one.

    Example: `headrace user key create billing`
    """
    from headrace.cli.user.keys import create as work

    work(bootstrap, http, name, as_json=as_json)


@key_app.command("list")
def list_keys(name: _User, as_json: AsJson = False, http: _Http = "", bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """List the access keys of a user, without their secrets.

    Example: `headrace user key list billing`
    """
    from headrace.cli.user.keys import show

    show(bootstrap, http, name, as_json=as_json)


@key_app.command("delete")
def delete_key(
    name: _User,
    keys: Annotated[list[str], typer.Argument(metavar="KEY…", help="The ids of the keys.", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before keys are deleted.")] = False,
    http: _Http = "",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete access keys of a user: requests that are signed with them are refused at once.

    Example: `headrace user key delete billing HRABCDEFGHIJKLMNOPQR`
    """
    from headrace.cli.user.keys import delete as work

    work(bootstrap, http, name, keys, yes=yes)
