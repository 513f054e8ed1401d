"""`--profile NAME`, before or after any command that talks to a broker.

A profile is used by setting environment variables of this process, which commands read and their children inherit: the
name of the profile, and its addresses. Secrets stay in the file and are read where a connection is made.
"""

import functools
import inspect
import os
from collections.abc import Callable
from typing import Annotated, Any

import typer

from headrace.config.client_connection import PROFILE_VARIABLE, VARIABLES
from headrace.config.profiles import COMMANDS, read_profile

_PROFILE, _BOOTSTRAP = "profile", "bootstrap"
_ADDRESSES = (_BOOTSTRAP, "http")
_LOGINS = ("password", "token", *COMMANDS)


def use_profile(context: typer.Context, parameter: typer.CallbackParam, name: str | None) -> str | None:
    """Let all connections of this process use a profile. One that is named on the command line comes before other
    variables of the environment, which are removed where the profile says something else."""
    if not name:
        return name
    found = read_profile(name, os.environ)
    source = context.get_parameter_source(str(parameter.name))
    if source is not None and source.name == "COMMANDLINE":
        os.environ[PROFILE_VARIABLE] = name
        if any(each in found for each in _LOGINS):
            found = {**dict.fromkeys(_LOGINS), **found}
        for field in found:
            os.environ.pop(VARIABLES.get(field, ""), None)
    for field in _ADDRESSES:
        if found.get(field):
            os.environ.setdefault(VARIABLES[field], str(found[field]))
    return name


def forget_connection() -> None:
    """Remove the connection of the environment, for commands that start brokers of their own and talk to those."""
    for variable in (PROFILE_VARIABLE, *VARIABLES.values()):
        os.environ.pop(variable, None)


ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        envvar=PROFILE_VARIABLE,
        help="A connection from ~/.config/headrace/config.toml: brokers, user, TLS.",
        callback=use_profile,
        is_eager=True,
        show_default=False,
    ),
]


def offer_profile(app: typer.Typer) -> None:
    """Add the option to every command with `--bootstrap`, of an application and of those below it."""
    for command in app.registered_commands:
        if command.callback is not None:
            command.callback = _with_profile(command.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            offer_profile(group.typer_instance)


def _with_profile(command: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(command)
    if _BOOTSTRAP not in signature.parameters or _PROFILE in signature.parameters:
        return command

    @functools.wraps(command)
    def run(**values: Any) -> Any:
        values.pop(_PROFILE)
        return command(**values)

    added = inspect.Parameter(_PROFILE, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=ProfileOption)
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), added])  # type: ignore[attr-defined]
    run.__annotations__ = {**command.__annotations__, _PROFILE: ProfileOption}
    return run
