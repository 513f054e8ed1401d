"""The work of `headrace probe`: sends at each interval, shows the figures, and decides the exit code."""

import json
import time
from contextlib import ExitStack, suppress
from typing import Any

from headrace.cli.metrics_listener import MetricsListener
from headrace.cli.output import human_duration, print_json, say
from headrace.cli.probe.metrics import families
from headrace.cli.probe.paths import ProbePath, opened
from headrace.cli.probe.plan import ProbePlan
from headrace.cli.screen import is_screen

_LOOK_EVERY_S = 0.02
_HEADS = ("PATH", "SENT", "LOST", "LAST", "P50", "P99", "MAX", "ACK P50", "ACK P99")


def run_probe(plan: ProbePlan, listen: str, *, as_json: bool) -> int:
    """Returns the exit code."""
    with ExitStack() as stack:
        paths = stack.enter_context(opened(plan))
        if listen:
            listener = MetricsListener(listen, lambda: families(paths))
            stack.callback(listener.close)
            say(f"Serving {listener.url}")
        view = stack.enter_context(ProbeView(paths, plan, as_json=as_json))
        with suppress(KeyboardInterrupt):
            _send_all(paths, plan, view)
        results = {path.name: summary(path) for path in paths}
    view.finish(results)
    return int(any(_is_bad(each, plan.max_ms) for each in results.values()))


def _send_all(paths: list[ProbePath], plan: ProbePlan, view: "ProbeView") -> None:
    number, next_s = 0, time.monotonic()
    while not plan.count or number < plan.count:
        for path in paths:
            path.send(number)
        number += 1
        next_s = max(next_s + plan.interval_s, time.monotonic())
        while (left_s := next_s - time.monotonic()) > 0 and (not plan.count or number < plan.count):
            time.sleep(min(left_s, 0.25))
            view.update()
        view.sent()
    deadline = time.monotonic() + plan.lost_after_s + 1.0
    while any(_pending(path) for path in paths) and time.monotonic() < deadline:
        time.sleep(_LOOK_EVERY_S)


def _pending(path: ProbePath) -> int:
    with path.lock:
        return path.figures().pending


def summary(path: ProbePath) -> dict[str, Any]:
    with path.lock:
        found = path.figures()
        return {
            "sent": found.sent,
            "received": found.received,
            "lost": found.lost,
            "late": found.late,
            "failed": found.failed,
            "in_flight": found.pending,
            "last_ms": _ms(found.last_s),
            "p50_ms": _ms(found.quantile_s(0.5)),
            "p99_ms": _ms(found.quantile_s(0.99)),
            "max_ms": _ms(found.max_s if found.received else None),
            "ack_p50_ms": _ms(found.ack_quantile_s(0.5)),
            "ack_p99_ms": _ms(found.ack_quantile_s(0.99)),
            "last_error": found.last_error,
        }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


def _is_bad(result: dict[str, Any], max_ms: float | None) -> bool:
    is_slow = max_ms is not None and result["max_ms"] is not None and result["max_ms"] > max_ms
    return bool(result["lost"]) or is_slow


class ProbeView:
    """A live table at a terminal, a line for each message in a log, or JSON."""

    def __init__(self, paths: list[ProbePath], plan: ProbePlan, *, as_json: bool) -> None:
        self._paths = paths
        self._plan = plan
        self._is_json = as_json
        self._is_live = not as_json and is_screen()
        self._live: Any = None

    def __enter__(self) -> "ProbeView":
        if self._is_live:
            from rich.live import Live

            self._live = Live(self._table(self._results()), refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self) -> None:
        if self._live is not None:
            self._live.update(self._table(self._results()))

    def sent(self) -> None:
        """After each interval."""
        if self._plan.count:
            return
        if self._is_json:
            print(json.dumps(self._results()), flush=True)
        elif not self._is_live:
            print("; ".join(f"{name}: {_line(each)}" for name, each in self._results().items()), flush=True)

    def finish(self, results: dict[str, dict[str, Any]]) -> None:
        if self._is_json:
            if self._plan.count:
                print_json(results)
            return
        from rich.console import Console

        Console().print(self._table(results))

    def _results(self) -> dict[str, dict[str, Any]]:
        return {path.name: summary(path) for path in self._paths}

    @staticmethod
    def _table(results: dict[str, dict[str, Any]]) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        made = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        for head in _HEADS:
            made.add_column(head, justify="left" if head == "PATH" else "right", no_wrap=True)
        for name, each in results.items():
            lost = Text(f"{each['lost']:,}", style="bold red" if each["lost"] else "")
            times = ("last_ms", "p50_ms", "p99_ms", "max_ms", "ack_p50_ms", "ack_p99_ms")
            made.add_row(Text(name), f"{each['sent']:,}", lost, *(_time(each[key]) for key in times))
        errors = [f"{name}: {each['last_error']}" for name, each in results.items() if each["last_error"]]
        return Group(made, *(Text(each, style="red") for each in errors))


def _line(result: dict[str, Any]) -> str:
    text = f"{_time(result['last_ms'])} (p50 {_time(result['p50_ms'])}, p99 {_time(result['p99_ms'])}), "
    return text + f"{result['lost']:,} of {result['sent']:,} lost"


def _time(ms: float | None) -> str:
    if ms is None:
        return "-"
    return f"{ms:.1f} ms" if ms < 100 else human_duration(ms / 1000)
