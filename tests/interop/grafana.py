"""The Grafana board of `deploy/`: its expressions, and the metrics that they are about."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BOARD = Path(__file__).parents[2] / "deploy/grafana/headrace.json"
_NAME = re.compile(r"\b(?:headrace|kafka|process)_[a-z_]+")


def board() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(BOARD.read_text())
    return found


def expressions(found: dict[str, Any]) -> Iterator[str]:
    """The expressions of all panels, with a value for each variable."""
    for panel in found["panels"]:
        for target in panel.get("targets", ()):
            text = target["expr"].replace("$__rate_interval", "1m")
            yield re.sub(r"\$\w+", ".*", text)


def metrics_of(text: str) -> set[str]:
    """The metrics that an expression, or a query of a variable, is about."""
    return {re.sub(r"_(bucket|sum|count)$", "", name) if "_seconds_" in name else name for name in _NAME.findall(text)}
