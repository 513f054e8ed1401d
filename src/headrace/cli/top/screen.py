"""The picture of `headrace top`: a sentence of health, totals, tabs, and a table, or four small ones."""

import time
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.cli.output import human_bytes
from headrace.cli.top.figures import TopFigures
from headrace.cli.top.state import TopState
from headrace.cli.top.views import BROKERS, GROUPS, NAMES, PIPELINES, QUEUES, TopView

AROUND_ROWS = 8
"""Lines of the screen besides the rows of the table."""
_COLOURS = {"critical": "bold red", "warning": "yellow", "ok": "green"}
_KEYS = "1-6, Tab view   s sort   r reverse   / search   PgUp PgDn   q quit"
_MOST_PROBLEMS = 3
_NAME_WIDTH = 24


def picture(figures: TopFigures | None, state: TopState, error: str = "", *, is_live: bool = False) -> RenderableType:
    """Everything. Values are put in as `Text`: rich takes what is in brackets in a plain string for a style."""
    parts: list[RenderableType] = []
    if error:
        parts.append(Text(error, style="bold red"))
    if figures is not None:
        parts += _health(figures.overview)
        parts.append(_totals(figures.overview))
    if is_live:
        parts.append(_tabs(state))
    parts.append(Text(""))
    if figures is None:
        parts.append(Text("waiting for a broker …", style="dim"))
    elif figures.name == "overview" or state.view is None:
        parts += _overview(figures.overview)
    else:
        parts += _list(figures, state, state.view)
    if is_live:
        parts += [Text(""), _foot(state)]
    return Group(*parts)


def _health(overview: dict[str, Any]) -> list[RenderableType]:
    health = overview["health"]
    if health is None:
        return [Text("the health of the cluster is shown to users with DESCRIBE on it", style="dim")]
    shown: list[RenderableType] = [Text(health["sentence"], style=_COLOURS.get(health["status"], ""))]
    problems = health["problems"]
    if len(problems) > 1:
        shown += [
            Text(f"  {each['sentence']}", style=_COLOURS.get(each["severity"], ""))
            for each in problems[:_MOST_PROBLEMS]
        ]
    return shown


def _totals(overview: dict[str, Any]) -> Text:
    totals = overview["totals"]
    if totals is None:
        return Text("")
    p99 = "-" if totals["produce_p99_ms"] is None else f"{totals['produce_p99_ms']:.1f} ms"
    return Text(
        f"in {totals['messages_in_per_s']:,.0f} msg/s, {human_bytes(totals['bytes_in_per_s'])}/s   "
        f"out {totals['messages_out_per_s']:,.0f} msg/s, {human_bytes(totals['bytes_out_per_s'])}/s   "
        f"{totals['requests_per_s']:,.0f} requests/s   produce p99 {p99}   "
        f"{_counted(totals['connections'], 'connections')}"
    )


def _counted(number: int, nouns: str) -> str:
    """`1 topic`, `3 topics`."""
    return f"{number:,} {nouns.removesuffix('s') if number == 1 else nouns}"


def _tabs(state: TopState) -> Text:
    shown = Text()
    for at, name in enumerate(NAMES, 1):
        shown.append(f" {at} {name} ", style="reverse" if name == state.name else "dim")
    return shown


def _overview(overview: dict[str, Any]) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for view, rows in (
        (GROUPS, overview["worst_groups"]),
        (QUEUES, overview["queues"]),
        (PIPELINES, overview.get("pipelines")),
        (BROKERS, overview["brokers"]),
    ):
        if rows:
            parts += [_table(view, rows, ""), Text("")]
    totals = overview["totals"]
    if totals is not None:
        counts = ("topics", "partitions", "groups", "queues")
        parts.append(Text(", ".join(_counted(totals[each], each) for each in counts), style="dim"))
    return parts


def _list(figures: TopFigures, state: TopState, view: TopView) -> list[RenderableType]:
    if not figures.rows:
        found = f"no {view.name} with {state.search} in the name" if state.search else f"no {view.name} to show"
        return [Text(found, style="dim")]
    shown = f"{len(figures.rows):,} of {figures.total:,} {view.name}"
    order = f"by {state.sorted_by}, {'ascending' if state.is_ascending else 'descending'}"
    more = "" if state.page == 1 else f", page {state.page}"
    return [_table(view, figures.rows, state.sorted_by), Text(f"{shown}, {order}{more}", style="dim")]


def _table(view: TopView, rows: list[dict[str, Any]], sorted_by: str) -> Table:
    made = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for at, column in enumerate(view.columns):
        head = Text(column.head, style="bold underline" if column.key == sorted_by else "bold")
        made.add_column(
            head,
            justify="left" if column.is_left else "right",
            no_wrap=True,
            overflow="ellipsis",
            # Names stay readable on a narrow terminal.
            min_width=min(_NAME_WIDTH, max(len(column.show(row)) for row in rows)) if at == 0 else None,
        )
    for row in rows:
        made.add_row(*(Text(column.show(row), style=column.style(row)) for column in view.columns))
    return made


def _foot(state: TopState) -> Text:
    if state.typed is not None:
        return Text.assemble(("search: ", "bold"), state.typed, ("▏", "blink"), ("   Enter, Esc", "dim"))
    found = f"   only {state.search} (Esc: all)" if state.search else ""
    return Text(f"{_KEYS}{found}   {time.strftime('%H:%M:%S')}", style="dim")
