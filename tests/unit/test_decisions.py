"""Each decision in `docs/adr` has a number, a date and a status, and stands in the index and in the navigation."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DECISIONS = sorted((ROOT / "docs/adr").glob("0*.md"))
INDEX = (ROOT / "docs/adr/README.md").read_text()


def heading_of(page: Path) -> tuple[int, str, str, str]:
    """The number, title, status and date."""
    found = re.match(
        r"# (\d+)\. (.+)\n\nStatus: (accepted|proposed|superseded by \[ADR \d+\]\(\S+\)), (\d{4}-\d\d-\d\d)\.",
        page.read_text(),
    )
    assert found, f"{page.name} begins with '# <number>. <title>' and 'Status: <status>, <date>.'"
    return int(found[1]), found[2], found[3], found[4]


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_has_a_number_a_date_and_a_status(page: Path) -> None:
    number, title, status, date = heading_of(page)
    assert page.name.startswith(f"{number:04}-")
    assert f"| {number} | [{title}]({page.name}) | {date} | {status} |" in INDEX.splitlines()
    assert f"- {number}. " in (ROOT / "mkdocs.yml").read_text()


def test_numbers_have_no_gaps_and_the_index_has_nothing_else() -> None:
    assert [heading_of(page)[0] for page in DECISIONS] == [*range(1, len(DECISIONS) + 1)]
    assert re.findall(r"^\| (\d+) \|", INDEX, flags=re.MULTILINE) == [str(heading_of(page)[0]) for page in DECISIONS]
