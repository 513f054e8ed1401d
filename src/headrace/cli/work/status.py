"""The output of `headrace work`: a table that stays on the screen of a terminal, or plain lines elsewhere."""

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.cli.output import human_duration
from headrace.cli.screen import is_screen
from headrace.cli.work.process import PoolProcess
from headrace.model.scale import ScaleRules, SourceLoad

if TYPE_CHECKING:
    from rich.console import RenderableType

_LINE_EVERY_S = 60.0
_MOST_ROWS = 16


@dataclass(frozen=True, slots=True)
class PoolView:
    """The state of a pool."""

    target: str
    size: int
    rules: ScaleRules
    reason: str
    problem: str
    loads: Sequence[SourceLoad]
    processes: Sequence[PoolProcess]
    handled: Mapping[str, int] = field(default_factory=dict)
    """Messages by source, since the start."""
    restarts: int = 0


def processes_text(number: int) -> str:
    return "1 process" if number == 1 else f"{number} processes"


class PoolOutput:
    """Prints what happens. On a screen the state is below it, elsewhere a line once a minute."""

    def __init__(self) -> None:
        self.is_live = is_screen()
        self._live: Any = None
        self._line_at_s = time.monotonic()

    def opened(self) -> AbstractContextManager[object]:
        """Show the table while the block lasts."""
        if not self.is_live:
            return nullcontext()
        from rich.live import Live

        self._live = Live(auto_refresh=False, transient=True)
        return self._live  # type: ignore[no-any-return]

    def tell(self, text: str) -> None:
        """A line of the pool itself, with the time."""
        self._print(f"{time.strftime('%H:%M:%S')} {text}")

    def printed(self, process: PoolProcess, line: str) -> None:
        """A line that a process has printed."""
        self._print(f"[{process.number}] {line}")

    def show(self, view: PoolView) -> None:
        if self._live is not None:
            self._live.update(_picture(view), refresh=True)
        elif time.monotonic() - self._line_at_s >= _LINE_EVERY_S:
            self._line_at_s = time.monotonic()
            self.tell(_line(view))

    def _print(self, text: str) -> None:
        if self._live is not None:
            from rich.text import Text

            self._live.console.print(Text(text), soft_wrap=True)
        else:
            print(text, file=sys.stdout, flush=True)


def _line(view: PoolView) -> str:
    sources = "; ".join(f"{each.name}: {_backlog(each)}" for each in view.loads)
    return f"{processes_text(view.size)}; {sources}{f'; {view.problem}' if view.problem else ''}"


def _backlog(load: SourceLoad) -> str:
    waiting = "backlog not known" if load.waiting is None else f"{load.waiting:,} waiting"
    age = "" if not load.oldest_s else f", the oldest for {human_duration(load.oldest_s)}"
    rate = "" if load.each_per_s is None else f", {load.each_per_s:,.1f}/s per process"
    return waiting + age + rate


def _picture(view: PoolView) -> "RenderableType":
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    bounds = f"{view.rules.minimum} to {view.rules.maximum}"
    lines = [Text(f"{view.target}: {processes_text(view.size)} ({bounds}): {view.reason}", "bold")]
    lines += [Text(f"{each.name}: {_backlog(each)}") for each in view.loads]
    lines += [Text(view.problem, "yellow")] if view.problem else []
    table = Table(box=None, pad_edge=False)
    for head in ("process", "pid", "state", "for", "handled", "failed", "threads", "last error"):
        table.add_column(
            head, justify="right" if head in ("process", "pid", "handled", "failed", "threads") else "left"
        )
    for process in view.processes[:_MOST_ROWS]:
        workers = process.report.workers if process.report is not None else []
        threads = sum(each.threads or 0 for each in workers)
        table.add_row(
            str(process.number),
            str(process.pid),
            process.state,
            human_duration(time.monotonic() - process.started_s),
            f"{sum(each.handled for each in workers):,}",
            f"{sum(each.failed for each in workers):,}",
            str(threads) if threads else "",
            next((each.last_error for each in workers if each.last_error), ""),
        )
    more = len(view.processes) - _MOST_ROWS
    return Group(*lines, table, *([Text(f"and {more} more")] if more > 0 else []))
