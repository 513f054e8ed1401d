"""Which revision the gate compares with."""

import subprocess
from pathlib import Path

import pytest
from bench.harness.revisions import RevisionUnusable, revision, unmet_requirements, work_tree

_IDENTITY = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Three commits: version 1.0, a change of it, version 1.1."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    commit(folder, "1.0", "first")
    commit(folder, "1.0", "second")
    commit(folder, "1.1", "third")
    return folder


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *_IDENTITY, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(folder: Path, version: str, text: str) -> None:
    project = f'[project]\nname = "x"\nversion = "{version}"\ndependencies = ["pytest>=1", "no-such-package>=2"]\n'
    (folder / "pyproject.toml").write_text(project)
    (folder / "text").write_text(text)
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", text)


def test_the_newest_release_before_this_commit(repository: Path) -> None:
    git(repository, "tag", "v1.0", "HEAD^^")
    git(repository, "tag", "v1.0.1", "HEAD^")
    git(repository, "tag", "v1.1", "HEAD")
    found = revision(repository, "")
    assert found.commit == git(repository, "rev-parse", "--short=8", "HEAD^")
    assert "v1.0.1" in found.why


def test_without_a_release_the_last_commit_of_the_version_before(repository: Path) -> None:
    found = revision(repository, "")
    assert found.commit == git(repository, "rev-parse", "--short=8", "HEAD^")
    assert "before the version became 1.1" in found.why


def test_the_one_that_is_asked_for(repository: Path) -> None:
    assert revision(repository, "HEAD^^").commit == git(repository, "rev-parse", "--short=8", "HEAD^^")
    with pytest.raises(RevisionUnusable, match="nowhere"):
        revision(repository, "nowhere")


def test_its_files_are_there_for_as_long_as_they_are_needed(repository: Path, tmp_path: Path) -> None:
    with work_tree(repository, "HEAD^", tmp_path / "before") as folder:
        assert (folder / "text").read_text() == "second"
        assert unmet_requirements(folder) == ["no-such-package>=2"]
    assert not folder.exists()
    assert len(git(repository, "worktree", "list").splitlines()) == 1
