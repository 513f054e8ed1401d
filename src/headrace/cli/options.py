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


Unset = Annotated[
    list[str] | None, typer.Option("--unset", metavar="NAME", help="Back to the default; may be given again.")
]


def parse_changes(settings: Iterable[str], unset: Iterable[str]) -> dict[str, str | None]:
    """What `--set` and `--unset` change; None goes back to the default. `BadArgument` if that is nothing."""
    changes: dict[str, str | None] = {**parse_pairs(settings, "--set")}
    for name in unset:
        if name in changes:
            raise BadArgument(f"{name} is given with --set and with --unset: choose one")
        changes[name] = None
    if not changes:
        raise BadArgument("nothing to change: give --set NAME=VALUE or --unset NAME")
    return changes


def parse_pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """`["a=1", "b=x=y"]` as `{"a": "1", "b": "x=y"}`."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise BadArgument(f"{option} {text} is not NAME=VALUE")
        pairs[name.strip()] = value
    return pairs
