"""`headrace demo`: the tour, from an empty folder to a pipeline's result."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    orders: Annotated[int, typer.Option(min=100, max=1_000_000, help="How many orders flow.")] = 20_000,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Keep the data and the pipeline's file here; else both are removed."),
    ] = None,
) -> None:
    """Take the tour: start a queue, publish orders, run a pipeline on Spark and look at what came out.

    It needs nothing but Java 17, takes about a minute, and leaves nothing behind.

    Examples:

    * `headrace demo`
    * `headrace demo --orders 500000 --keep tour`
    """
    from headrace.cli.touring import tour

    tour(orders, keep)
