"""The work of `headrace health`: the list of the HTTP API, for people or as JSON."""

import sys
import time
from typing import TYPE_CHECKING, Any

from headrace.cli.errors import CommandFailed
from headrace.cli.http_api import HttpApi
from headrace.cli.output import print_json

if TYPE_CHECKING:
    from rich.console import Group

_PATH = "/health"
_COLOURS = {"critical": "bold red", "warning": "yellow", "info": "cyan", "ok": "green"}
_FAILS_ON = {"critical": ("critical",), "warning": ("critical", "warning")}


def show_health(bootstrap: str, http: str, *, as_json: bool, fail_on: str) -> int:
    """Print the health of the cluster; the exit code that says how it is."""
    health: dict[str, Any] = HttpApi(bootstrap, http).get(_PATH)
    if as_json:
        print_json(health)
    else:
        from rich.console import Console

        Console(width=None if sys.stdout.isatty() else 120, highlight=False).print(rendered(health))
    return int(health["status"] in _FAILS_ON[fail_on])


def watch_health(bootstrap: str, http: str, every_s: float) -> None:
    """Show the health repeatedly, until Ctrl-C."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(highlight=False), auto_refresh=False, screen=sys.stdout.isatty()) as live:
        while True:
            try:
                shown: Any = rendered(HttpApi(bootstrap, http).get(_PATH))
            except CommandFailed as failure:
                shown = Text(str(failure), style="red")
            live.update(shown, refresh=True)
            time.sleep(every_s)


def rendered(health: dict[str, Any]) -> "Group":
    """The sentence, and below it each problem with its advice."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    parts: list[Any] = [Text(health["sentence"], style=_COLOURS[health["status"]])]
    for problem in health["problems"]:
        severity = problem["severity"]
        # As text: rich takes what is in brackets in a plain string for a style.
        parts.append(Text.assemble("\n", (f"{severity.upper()}  ", _COLOURS[severity]), problem["sentence"]))
        parts.append(
            Padding(Text(f"→ {problem['advice'].replace('`', '')}", style="dim"), (0, 0, 0, len(severity) + 2))
        )
    return Group(*parts)
