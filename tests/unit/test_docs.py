"""The documents name things that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
SOURCE = ROOT / "src" / "headrace"
PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]*)`")
LINK = re.compile(r"\]\(([^)#:]+)\)")
# Written with a slash and yet no files of ours.
NOT_PATHS = re.compile(r"(\./)?headrace-data/?.*|\.cache/|/.*|<.*")


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
