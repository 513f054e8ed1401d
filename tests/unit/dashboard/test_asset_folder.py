"""The files of the dashboard: complete, bounded, of no other host, and vendored ones as they are listed."""

import hashlib
import re
from pathlib import Path

import pytest

from headrace.dashboard.asset_folder import FOLDER, MEDIA_TYPES, load_assets

VENDOR = FOLDER / "vendor"
OWN = sorted(
    each for each in FOLDER.rglob("*") if each.suffix in (".js", ".css", ".html") and VENDOR not in each.parents
)
MODULES = [each for each in OWN if each.suffix == ".js"]
MOST_LINES = 300


def name(file: Path) -> str:
    return file.relative_to(FOLDER).as_posix()


def test_the_page_lists_every_module_under_the_digest() -> None:
    folder = load_assets("/ui/assets/")
    page = folder.page.content.decode()
    assert "{assets}" not in page
    for module in MODULES:
        assert f'"/ui/assets/{folder.digest}/{name(module)}"' in page
    for address in re.findall(r'(?:href|src)="([^"]+)"', page):
        assert address.removeprefix(f"/ui/assets/{folder.digest}/") in folder.files


def test_the_digest_changes_with_any_file(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<!-- modules -->{assets}/a.js")
    (tmp_path / "a.js").write_text("1")
    first = load_assets("/x/", tmp_path)
    (tmp_path / "a.js").write_text("2")
    second = load_assets("/x/", tmp_path)
    assert first.digest != second.digest
    assert first.page.etag != second.page.etag


def test_notes_and_licences_are_not_served() -> None:
    files = load_assets("/ui/assets/").files
    assert {Path(each).suffix for each in files} <= set(MEDIA_TYPES)
    assert not [each for each in files if "LICENSE" in each]


@pytest.mark.parametrize("module", MODULES, ids=name)
def test_imports_lead_somewhere(module: Path) -> None:
    for target in re.findall(
        r'^(?:import|export) .*?from "([^"]+)";|^\} from "([^"]+)";', module.read_text(), re.MULTILINE
    ):
        path = next(filter(None, target))
        assert path.startswith("."), f"{path}: a browser knows no names of packages"
        assert (module.parent / path).resolve().is_file(), path


@pytest.mark.parametrize("module", MODULES, ids=name)
def test_a_module_is_small_and_makes_no_html_of_text(module: Path) -> None:
    text = module.read_text()
    assert text.count("\n") <= MOST_LINES
    assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text) == []


@pytest.mark.parametrize("file", OWN, ids=name)
def test_no_other_host_is_named(file: Path) -> None:
    allowed = ("http://www.w3.org/2000/svg",)
    found = re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}[^\s\"'`)]*", file.read_text())
    assert [each for each in found if each not in allowed] == []


def test_vendored_files_are_those_that_are_listed() -> None:
    rows = re.findall(
        r"^\| (\S+) \| (\S+) \| (\S+) \| (\S+) \| .+ \| ([0-9a-f]{64}) \|$", (VENDOR / "README.md").read_text(), re.M
    )
    listed = {file: digest for file, _, _, _, digest in rows}
    there = {each.name for each in VENDOR.iterdir() if each.suffix not in (".md", ".txt")}
    assert set(listed) == there
    for file, digest in listed.items():
        assert hashlib.sha256((VENDOR / file).read_bytes()).hexdigest() == digest, file
    for file, _, _, licence, _ in rows:
        assert licence in ("MIT", "Apache-2.0", "OFL-1.1")
        assert (VENDOR / f"{file.partition('.')[0].removesuffix('-hooks')}.LICENSE.txt").is_file()
