"""The page of metrics is made from their declarations."""

import re
from pathlib import Path

import pytest

from headrace.monitor.collectors.catalog import AREAS
from headrace.monitor.reference import main, with_tables
from headrace.observe.families import MetricKind

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"
METRICS = [metric for metrics in AREAS.values() for metric in metrics]


def test_the_page_is_current() -> None:
    text = PAGE.read_text("utf-8")
    assert text == with_tables(text), "run python -m headrace.monitor.reference docs/metrics.md"


def test_it_is_written(tmp_path: Path) -> None:
    target = tmp_path / "metrics.md"
    target.write_text(PAGE.read_text("utf-8").rpartition("\n|")[0])
    assert main([str(target)]) == 0
    assert target.read_text("utf-8") == PAGE.read_text("utf-8")
    assert main([]) == 2
    with pytest.raises(ValueError, match="lacks the line"):
        with_tables("# Another page")


def test_names_are_declared_once() -> None:
    names = [metric.name for metric in METRICS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_and_labels_follow_the_rules(metric) -> None:
    assert re.fullmatch(r"(headrace|kafka|process)_[a-z0-9_]+[a-z0-9]", metric.name)
    assert metric.name.endswith("_total") is (metric.kind is MetricKind.COUNTER)
    assert metric.help.endswith(".")
    assert "\n" not in metric.help
    assert not any(word in metric.name for word in ("_ms", "_millis", "_kb", "_mb", "_minutes"))
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", label) for label in metric.labels)
