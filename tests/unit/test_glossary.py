"""The glossary defines each term once, and the words that it retires stay out of the places that are clean."""

import re
from pathlib import Path

import pytest

from tests.docstrings import PublicName, public_names

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs/glossary.md"

CLEAN = (
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs",
    "src/headrace",
    "src/pyspark_headrace",
)
"""Files and folders without retired words."""
NOT_YET = ("docs/glossary.md",)
"""Pages in `CLEAN` that are left out: the list of the retired words itself."""


def table(heading: str) -> list[tuple[str, str]]:
    text = GLOSSARY.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", text, flags=re.MULTILINE)
    return [(left, right) for left, right in rows if left not in ("Term", "Retired")]


HEADINGS = re.findall(r"^## (.+)$", GLOSSARY.read_text(), flags=re.MULTILINE)
TERMS = [term for heading in HEADINGS if heading != "Retired words" for term, _ in table(heading)]
RETIRED = [word for words, _ in table("Retired words") for word in words.split(", ")]
PATTERN = re.compile(r"\b(" + "|".join(r"\s+".join(words.split()) for words in RETIRED) + r")\b", re.IGNORECASE)


def files() -> list[Path]:
    found = []
    for name in CLEAN:
        path = ROOT / name
        found += sorted(each for each in path.rglob("*") if each.suffix in (".md", ".py")) if path.is_dir() else [path]
    return [each for each in found if str(each.relative_to(ROOT)) not in NOT_YET]


def test_each_term_is_defined_once_and_in_order() -> None:
    assert len(TERMS) == len({*TERMS})
    assert len(TERMS) >= 70
    for heading in HEADINGS:
        terms = [term.lower() for term, _ in table(heading)]
        assert terms == sorted(terms) or heading == "Retired words", heading


def test_no_term_is_retired() -> None:
    assert [term for term in TERMS if PATTERN.search(term)] == []
    assert len(RETIRED) >= 20


def test_the_architecture_page_leads_to_the_glossary() -> None:
    assert "](glossary.md)" in (ROOT / "docs/architecture.md").read_text()


@pytest.mark.parametrize("file", files(), ids=lambda file: str(file.relative_to(ROOT)))
def test_retired_words_do_not_come_back(file: Path) -> None:
    if file.suffix == ".md":
        # What a program prints, and code, is quoted as it is.
        text = re.sub(r"`[^`\n]*`", "``", file.read_text())
    else:
        # The parts of identifiers are words, too.
        text = file.read_text().replace("_", " ")
    found = [f"line {text.count(chr(10), 0, match.start()) + 1}: {match[0]}" for match in PATTERN.finditer(text)]
    assert found == [], f"docs/glossary.md has the words to use: {found}"


@pytest.mark.parametrize("public", public_names(), ids=lambda public: public.name)
def test_retired_words_are_not_in_public_docstrings(public: PublicName) -> None:
    assert {name: PATTERN.findall(text) for name, text in public.docstrings() if PATTERN.search(text)} == {}


def test_what_is_left_out_exists() -> None:
    assert all((ROOT / name).exists() for name in (*CLEAN, *NOT_YET))
