"""The work of `headrace top`: one picture, or a screen that follows keys and is refreshed."""

import sys
import time

from headrace.cli.errors import CommandFailed
from headrace.cli.output import print_json
from headrace.cli.screen import is_screen
from headrace.cli.top.figures import FigureSource, TopFigures
from headrace.cli.top.state import MAX_PER_PAGE, TopState

_PLAIN_WIDTH = 160


def show_once(bootstrap: str, http: str, state: TopState, *, as_json: bool) -> None:
    """Print one picture, or what it is made of."""
    figures = FigureSource(bootstrap, http).get(state, MAX_PER_PAGE)
    if as_json:
        print_json(figures.as_json())
        return
    from rich.console import Console

    from headrace.cli.top.screen import picture

    Console(width=None if sys.stdout.isatty() else _PLAIN_WIDTH, highlight=False).print(picture(figures, state))


def watch(bootstrap: str, http: str, state: TopState, every_s: float) -> None:
    """Show the figures until `q` or Ctrl-C. A broker that is away is said, and asked again."""
    if not (sys.stdin.isatty() and is_screen()):
        show_once(bootstrap, http, state, as_json=False)
        return
    from rich.console import Console
    from rich.live import Live

    from headrace.cli.top.keyboard import keyboard
    from headrace.cli.top.screen import AROUND_ROWS, picture

    source, console = FigureSource(bootstrap, http), Console(highlight=False)
    figures: TopFigures | None = source.get(state, console.height - AROUND_ROWS)
    error = ""
    with keyboard() as keys, Live(console=console, auto_refresh=False, screen=True) as live:
        due_s = time.monotonic() + every_s
        while not state.is_over and not keys.is_at_end:
            if figures is not None and figures.name != state.name:
                figures = None
            live.update(picture(figures, state, error, is_live=True), refresh=True)
            is_due = False
            for key in keys.wait(due_s - time.monotonic()):
                is_due = state.press(key) or is_due
            if state.is_over or (not is_due and time.monotonic() < due_s):
                continue
            try:
                figures, error = source.get(state, console.height - AROUND_ROWS), ""
            except CommandFailed as failure:
                error = str(failure)
            due_s = time.monotonic() + every_s
