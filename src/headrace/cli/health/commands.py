"""`headrace health`: is everything fine, and if not, what to do."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from headrace.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap


def health(
    as_json: AsJson = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Repeat it until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(min=0.1, help="With --watch: how often, in seconds.")] = 2.0,
    fail_on: Annotated[
        Literal["critical", "warning"], typer.Option(help="From which severity on the exit code is 1.")
    ] = "critical",
    ready: Annotated[
        bool, typer.Option("--ready", help="Ask one broker only whether it can serve clients (/readyz).")
    ] = False,
    wait: Annotated[float, typer.Option(metavar="S", min=0, help="With --ready: for how long to wait for it.")] = 0.0,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="With --ready: the broker on this machine that uses this data directory.", show_default=False
        ),
    ] = None,
    http: Annotated[
        str,
        typer.Option(
            "--http",
            metavar="URL",
            envvar="HEADRACE_HTTP",
            help="The broker's HTTP address; without it brokers are asked.",
        ),
    ] = "",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Say in one sentence whether everything is fine, then each problem with what to do about it.

    Any broker answers for the whole cluster: brokers that are down, replicas that are missing, disks that fill up,
    groups and queues that nothing consumes, certificates that expire, clocks that differ. The page on operations lists
    all checks.

    Exit codes: 0 nothing critical, 1 a critical problem (or a warning, with `--fail-on warning`), or no broker answers.
    With `--ready`: 0 ready, 1 not ready.

    Examples:

    * `headrace health`
    * `headrace health --json --fail-on warning`
    * `headrace health --watch --bootstrap broker1:9092,broker2:9092`
    * `headrace health --ready --wait 60 --http http://localhost:9324`
    """
    from headrace.cli.errors import BadArgument
    from headrace.cli.health.readiness import await_ready
    from headrace.cli.health.run import show_health, watch_health

    if not ready and (wait or data_dir is not None):
        raise BadArgument("--wait and --data-dir are for --ready")
    if ready:
        await_ready(bootstrap, http, data_dir, wait)
    elif watch:
        watch_health(bootstrap, http, every)
    else:
        raise typer.Exit(show_health(bootstrap, http, as_json=as_json, fail_on=fail_on))
