"""Hooks of mkdocs: the pages at the root of the repository become pages of the site.

`README.md` is the site's first page. In all pages the comments that tell the tests how to run a block are left out.
"""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]

ROOT_PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "vulnerabilities.md",
}
"""The name in the site of each page that is not in docs/."""

_COMMENT = re.compile(r"^[ \t]*<!--.*?-->[ \t]*\n", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#:]+\.md)(#[\w-]+)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name, in_site in ROOT_PAGES.items():
        files.append(File.generated(config, in_site, content=_from_root((ROOT / name).read_text())))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    text = _COMMENT.sub("", markdown)
    return _LINK.sub(lambda found: f"]({_in_site(found[1])}{found[2] or ''})", text)


def _from_root(text: str) -> str:
    """The page with links as from within docs/."""
    return text.replace("](docs/", "](")


def _in_site(link: str) -> str:
    """The link to a page at the root, by its name in the site."""
    folder, _, name = link.rpartition("/")
    if name not in ROOT_PAGES or (name == "README.md" and not folder.endswith("..")):
        return link
    above = folder.removesuffix("..").rstrip("/")
    return f"{above}/{ROOT_PAGES[name]}" if above else ROOT_PAGES[name]
