"""`headrace schedule`: list, remove and run the schedules of periodic work."""

from typing import Annotated

import typer

from headrace.cli.errors import BadArgument
from headrace.cli.options import DEFAULT_BOOTSTRAP, AsJson, bootstrap_option

schedule_app = typer.Typer(
    help="Periodic work: see when schedules are due and whether they run, run one now, remove one.",
    epilog="A schedule is made by a worker with @client.every or @client.cron, or by the setting queue.schedule of a "
    "queue: `headrace queue create reports --set 'schedule=cron 0 6 * * *'`.",
    no_args_is_help=True,
)

_Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The name of the schedule, as `list` shows it.", show_default=False)
]
_Bootstrap = Annotated[str, bootstrap_option("The broker to talk to, which must be Headrace; any of a cluster.")]
_Http = Annotated[
    str,
    typer.Option(
        "--http",
        metavar="URL",
        envvar="HEADRACE_HTTP",
        help="Where the broker serves queues; by default the broker is asked for it.",
        show_default=False,
    ),
]


@schedule_app.command("list")
def list_schedules(as_json: AsJson = False, http: _Http = "", bootstrap: _Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """List all schedules: when each is due next, when it was due last, and its runs.

    WAITING has runs that no worker has begun, or that failed and are tried again; if it stays above 0, no worker is
    there. FAILED has runs that failed at all their attempts: `headrace queue peek schedules-dead.NAME` shows why.

    Examples:

    * `headrace schedule list`
    * `headrace schedule list --json`
    """
    from headrace.cli.schedule.run import show_schedules

    show_schedules(bootstrap, http, as_json=as_json)


@schedule_app.command("run")
def run(name: _Name, http: _Http = "", bootstrap: _Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Run a schedule once now, in one of its workers. When it is due next does not change.

    Example: `headrace schedule run billing.send_invoices`
    """
    from headrace.cli.schedule.run import run_schedule

    run_schedule(bootstrap, http, name)


@schedule_app.command("remove")
def remove(
    name: _Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    http: _Http = "",
    bootstrap: _Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Remove a schedule with its runs. Failed runs stay in its dead-letter queue. A queue that has a schedule by its
    settings only loses these.

    Stop the workers that have its function first, or deploy them without it: a worker that still has it ends with an
    error, and one that starts with it creates the schedule again.

    Example: `headrace schedule remove billing.send_invoices --yes`
    """
    import sys

    from headrace.cli.schedule.run import remove_schedule

    if not yes:
        if not sys.stdin.isatty():
            raise BadArgument("there is no terminal to confirm on: add --yes")
        typer.confirm(f"Remove the schedule {name}?", abort=True)
    remove_schedule(bootstrap, http, name)
