"""`headrace txn`: list, describe and abort transactions."""

from typing import Annotated

import typer

from headrace.cli.errors import BadArgument
from headrace.cli.names import complete_transactions
from headrace.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap

txn_app = typer.Typer(help="List, describe and abort transactions.", no_args_is_help=True)

_Id = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The transactional id of the producer.",
        show_default=False,
        autocompletion=complete_transactions,
    ),
]


@txn_app.command("list")
def list_transactions(
    open_only: Annotated[bool, typer.Option("--open", help="Only transactions that are not finished.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List the transactional ids with the state of their last transaction.

    Example: `headrace txn list --open`
    """
    from headrace.cli.output import print_json, table
    from headrace.cli.txn.run import list_all

    found = list_all(bootstrap, open_only=open_only)
    if as_json:
        print_json(found)
    elif found:
        rows = [(each["transactional_id"], each["state"], each["producer_id"], each["coordinator"]) for each in found]
        columns = [("TRANSACTIONAL ID", "left"), ("STATE", "left"), ("PRODUCER", "right"), ("COORDINATOR", "right")]
        table(None, columns, rows)
    else:
        print("There are no open transactions" if open_only else "There are no transactional producers")


@txn_app.command("describe")
def describe(transactional_id: _Id, as_json: AsJson = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Show a transaction: its state, since when it is open, and the partitions in it.

    Example: `headrace txn describe billing-1`
    """
    from headrace.cli.output import print_json
    from headrace.cli.txn.run import describe_transaction, print_transaction

    description = describe_transaction(bootstrap, transactional_id)
    if as_json:
        print_json(description)
    else:
        print_transaction(description)


@txn_app.command("abort")
def abort(
    transactional_id: _Id,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before it is aborted.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Abort the open transaction of a transactional id, and fence the producer that runs it.

    What the transaction wrote is never seen by readers of committed messages, and readers that waited for its end go
    on. A producer that is still alive gets an error at its next call and must be recreated, for example by a restart.

    Example: `headrace txn abort billing-1 --yes`
    """
    import sys

    from headrace.cli.txn.run import abort_transaction

    if not yes:
        if not sys.stdin.isatty():
            raise BadArgument("this aborts the transaction and there is no terminal to confirm on: add --yes")
        typer.confirm(f"Abort the transaction of {transactional_id} and fence its producer?", abort=True)
    print(abort_transaction(bootstrap, transactional_id))
