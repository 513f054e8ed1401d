"""`headrace audit`: read the audit log."""

from typing import Annotated, Literal

import typer

from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap

audit_app = typer.Typer(help="Read the audit log: who did what, and who was denied.", no_args_is_help=True)

_Principal = Annotated[
    str | None,
    typer.Option("--principal", "-u", metavar="NAME", help="Only events of this principal: alice or User:alice."),
]
_Lines = Annotated[bool, typer.Option("--json", help="Print each event as one line of JSON.")]


@audit_app.command("tail")
def tail(
    count: Annotated[int, typer.Option("--count", "-n", min=0, help="How many of the latest events to print.")] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more, until Ctrl-C.")] = False,
    principal: _Principal = None,
    denied: Annotated[bool, typer.Option("--denied", help="Only denied requests and failed logins.")] = False,
    as_json: _Lines = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print the latest events.

    Examples:

    * `headrace audit tail --denied`
    * `headrace audit tail --follow --principal alice --json`
    """
    from headrace.cli.audit.filter import REFUSED, AuditFilter
    from headrace.cli.audit.run import print_latest

    wanted = AuditFilter(principal=principal, outcomes=REFUSED if denied else frozenset())
    print_latest(bootstrap, wanted, count, follow=follow, as_json=as_json)


@audit_app.command("search")
def search(
    since: Annotated[str, typer.Option("--since", metavar="TIME", help="From 2026-01-31T12:00, or 7d ago.")] = "7d",
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Up to a time, not included.")] = None,
    principal: _Principal = None,
    resource: Annotated[
        str | None,
        typer.Option("--resource", "-r", metavar="NAME", help="Only events on this resource: orders or topic/orders."),
    ] = None,
    action: Annotated[
        str | None, typer.Option("--action", "-a", metavar="NAME", help="Only this API or action: DeleteTopics.")
    ] = None,
    outcome: Annotated[
        Literal["success", "failure", "denied", "allowed"] | None,
        typer.Option("--outcome", "-o", help="Only events with this outcome."),
    ] = None,
    event_class: Annotated[
        Literal["authentication", "authorization", "admin", "produce", "consume"] | None,
        typer.Option("--class", "-c", help="Only events of this class."),
    ] = None,
    as_json: _Lines = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print the events of a period, oldest first.

    Examples:

    * `headrace audit search --since 7d --outcome denied`
    * `headrace audit search --since 2026-03-01 --class admin --resource orders`
    """
    from headrace.cli.audit.filter import AuditFilter
    from headrace.cli.audit.run import print_period
    from headrace.cli.times import parse_time

    wanted = AuditFilter(principal, resource, action, frozenset([outcome] if outcome else ()), event_class)
    print_period(bootstrap, wanted, parse_time(since), None if until is None else parse_time(until), as_json=as_json)
