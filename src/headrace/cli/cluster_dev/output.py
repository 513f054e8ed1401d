"""The output of `headrace cluster dev`: relevant lines of its children, each with the name of its process."""

import os
import re
import sys

import typer

from headrace.cli.children import Child

_COLOURS = ("cyan", "green", "magenta", "blue", "yellow", "bright_cyan", "bright_green", "bright_magenta")
_LOG_LINE = re.compile(r"\d{4}-\d\d-\d\d (\d\d:\d\d:\d\d),\d+ (\w+) +(.*)")
_DULL = ("closed the connection of", "stopping", "loaded ", "retention removed", "compacted ", "this is ")


def say_now(text: str) -> None:
    print(text, flush=True)


class DevOutput:
    """Prints lines, each after the name of its process in a colour of its own."""

    def __init__(self, names: list[str], *, verbose: bool) -> None:
        self._width = max(map(len, names))
        self._colours = dict(zip(names, _COLOURS * (len(names) // len(_COLOURS) + 1), strict=False))
        self._has_colours = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self._verbose = verbose

    def heard(self, child: Child, line: str) -> None:
        """A line of a child's log. All of it is in its file; here is what a person should see."""
        match = _LOG_LINE.match(line)
        if match is None:
            if self._verbose or (child.name != "etcd" and line.startswith("headrace: ")):
                self.tell(child.name, line.removeprefix("headrace: "), "red" if not self._verbose else None)
            return
        when, level, text = match.groups()
        if level in ("WARNING", "ERROR", "CRITICAL"):
            self.tell(child.name, f"{when} {level.lower()}: {text}", "yellow" if level == "WARNING" else "red")
        elif self._verbose or (level == "INFO" and not text.startswith(_DULL)):
            self.tell(child.name, f"{when} {text}")

    def tell(self, name: str, text: str, colour: str | None = None) -> None:
        head = f"{name:>{self._width}} |"
        if self._has_colours:
            head = typer.style(head, fg=self._colours.get(name), bold=True)
            text = typer.style(text, fg=colour) if colour else text
        say_now(f"{head} {text}")
