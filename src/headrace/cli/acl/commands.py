"""`headrace acl`: who may do what."""

from typing import Annotated

import typer

from headrace.cli.names import complete_groups, complete_operations, complete_resources, complete_topics, complete_users
from headrace.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap

acl_app = typer.Typer(help="Say who may do what: add, list, remove and explain ACLs.", no_args_is_help=True)

_User = Annotated[
    str,
    typer.Argument(
        metavar="USER",
        help="The name of a user, as alice or User:alice; '*' for everyone.",
        show_default=False,
        autocompletion=complete_users,
    ),
]
_Users = Annotated[
    list[str],
    typer.Argument(
        metavar="USER…",
        help="The names of users, as alice or User:alice; '*' for everyone.",
        show_default=False,
        autocompletion=complete_users,
    ),
]


def _resources(option: str, what: str) -> object:
    return typer.Option(option, metavar="RESOURCE", help=what, autocompletion=complete_resources)


_Read = Annotated[list[str] | None, _resources("--read", "Read this, as topic:orders; may be given again.")]
_Write = Annotated[list[str] | None, _resources("--write", "Write to this, as topic:logs*; may be given again.")]
_Group = Annotated[
    list[str] | None,
    typer.Option("--group", metavar="GROUP", help="Join this consumer group.", autocompletion=complete_groups),
]
_Transactional = Annotated[
    list[str] | None, typer.Option("--transactional-id", metavar="ID", help="Use this transactional id.")
]
_Producer = Annotated[
    list[str] | None,
    typer.Option(
        "--producer",
        metavar="TOPIC",
        help="All that a producer to this topic needs: write, describe, create.",
        autocompletion=complete_topics,
    ),
]
_Consumer = Annotated[
    list[str] | None,
    typer.Option(
        "--consumer",
        metavar="TOPIC",
        help="All that a consumer of this topic needs, with --group: read, describe.",
        autocompletion=complete_topics,
    ),
]
_Operation = Annotated[
    list[str] | None,
    typer.Option(
        "--operation",
        metavar="OPERATION",
        help="Any operation, with --on: all, read, write, create, delete, alter, describe …",
        autocompletion=complete_operations,
    ),
]
_On = Annotated[
    list[str] | None, _resources("--on", "The resource of --operation: topic:orders, group:billing, cluster.")
]
_Admin = Annotated[bool, typer.Option("--admin", help="Everything: all operations on all resources.")]
_Deny = Annotated[bool, typer.Option("--deny", help="A rule that forbids; it wins over all that allow.")]
_Host = Annotated[
    list[str] | None,
    typer.Option("--host", metavar="ADDRESS", help="Only from this IP address or network, as 10.0.0.0/8."),
]


@acl_app.command("add")
def add(
    users: _Users,
    read: _Read = None,
    write: _Write = None,
    group: _Group = None,
    transactional_id: _Transactional = None,
    producer: _Producer = None,
    consumer: _Consumer = None,
    operation: _Operation = None,
    on: _On = None,
    admin: _Admin = False,
    deny: _Deny = False,
    host: _Host = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Allow users something, or forbid it with `--deny`. It holds at once, also on connections that are open.

    A resource is `topic:NAME`, `queue:NAME` (a queue is a topic), `group:NAME`, `transaction:ID` or `cluster`; a name
    alone is a topic. With `*` at its end it stands for all names that begin so; put it in quotes.

    Examples:

    * `headrace acl add alice --read topic:orders --write 'topic:logs*' --group billing`
    * `headrace acl add shop --producer orders`
    * `headrace acl add billing --consumer orders --group billing`
    * `headrace acl add bob --operation delete --on topic:orders --deny --host 10.0.0.0/8`
    * `headrace acl add carol --admin`
    """
    from headrace.cli.acl.rules import Grants
    from headrace.cli.acl.run import add as work

    grants = Grants(
        read or (),
        write or (),
        group or (),
        transactional_id or (),
        producer or (),
        consumer or (),
        operation or (),
        on or (),
        admin,
    )
    work(bootstrap, users, grants, host or [], denies=deny, as_json=as_json)


@acl_app.command("list")
def list_acls(
    user: Annotated[
        str | None,
        typer.Argument(
            metavar="[USER]", help="Only rules about this user.", show_default=False, autocompletion=complete_users
        ),
    ] = None,
    on: Annotated[
        str | None, _resources("--on", "Only rules about this: topic:orders has those of 'topic:ord*', too.")
    ] = None,
    operation: Annotated[
        str | None,
        typer.Option(
            "--operation",
            metavar="OPERATION",
            help="Only rules about this operation.",
            autocompletion=complete_operations,
        ),
    ] = None,
    deny: Annotated[bool, typer.Option("--deny", help="Only rules that forbid.")] = False,
    host: Annotated[str | None, typer.Option("--host", metavar="ADDRESS", help="Only rules for this host.")] = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List the ACLs.

    Examples:

    * `headrace acl list`
    * `headrace acl list alice`
    * `headrace acl list --on topic:orders` (all rules that match it: by its name, by a prefix, or for all topics)
    """
    from headrace.cli.acl.run import acl_filter, show

    show(bootstrap, acl_filter(user, on, operation, host, denies=deny), as_json=as_json)


@acl_app.command("remove")
def remove(
    users: _Users,
    read: _Read = None,
    write: _Write = None,
    group: _Group = None,
    transactional_id: _Transactional = None,
    producer: _Producer = None,
    consumer: _Consumer = None,
    operation: _Operation = None,
    on: _On = None,
    admin: _Admin = False,
    deny: Annotated[bool, typer.Option("--deny", help="Rules that forbid, instead of those that allow.")] = False,
    host: _Host = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before rules are removed.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Remove the rules that `headrace acl add` with the same options makes, or all of a user. Shows them, and asks.

    It holds at once, also on connections that are open. `--operation` or `--on` alone selects all rules with it.

    Examples:

    * `headrace acl remove alice --read topic:orders`
    * `headrace acl remove alice --on topic:orders`
    * `headrace acl remove alice --yes`
    """
    from headrace.cli.acl.rules import Grants
    from headrace.cli.acl.run import remove as work

    grants = Grants(
        read or (),
        write or (),
        group or (),
        transactional_id or (),
        producer or (),
        consumer or (),
        operation or (),
        on or (),
        admin,
    )
    work(bootstrap, users, grants, host or [], denies=deny, yes=yes, as_json=as_json)


@acl_app.command("explain")
def explain(
    user: _User,
    operation: Annotated[
        str,
        typer.Argument(
            metavar="OPERATION",
            help="read, write, create, delete, alter, describe …",
            show_default=False,
            autocompletion=complete_operations,
        ),
    ],
    resource: Annotated[
        str,
        typer.Argument(
            metavar="RESOURCE",
            help="topic:NAME, group:NAME, transaction:ID or cluster.",
            show_default=False,
            autocompletion=complete_resources,
        ),
    ],
    host: Annotated[
        str | None, typer.Option("--host", metavar="ADDRESS", help="The IP address that the client connects from.")
    ] = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Say whether a user may do something, and which rule decides; or which is missing, and the command that adds it.

    Exit code 0 if it is allowed, 1 if not.

    Examples:

    * `headrace acl explain alice read topic:orders`
    * `headrace acl explain alice write topic:orders --host 10.1.2.3`
    """
    from headrace.cli.acl.run import explain as work

    work(bootstrap, user, operation, resource, host, as_json=as_json)
