"""The package as it is published: built from the repository, and its wheel installed where there is nothing else."""

import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headrace.version import describe_checkout

ROOT = Path(__file__).parents[2]
_BUILD_S = 120.0
_INSTALL_S = 240.0
_COMMAND_S = 60.0


class Built(NamedTuple):
    """`wheel` was built from `sdist`, as `python -m build` does it; `direct_wheel` from the repository."""

    sdist: Path
    wheel: Path
    direct_wheel: Path
    commit: str | None


class Installation(NamedTuple):
    """An environment with the wheel and what it requires, without any extra and without pip."""

    bin: Path

    def run(self, *arguments: str, cwd: Path, stdin: str = "", **environment: Any) -> subprocess.CompletedProcess[str]:
        """Run `headrace` with these arguments."""
        return run(self.bin / "headrace", *arguments, cwd=cwd, stdin=stdin, **environment)


def clean_environment(**more: str) -> dict[str, str]:
    """The environment without the paths by which Python would find the repository's code, or another pip's settings."""
    dropped = ("PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if name not in dropped} | more


def run(
    *command: str | Path, cwd: Path, stdin: str = "", timeout_s: float = _COMMAND_S, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=cwd,
        env=clean_environment(**environment),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("built")
    for arguments in (("--outdir", folder), ("--wheel", "--outdir", folder / "direct")):
        # The builder of this environment is the one whose version is known: no index is asked for another.
        command = [sys.executable, "-m", "build", "--no-isolation", *arguments, ROOT]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_BUILD_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    (sdist,), (wheel,), (direct_wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl"), folder.glob("direct/*.whl")
    return Built(sdist, wheel, direct_wheel, describe_checkout(ROOT))


@pytest.fixture(scope="session")
def installation(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    folder = tmp_path_factory.mktemp("installation")
    venv.create(folder, symlinks=True, with_pip=False)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", folder / "bin" / "python")
    constraints = ("--constraint", ROOT / "constraints.txt")
    # Most modules are never imported here, so compiling all of them would be the longest part.
    install = (*pip, "install", "--quiet", "--no-compile", *constraints, built.wheel)
    done = run(*install, cwd=folder, timeout_s=_INSTALL_S)
    if done.returncode != 0:
        reachable = run(
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *constraints, "typer"), cwd=folder
        )
        if reachable.returncode != 0:
            pytest.skip("pip finds no packages: there is no index in reach")
    assert done.returncode == 0, done.stdout + done.stderr
    return Installation(folder / "bin")
