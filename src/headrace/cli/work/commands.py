"""`headrace work`: run an application's handlers and workers in processes that scale with the backlog."""

from typing import Annotated

import typer


def work(
    target: Annotated[
        str,
        typer.Argument(metavar="MODULE:ATTRIBUTE", help="The client, as app:client, or a function that returns one."),
    ],
    minimum: Annotated[int, typer.Option("--min", metavar="N", min=1, max=1000, help="Never fewer processes.")] = 1,
    maximum: Annotated[int, typer.Option("--max", metavar="N", min=1, max=1000, help="Never more processes.")] = 8,
    target_seconds: Annotated[
        float,
        typer.Option("--target-seconds", metavar="S", min=0.1, max=86_400, help="A backlog is to be drained in this."),
    ] = 30.0,
    cooldown: Annotated[
        float,
        typer.Option(
            metavar="S", min=0, max=86_400, help="For so long fewer processes must be enough before any is stopped."
        ),
    ] = 60.0,
    grace: Annotated[
        float,
        typer.Option(
            metavar="S", min=0.1, max=86_400, help="A process that stops may finish its messages for so long."
        ),
    ] = 60.0,
    start_timeout: Annotated[
        float,
        typer.Option(metavar="S", min=0.1, max=86_400, help="A process that takes longer to be imported is killed."),
    ] = 60.0,
    reload: Annotated[
        bool, typer.Option("--reload", help="For development: replace the processes when a source file changes.")
    ] = False,
    listen: Annotated[
        str,
        typer.Option(metavar="[HOST]:PORT", help="Serve the figures at /metrics for Prometheus.", show_default=False),
    ] = "",
) -> None:
    """Run the handlers and queue workers of an application in processes, as many as its backlog needs.

    The application is a module with a `headrace.Client` or a `headrace.aio.Client` on which handlers and workers are
    registered; it is looked for in the current folder first. It needs no call of `run`:

    * `client = Client("localhost:9092")`
    * `@client.queue("emails").worker(concurrency="auto")`
    * `def send(message): ...`

    Every second the pool compares the backlog (messages, and the age of the oldest) with what its processes handle per
    second. It starts as many as drain the backlog within `--target-seconds`, and stops some when fewer have been
    enough for the `--cooldown`. A group never has more processes than its topics have partitions, since the others
    would be idle. Each decision is printed with its reason.

    A process that dies is replaced, after a wait that doubles up to 30 s while processes die soon after their start. So
    is one that has not imported the application within `--start-timeout`.
    SIGTERM and Ctrl-C let the processes finish the messages in progress and return the others to the queue; after
    `--grace`, or at the second signal, they are killed, with the processes that they have started. With `--reload` a
    process is replaced only after the changed code could be loaded.

    The exit code is 2 if the application cannot be loaded.

    Examples:

    * `headrace work app:client`
    * `headrace work shop.tasks:client --min 2 --max 16 --target-seconds 10`
    * `headrace work app:client --reload`
    """
    from headrace.cli.work.process import ProcessLimits
    from headrace.cli.work.run import run_pool
    from headrace.model.scale import ScaleRules

    rules, limits = ScaleRules(minimum, maximum, target_seconds, cooldown), ProcessLimits(start_timeout, grace)
    run_pool(target, rules, limits=limits, is_reloaded=reload, listen=listen)
