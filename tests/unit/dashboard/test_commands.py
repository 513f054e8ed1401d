"""The commands that pages tell people to run exist, with the options and arguments that they are given."""

import re
import shlex
from pathlib import Path

import pytest
import typer

import headrace.dashboard
from headrace.cli.main import app

ASSETS = Path(headrace.dashboard.__file__).parent / "assets"
_COMMANDS = re.compile(r"""(?:command="|command=\$\{`|<code>|text=")(headrace [^"`<]+)""")
_PLACEHOLDER = re.compile(r"\$\{[^}]+\}")


def shown_commands() -> list[str]:
    files = [path for name in ("pages", "components") for path in sorted((ASSETS / name).glob("*.js"))]
    lines = [found for path in files for found in _COMMANDS.findall(path.read_text())]
    return sorted({part for line in lines for part in _PLACEHOLDER.sub("name", line).split(" && ")})


def test_there_are_commands() -> None:
    assert len(shown_commands()) > 15


@pytest.mark.parametrize("line", shown_commands())
def test_commands_of_pages_exist(line: str) -> None:
    command, (_, *rest) = typer.main.get_command(app), shlex.split(line)
    context = typer.Context(command)
    while rest and hasattr(command, "get_command"):
        name, *rest = rest
        command = command.get_command(context, name)
        assert command is not None, f"{name} is no command"
        context = typer.Context(command, parent=context)
    if rest:
        command.make_context(line, rest)
