"""How a running pipeline looks on the terminal: a live table, or a line for each batch."""

import sys
import time
from typing import Any

from headrace.cli.output import human_bytes, say
from headrace.pipelines.control.progress import BatchProgress, RunProgress

_HEADS = ("QUERY", "BATCH", "ROWS IN", "IN/S", "ROWS OUT", "OUT/S", "BATCH TIME", "LAG", "STATE", "BAD")


class PipelineView:
    """Shows a `RunProgress`. A person at a terminal sees the table; a log gets lines."""

    def __init__(self, title: str, *, live: bool = True) -> None:
        self._title = title
        self._is_live = live and sys.stderr.isatty()
        self._live: Any = None
        self._shown: dict[str, int] = {}

    def __enter__(self) -> "PipelineView":
        if self._is_live:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, book: RunProgress) -> None:
        if self._live is not None:
            self._live.update(self._table(book))
            return
        for name, totals in book.queries.items():
            if totals.batches > self._shown.get(name, 0):
                self._shown[name] = totals.batches
                say(line_of(totals.last))

    def _table(self, book: RunProgress) -> Any:
        from rich.table import Table
        from rich.text import Text

        made = Table(title=Text(self._title), title_justify="left", box=None, padding=(0, 2, 0, 0), header_style="bold")
        for head in _HEADS:
            made.add_column(head, justify="left" if head == "QUERY" else "right")
        for name, totals in book.queries.items():
            last = totals.last
            seconds = max(totals.busy_ms / 1000, 1e-9)
            state = f"{last.state_rows:,} / {human_bytes(last.state_bytes)}" if last.state_rows else "-"
            made.add_row(
                Text(name),
                str(last.batch_id),
                f"{totals.rows_in:,}",
                f"{totals.rows_in / seconds:,.0f}",
                f"{totals.rows_out:,}",
                f"{totals.rows_out / seconds:,.0f}",
                f"{last.duration_ms:,} ms",
                f"{last.lag:,}",
                state,
                f"{totals.bad:,}",
            )
        if not book.queries:
            made.add_row(f"waiting for the first batch … {time.strftime('%H:%M:%S')}")
        return made


def line_of(batch: BatchProgress) -> str:
    """A batch in a line."""
    text = (
        f"{batch.query}: batch {batch.batch_id}, {batch.rows_in:,} in, {batch.rows_out:,} out, "
        f"{batch.duration_ms:,} ms, lag {batch.lag:,}"
    )
    if batch.state_rows:
        text += f", state {batch.state_rows:,} rows"
    if batch.bad:
        text += f", {batch.bad:,} bad"
    return text
