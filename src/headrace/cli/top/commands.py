"""`headrace top`: topics, groups, queues, brokers and pipelines, live in the terminal."""

from typing import Annotated, Literal

import typer

from headrace.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap


def top(
    view: Annotated[
        Literal["overview", "topics", "groups", "queues", "brokers", "pipelines"],
        typer.Argument(metavar="[VIEW]", help="overview, topics, groups, queues, brokers or pipelines."),
    ] = "overview",
    sort: Annotated[
        str, typer.Option(metavar="FIELD", help="The field to sort by, as in the HTTP API.", show_default=False)
    ] = "",
    search: Annotated[
        str, typer.Option(metavar="TEXT", help="Only what has this in its name.", show_default=False)
    ] = "",
    every: Annotated[float, typer.Option(metavar="S", min=0.2, max=3600, help="How often it is refreshed.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print one picture and end.")] = False,
    as_json: AsJson = False,
    http: Annotated[
        str,
        typer.Option(
            "--http",
            metavar="URL",
            envvar="HEADRACE_HTTP",
            help="The broker's HTTP address; without it brokers are asked.",
            show_default=False,
        ),
    ] = "",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Watch a cluster: rates, lag in messages and seconds, the oldest messages of queues, and what is wrong.

    Any broker answers for the whole cluster; you see what your user may describe. In a terminal it stays on the screen:

    * `1` to `6`, or Tab: overview, topics, groups, queues, brokers, pipelines
    * `s` sorts by the next column, `r` in the other order, `/` searches, Page Up and Page Down turn pages
    * `q` or Ctrl-C ends it

    Where the output is no terminal, and with `--once` and `--json`, it prints one picture and ends. The exit code is 1
    if no broker answers.

    Examples:

    * `headrace top`
    * `headrace top groups --sort lag_seconds`
    * `headrace top queues --search email --once`
    * `headrace top --json --once`
    """
    from headrace.cli.top.run import show_once, watch
    from headrace.cli.top.state import TopState

    state = TopState(view, search=search)
    state.sort_by(sort)
    if once or as_json:
        show_once(bootstrap, http, state, as_json=as_json)
    else:
        watch(bootstrap, http, state, every)
