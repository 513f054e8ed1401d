"""The results as JSON, as a table and as a plot of ratios."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from harness.lab import BARE, BARE_SOURCES
from harness.targets import Verdict
from harness.workload import Metric, Workload

Results = dict[str, dict[str, list[dict[str, Any]]]]


def write_json(path: Path, environment: Mapping[str, Any], results: Results, verdicts: Sequence[Verdict]) -> None:
    judged = [
        {
            "workload": verdict.target.workload,
            "what": verdict.target.text,
            "metric": verdict.target.metric,
            "target": verdict.target.bound,
            "values": list(verdict.values),
            "median": verdict.value,
            "met": verdict.is_met,
            "note": verdict.note,
        }
        for verdict in verdicts
    ]
    whole = {"environment": environment, "verdicts": judged, "results": results}
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(whole, indent=1) + "\n")
    temporary.rename(path)


def markdown(
    environment: Mapping[str, Any], workloads: Sequence[Workload], results: Results, verdicts: Sequence[Verdict]
) -> str:
    lines = ["# Benchmark results", ""]
    lines += [
        "Every ratio is of two figures of the same round of this run; absolute numbers are this machine's, whatever",
        "else it did. `os` and `ack` are Headrace's `flush.policy`; `bare` is a server that only moves the bytes.",
        "",
        *(f"- {key}: {value}" for key, value in environment.items() if key not in ("systems", "missing")),
        *(f"- {name} {version}" for name, version in environment["systems"].items() if not name.startswith("bare")),
        *(f"- {name}: not measured, {reason}" for name, reason in environment["missing"].items()),
        "",
    ]
    lines += _verdict_table(verdicts)
    for workload in workloads:
        if workload.name in results:
            lines += _workload_table(workload, results[workload.name])
    return "\n".join(lines).rstrip() + "\n"


def _verdict_table(verdicts: Sequence[Verdict]) -> list[str]:
    lines = ["## Targets", "", "| workload | what | target | median | range | |", "|---|---|---|---:|---:|---|"]
    for verdict in verdicts:
        spread = f"{number(min(verdict.values))} to {number(max(verdict.values))}"
        word = ", ".join(filter(None, (verdict.word, verdict.note)))
        target = verdict.target
        cells = (target.workload, target.text, target.bound, number(verdict.value), spread, word)
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def _workload_table(workload: Workload, rows: Mapping[str, list[dict[str, Any]]]) -> list[str]:
    metrics = (workload.metric, *workload.shown)
    bases = [label for label in ("kafka", BARE.label, *(one.label for one in BARE_SOURCES)) if label in rows]
    heads = ["", *(metric.unit for metric in metrics), *(f"÷ {base}" for base in bases)]
    lines = [f"## {workload.name}", "", f"{workload.title}.", ""]
    lines += ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    for label, rounds in rows.items():
        good = [one for one in rounds if "error" not in one]
        if not good:
            lines.append(f"| {label} | {rounds[0]['error'] if rounds else ''} |" + " |" * (len(heads) - 2))
            continue
        cells = [label, *(_median(good, metric) for metric in metrics)]
        cells += [_ratio(rounds, rows[base], workload.metric) for base in bases]
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def _median(rounds: Sequence[Mapping[str, float]], metric: Metric) -> str:
    values = [one[metric.key] for one in rounds if metric.key in one]
    return number(median(values)) if values else ""


def _ratio(rounds: Sequence[Mapping[str, float]], base: Sequence[Mapping[str, float]], metric: Metric) -> str:
    key = metric.key
    pairs = zip(rounds, base, strict=False)
    values = [one[key] / other[key] for one, other in pairs if key in one and other.get(key)]
    return number(median(values)) if values else ""


def number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def plot(path: Path, verdicts: Sequence[Verdict]) -> bool:
    """A bar per ratio on a logarithmic scale, its range over the rounds, and its target; False without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [verdict for verdict in verdicts if verdict.target.under is not None and verdict.value > 0]
    if not shown:
        return True
    shown = shown[::-1]
    figure, axes = pyplot.subplots(figsize=(11, 1.2 + 0.28 * len(shown)), layout="constrained")
    colours = {True: "#2a7f62", False: "#c0392b", None: "#8a94a0"}
    rows = range(len(shown))
    axes.barh(
        rows, [verdict.value for verdict in shown], color=[colours[verdict.is_met] for verdict in shown], height=0.7
    )
    for row, verdict in zip(rows, shown, strict=True):
        axes.plot((min(verdict.values), max(verdict.values)), (row, row), color="black", linewidth=1)
        bound = verdict.target.at_least or verdict.target.at_most
        if bound is not None:
            axes.plot((bound, bound), (row - 0.45, row + 0.45), color="#d4a017", linewidth=2.5)
        axes.annotate(f" {verdict.value:.2f}", (max(verdict.values), row), va="center", fontsize=8)
    labels = [f"{verdict.target.workload}: {verdict.target.text}" for verdict in shown]
    axes.set_yticks(rows, labels, fontsize=8)
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=0.8, linestyle=":")
    axes.set_ylim(-0.7, len(shown) - 0.3)
    axes.set_xlabel("ratio within the run; yellow: the target; line: range over the rounds; for latency less is better")
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
    return True
