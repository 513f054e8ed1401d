"""The documentation builds as a site. Links, anchors and navigation are checked where MkDocs is missing, too."""

import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\]\(([^)#:\s]*)(?:#([\w.-]+))?\)")
AT_ROOT = {
    "README.md": "index.md",
    **{f"{name}.md": f"{name.lower()}.md" for name in ("CHANGELOG", "CONTRIBUTING")},
    "SECURITY.md": "vulnerabilities.md",
}
"""As in tools/site.py, which cannot be imported without MkDocs."""


def anchors(page: Path) -> set[str]:
    """The anchors of a page: its headings, as GitHub and Python-Markdown both make them, and its API names."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    slugs = {re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", each.replace("`", "")).strip().lower()) for each in headings}
    return slugs | {*re.findall(r"^::: (\S+)$", text, flags=re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_anchors_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for path, anchor in LINK.findall(text):
        target = (page.parent / path) if path else page
        assert target.exists(), path
        assert not target.is_dir(), f"{path} is a folder: name its page"
        if anchor:
            assert anchor in anchors(target), f"{path}#{anchor}"


def test_every_page_is_in_the_navigation_once() -> None:
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    listed = re.findall(r"([\w./-]+\.md)$", nav, flags=re.MULTILINE)
    in_docs = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert sorted(listed) == sorted(in_docs | {*AT_ROOT.values()})


def test_the_pages_at_the_root_are_those_of_the_hook() -> None:
    source = (ROOT / "tools/site.py").read_text()
    assert dict(re.findall(r'"(\w+\.md)": "(\w+\.md)"', source)) == AT_ROOT
    assert {page.name for page in ROOT.glob("*.md")} == {*AT_ROOT}


def test_a_paragraph_and_a_list_are_apart() -> None:
    """Python-Markdown, unlike GitHub, takes a list or a table right behind a paragraph for a part of it."""
    for page in PAGES:
        text = re.sub(r"^```.*?^```", "```", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        lines = text.splitlines()
        for before, line in pairwise(lines):
            if re.match(r"- |\d+\. |\|", line) and before.strip():
                assert re.match(r"- |\d+\. |\||#|    | ", before), f"{page.name}: {before} / {line}"


needs_mkdocs = pytest.mark.skipif(find_spec("mkdocs") is None, reason="make site installs it")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what the site is made of."""
    for name in ("docs", "tools", "src"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for file in (*ROOT.glob("*.md"), ROOT / "mkdocs.yml"):
        shutil.copy(file, tmp_path)
    return tmp_path


def build(tree: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build"]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=280, check=False)


@pytest.mark.slow
@needs_mkdocs
def test_the_site_is_built(tree: Path) -> None:
    done = build(tree)
    assert done.returncode == 0, done.stderr
    site = tree / "build/site"
    assert "queue" in (site / "search/search_index.json").read_text()
    assert 'id="headrace.Client.publish"' in (site / "api/client.html").read_text()
    assert "&lt;!--" not in "".join(page.read_text() for page in site.rglob("*.html"))


@pytest.mark.slow
@needs_mkdocs
@pytest.mark.parametrize("broken", ["[a page](nowhere.md)", "[a heading](sdk.md#nowhere)"])
def test_a_broken_link_fails_the_build(tree: Path, broken: str) -> None:
    with (tree / "docs/web.md").open("a") as page:
        page.write(f"\n{broken}\n")
    done = build(tree)
    assert done.returncode == 1
    assert "nowhere" in done.stderr
