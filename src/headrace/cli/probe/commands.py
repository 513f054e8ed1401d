"""`headrace probe`: measures how long messages take from sending to receiving, and whether any are lost."""

from typing import Annotated, Literal

import typer

from headrace.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap


def probe(
    count: Annotated[
        int, typer.Option("--count", "-n", metavar="N", min=0, help="End after N messages; 0 goes on until Ctrl-C.")
    ] = 0,
    once: Annotated[bool, typer.Option("--once", help="One message, as --count 1.")] = False,
    interval: Annotated[float, typer.Option(metavar="S", min=0.01, max=3600, help="Seconds between messages.")] = 1.0,
    only: Annotated[
        Literal["topic", "queue"] | None, typer.Option(help="Measure only this path.", show_default=False)
    ] = None,
    max_ms: Annotated[
        float | None,
        typer.Option(metavar="MS", min=0, help="Exit code 1 if a message takes longer.", show_default=False),
    ] = None,
    lost_after: Annotated[
        float, typer.Option(metavar="S", min=0.1, max=3600, help="A message that has not come by then is lost.")
    ] = 10.0,
    listen: Annotated[
        str,
        typer.Option(metavar="[HOST]:PORT", help="Serve the figures at /metrics for Prometheus.", show_default=False),
    ] = "",
    topic: Annotated[str, typer.Option(help="The topic; it is created if need be.")] = "__probe",
    queue: Annotated[str, typer.Option(help="The queue; it is created if need be.")] = "__probe_queue",
    as_json: AsJson = False,
    http: Annotated[
        str,
        typer.Option(
            "--http",
            metavar="URL",
            envvar="HEADRACE_HTTP",
            help="Where the broker serves queues; by default the broker is asked for it.",
            show_default=False,
        ),
    ] = "",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Measure how long messages take, from produce to consume and from send to receive, with messages of its own.

    Each interval one small message goes through a topic, whose partitions are on all brokers, and one through a queue.
    The table shows what was lost, and the median, 99th percentile and maximum of the whole way. The topic and the queue
    stay; their messages are deleted after ten minutes. With `--json` there is a line for each message with
    `--count 0`, and else one object at the end.

    Exit codes: 0 all messages came (in time), 1 one was lost or took longer than `--max-ms`, or no broker answers.

    Examples:

    * `headrace probe`
    * `headrace probe --count 20 --interval 0.1 --max-ms 200`
    * `headrace probe --once --json --only topic`
    * `headrace probe --listen :9325`, and scrape it with Prometheus
    """
    from headrace.cli.probe.plan import ProbePlan
    from headrace.cli.probe.run import run_probe

    plan = ProbePlan(
        bootstrap=bootstrap,
        http=http,
        count=1 if once else count,
        interval_s=interval,
        lost_after_s=lost_after,
        max_ms=max_ms,
        paths=("topic", "queue") if only is None else (only,),
        topic=topic,
        queue=queue,
    )
    raise typer.Exit(run_probe(plan, listen, as_json=as_json))
