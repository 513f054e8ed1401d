"""The revision that a commit is compared with: which it is, its files, and whether it runs in this environment."""

import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement


class RevisionUnusable(Exception):
    """The comparison cannot be made; the message says why, and what to do about it."""


class Revision(NamedTuple):
    commit: str
    why: str


def git(repository: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=repository, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RevisionUnusable(f"git {' '.join(words)}: {(done.stderr.strip().splitlines() or ['it failed'])[-1]}")
    return done.stdout.strip()


def revision(repository: Path, wanted: str) -> Revision:
    """The wanted revision; with an empty name the last release before this commit."""
    if wanted:
        return _named(repository, wanted, "asked for")
    try:
        tag = git(repository, "describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^")
    except RevisionUnusable:
        return _of_version_before(repository)
    return _named(repository, tag, f"the release {tag}")


def _named(repository: Path, name: str, why: str) -> Revision:
    return Revision(git(repository, "rev-parse", "--short=8", "--verify", f"{name}^{{commit}}"), why)


def _of_version_before(repository: Path) -> Revision:
    """No release has a tag: the last commit of the version before this one, which is the nearest to a release."""
    now = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["version"]
    line = f'version = "{now}"'
    found = git(repository, "log", "--format=%H", f"-S{line}", "--", "pyproject.toml").splitlines()
    if not found:
        raise RevisionUnusable("there is no release to compare with yet: name a revision, --gate REV")
    why = f"no tag v* before this commit, so the last commit before the version became {now}"
    return _named(repository, f"{found[-1]}^", why)


@contextmanager
def work_tree(repository: Path, commit: str, folder: Path) -> Iterator[Path]:
    """The files of a commit in a folder, as a work tree of git that is removed at the end."""
    git(repository, "worktree", "add", "--detach", str(folder), commit)
    try:
        yield folder
    finally:
        git(repository, "worktree", "remove", "--force", str(folder))


def unmet_requirements(project: Path) -> list[str]:
    """What a project needs that this environment does not have."""
    wanted = tomllib.loads((project / "pyproject.toml").read_text())["project"]["dependencies"]
    return [text for text in wanted if not _is_met(Requirement(text))]


def _is_met(wanted: Requirement) -> bool:
    if wanted.marker is not None and not wanted.marker.evaluate():
        return True
    try:
        return wanted.specifier.contains(version(wanted.name), prereleases=True)
    except PackageNotFoundError:
        return False
