"""`headrace demo`: the tour, from an empty folder to topics, queues, a failover and a pipeline's result."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    orders: Annotated[int, typer.Option(min=100, max=1_000_000, help="How many orders the pipeline gets.")] = 5_000,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Keep what the tour writes here; else it is removed."),
    ] = None,
) -> None:
    """Take the tour: a topic that survives a crash, a queue with retries, a failover, and a pipeline on Spark.

    It takes about a minute, most of it for Spark, and leaves nothing behind. The failover needs etcd and
    `headrace[cluster]`, the pipeline Java 17 and `headrace[spark]`; where one of them is missing, the tour says so and
    shows the rest.

    Examples:

    * `headrace demo`
    * `headrace demo --orders 500000 --keep tour`
    """
    from headrace.cli.demo.run import tour

    tour(orders, keep)
