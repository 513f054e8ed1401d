"""Options that several commands share, and how their values are read."""

from collections.abc import Iterable
from typing import Annotated

import typer

from headrace.cli.errors import BadArgument

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        envvar="HEADRACE_BOOTSTRAP",
        help="The broker to talk to; any Kafka broker will do.",
    ),
]
DEFAULT_BOOTSTRAP = "localhost:9092"

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")]


def parse_pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """`["a=1", "b=x=y"]` as `{"a": "1", "b": "x=y"}`."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise BadArgument(f"{option} {text} is not NAME=VALUE")
        pairs[name.strip()] = value
    return pairs
