"""`--json` and `--format json` are the same switch: a command that has one gets the other, too.

Commands declare the one that fits them: `--json` where there is text for people or JSON for programs, `--format` where
there are more formats, or where the choice is between lines of text and lines of JSON.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal

import typer

from headrace.cli.options import AsJson

_AS_JSON, _FORMAT = "as_json", "output"
"""How the parameters are called in every command."""

_Format = Annotated[
    Literal["text", "json"],
    typer.Option("--format", help="`json` is the same as --json.", show_default=False),
]


def offer_both(app: typer.Typer) -> None:
    """Complete every command of an application, and of those below it."""
    for command in app.registered_commands:
        if command.callback is not None:
            command.callback = _with_both(command.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            offer_both(group.typer_instance)


def _with_both(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with the parameter that it lacks. One without either, or with both, stays as it is."""
    signature = inspect.signature(command)
    if (_AS_JSON in signature.parameters) == (_FORMAT in signature.parameters):
        return command
    lacks_format = _AS_JSON in signature.parameters
    name, kind, default = (_FORMAT, _Format, "text") if lacks_format else (_AS_JSON, AsJson, False)

    @functools.wraps(command)
    def run(**values: Any) -> Any:
        chosen = values.pop(name)
        if chosen == "json":
            values[_AS_JSON] = True
        elif chosen is True:
            values[_FORMAT] = "json"
        return command(**values)

    added = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), added])  # type: ignore[attr-defined]
    run.__annotations__ = {**command.__annotations__, name: kind}
    return run
