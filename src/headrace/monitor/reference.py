"""The tables of `docs/metrics.md`, from the declarations: `python -m headrace.monitor.reference FILE`."""

import sys
from pathlib import Path

from headrace.monitor.collectors.catalog import AREAS
from headrace.observe.families import Metric

_MARK = "<!-- The rest is made from the declarations of the metrics: make docs -->\n"


def with_tables(page: str) -> str:
    """The page with the tables behind the mark made again."""
    before, mark, _ = page.partition(_MARK)
    if not mark:
        raise ValueError(f"the page lacks the line {_MARK}")
    parts = [before, _MARK]
    for title, metrics in AREAS.items():
        parts += [f"\n### {title}\n\n| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n"]
        parts += map(_row, metrics)
    return "".join(parts)


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.help} |\n"


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m headrace.monitor.reference FILE\n")
        return 2
    path = Path(arguments[0])
    path.write_text(with_tables(path.read_text("utf-8")), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
