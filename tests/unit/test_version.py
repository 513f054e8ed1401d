"""What Headrace says about itself: the version, and the commit where it is known."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version as installed_version
from pathlib import Path

import pytest

import headrace
from headrace import version

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", *who, *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=True, env=without_git()
    )
    return done.stdout.strip()


def without_git() -> dict[str, str]:
    """The environment without what git sets where it runs the tests, as in a hook."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}


@pytest.fixture(autouse=True)
def _asked_again() -> Iterator[None]:
    """Nothing is known from another test, nor after this one."""
    version.commit.cache_clear()
    yield
    version.commit.cache_clear()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "file").write_text("1")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


def test_a_checkout_is_its_commit_and_says_whether_files_were_changed(checkout: Path) -> None:
    short = git(checkout, "rev-parse", "--short=7", "HEAD")
    git(checkout, "tag", "-a", "-m", "a tag is not what is asked for", "v9")
    assert version.describe_checkout(checkout) == short
    (checkout / "untracked").touch()
    assert version.describe_checkout(checkout) == short
    (checkout / "file").write_text("2")
    assert version.describe_checkout(checkout) == f"{short}-dirty"


def test_a_worktree_is_a_checkout(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("worktrees") / "other"
    git(checkout, "worktree", "add", "-q", str(folder))
    assert version.describe_checkout(folder) == git(checkout, "rev-parse", "--short=7", "HEAD")


def test_a_folder_inside_of_another_projects_checkout_has_no_commit(checkout: Path) -> None:
    (checkout / "vendored").mkdir()
    assert version.describe_checkout(checkout / "vendored") is None


def test_without_git_or_commits_the_commit_is_unknown(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path_factory.mktemp("empty")
    git(empty, "init", "-q")
    assert version.describe_checkout(empty) is None
    monkeypatch.setenv("PATH", str(empty))
    assert version.describe_checkout(checkout) is None


def test_the_file_of_the_build_comes_before_git(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = checkout / "src" / "headrace"
    package.mkdir(parents=True)
    monkeypatch.setattr(version, "_PACKAGE", package)
    short = git(checkout, "rev-parse", "--short=7", "HEAD")
    assert version.version_text() == f"headrace {version.version()} (commit {short})"
    (package / version.COMMIT_FILE).write_text("abcdef1\n")
    version.commit.cache_clear()
    assert version.version_text() == f"headrace {version.version()} (commit abcdef1)"


def test_where_nothing_is_known_there_is_only_the_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "_PACKAGE", tmp_path / "lib" / "headrace")
    assert version.version_text() == f"headrace {installed_version('headrace')}"


def test_the_package_has_its_version() -> None:
    assert headrace.__version__ == installed_version("headrace")


def test_only_those_who_ask_pay_for_it() -> None:
    code = "import sys, headrace.cli.main; print('headrace.version' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"


def test_the_version_is_read_from_disk_once(monkeypatch: pytest.MonkeyPatch) -> None:
    known = version.version()
    monkeypatch.setattr(version, "installed_version", lambda _: pytest.fail("it was read again"))
    assert version.version() == known


def test_git_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []
    monkeypatch.setattr(version, "COMMIT_FILE", "there is none")
    monkeypatch.setattr(version, "describe_checkout", asked.append)
    assert version.commit() is None
    assert version.commit() is None
    assert len(asked) == 1
