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


def test_every_numbered_invariant_in_the_code_is_in_the_list() -> None:
    listed = set(re.findall(r"^\| (\d+) \|", (ROOT / "docs/invariants.md").read_text(), flags=re.MULTILINE))
    used = {
        number
        for file in SOURCE.rglob("*.py")
        for number in re.findall(r"\binvariant\([^\n]*?, (\d+), ", file.read_text())
    }
    assert used
    assert used <= listed


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
