"""The documents name things that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
SOURCE = ROOT / "src" / "headrace"
PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]*)`")
LINK = re.compile(r"\]\(([^)#:]+)\)")
# Written with a slash and yet no files of ours.
NOT_PATHS = re.compile(r"build/site|(\./)?headrace-(data|cluster)/?.*|\.cache/|/.*|<.*")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_and_links_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    for path in PATH.findall(text):
        if not NOT_PATHS.fullmatch(path):
            places = (ROOT, ROOT / "docs", SOURCE, SOURCE / "kafka")
            assert any((place / path).exists() or [*place.glob(f"{path}-*.md")] for place in places), path
    for link in LINK.findall(text):
        assert (page.parent / link).exists(), link


def test_each_invariant_says_where_the_code_and_which_tests_check_it() -> None:
    """Both ways: a check in the code is in the list, and the list names no check that is not there."""
    checks: dict[str, set[str]] = {}
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "invariant":
                number = ast.unparse(node.args[1])
                checks.setdefault(number, set()).add(str(file.relative_to(SOURCE)))
    rows = dict(re.findall(r"^\| (\d+) \|(.*)$", (ROOT / "docs/invariants.md").read_text(), flags=re.MULTILINE))
    listed = {
        number: {path for each in re.findall(rf"`invariant\(…, {number}, …\)` in ((?:`[^`]+`(?: and )?)+)", row)
                 for path in re.findall(r"`([^`]+)`", each)}
        for number, row in rows.items()
    }  # fmt: skip
    assert {number: paths for number, paths in listed.items() if paths} == checks
    assert [number for number, row in rows.items() if "`tests/" not in row.rpartition(" | ")[2]] == []


def test_log_lines_that_are_told_of_are_what_brokers_write() -> None:
    """In the table of failures, a quoted sentence is a line of the log, with `…` for what differs."""
    text = (ROOT / "docs/operations.md").read_text().partition("### What failures look like")[2].partition("\n## ")[0]
    rows = [row.split("|")[2] for row in text.splitlines() if row.startswith("| ")][1:]
    told = [line for row in rows for line in re.findall(r"`([^`]+)`", row) if " " in line]
    assert len(told) >= 10
    written = set()
    for file in (
        file for part in ("app", "cluster", "replication", "storage") for file in (SOURCE / part).glob("*.py")
    ):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and "%" in node.value:
                written.add(re.sub(r"%[-.\d]*[a-z]", "…", node.value))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                written.add(node.value)
    assert [line for line in told if line not in written] == []
