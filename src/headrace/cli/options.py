"""Options that several commands share, and how their values are read."""

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from headrace.cli.errors import BadArgument


def bootstrap_option(what: str) -> Any:
    """`--bootstrap`, with what is said of it in the help."""
    return typer.Option("--bootstrap", "-b", metavar="HOST:PORT", envvar="HEADRACE_BOOTSTRAP", help=what)


Bootstrap = Annotated[str, bootstrap_option("The broker to talk to; any Kafka broker will do.")]
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
