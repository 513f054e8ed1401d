"""`headrace bench`: how fast a running broker is, seen from this machine."""

from typing import Annotated, Literal

import typer

from headrace.cli.names import complete_topics
from headrace.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from headrace.cli.produce.commands import Compression


def bench(
    what: Annotated[Literal["all", "produce", "consume", "latency"], typer.Argument(help="What to measure.")] = "all",
    messages: Annotated[int, typer.Option("--messages", "-n", min=1, help="Messages to send and read.")] = 1_000_000,
    size: Annotated[int, typer.Option("--size", "-s", min=8, help="Bytes in a message.")] = 1024,
    batch: Annotated[int, typer.Option(min=1, help="Messages in a batch, at most.")] = 1_000,
    acks: Annotated[
        Literal["0", "1", "all"],
        typer.Option(
            help="When a message counts as sent: at once, when the leader has it, or when all in sync have it."
        ),
    ] = "all",
    partitions: Annotated[int, typer.Option("--partitions", "-p", min=1, help="Partitions of the topic.")] = 1,
    compression: Annotated[
        Compression, typer.Option("--compression", "-z", help="How batches are compressed.")
    ] = "none",
    rate: Annotated[int, typer.Option(min=1, help="For the latency: messages sent per second.")] = 1_000,
    seconds: Annotated[float, typer.Option(min=1, help="For the latency: how many seconds it is measured.")] = 10.0,
    topic: Annotated[
        str | None,
        typer.Option(
            help="Use this topic and keep it; without it one is made and deleted.", autocompletion=complete_topics
        ),
    ] = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Measure a running broker: throughput of sending and reading, and end-to-end latency at a modest rate.

    One producer and one consumer run in this process, so on few cores the client may be the limit.

    Examples:

    * `headrace bench`
    * `headrace bench produce --messages 5000000 --size 100 --partitions 12`
    * `headrace bench latency --rate 5000 --acks 1`
    """
    from headrace.cli.bench.run import BenchPlan, run_bench

    plan = BenchPlan(
        messages=messages,
        size_bytes=size,
        batch_messages=batch,
        acks=acks,
        partitions=partitions,
        compression=compression,
        rate=rate,
        seconds=seconds,
    )
    wanted = ("produce", "consume", "latency") if what == "all" else (what,)
    run_bench(bootstrap, wanted, plan, topic, as_json=as_json)
