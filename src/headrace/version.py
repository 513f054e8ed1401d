"""Which Headrace this is: its version, and the commit it was built from where that is known.

A wheel and an sdist carry the commit in the file `commit.txt` beside this module, which the build writes
(`hatch_build.py`, which uses `describe_checkout`, too). In a git checkout git is asked. Imports are lazy
where they are slow, and only from the standard library, because the build has nothing else.
"""

from functools import cache
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path

COMMIT_FILE = "commit.txt"
_PACKAGE = Path(__file__).parent
_GIT_TIMEOUT_S = 5.0


@cache  # A broker asks at each sample of its figures, and reading the package's metadata blocks.
def version() -> str:
    """The version of the installed package; `unknown` where the code is used without being installed."""
    try:
        return installed_version("headrace")
    except PackageNotFoundError:
        return "unknown"


@cache
def commit() -> str | None:
    """The commit, as `1a2b3c4` or `1a2b3c4-dirty` where tracked files were changed since; None where unknown. As it was
    at the first call of a process, which blocks while git is asked."""
    try:
        return (_PACKAGE / COMMIT_FILE).read_text().strip() or None
    except OSError:
        return describe_checkout(_PACKAGE.parents[1])


def version_text() -> str:
    """What `headrace --version` prints: `headrace 0.2.0 (commit 1a2b3c4)`."""
    found = commit()
    return f"headrace {version()}" + (f" (commit {found})" if found else "")


def describe_checkout(root: Path) -> str | None:
    """The commit of the git checkout with this root; None if it is none, or git is not there or fails.

    A folder somewhere inside of another project's checkout is not described by that project's commit.
    """
    if not (root / ".git").exists():
        return None
    import subprocess

    git = ["git", f"--git-dir={root / '.git'}", f"--work-tree={root}", "--no-optional-locks"]
    describe = ["describe", "--always", "--dirty", "--abbrev=7", "--exclude=*"]
    try:
        done = subprocess.run(
            git + describe, cwd=root, capture_output=True, text=True, timeout=_GIT_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
