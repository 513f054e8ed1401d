"""An interpreter counts only if it runs and is of the right version."""

import subprocess
import sys
from pathlib import Path

from tools.smoke import find_python

from .tiny import ROOT


def make_python(path: Path, script: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def find(*names: str, path: str = "/usr/bin:/bin") -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "tools/find-python"), *names]
    return subprocess.run(command, env={"PATH": path}, capture_output=True, text=True, timeout=60, check=False)


def test_the_first_that_is_new_enough_is_taken(tmp_path: Path) -> None:
    old = make_python(tmp_path / "old", "echo 3.9.2; exit 1")
    shim = make_python(tmp_path / "shim", "echo 'pyenv: not found' >&2; exit 127")
    assert find(old, shim, sys.executable).stdout == f"{sys.executable}\n"


def test_without_any_the_error_says_what_was_tried_and_what_to_do(tmp_path: Path) -> None:
    old = make_python(tmp_path / "old", "echo 3.9.2; exit 1")
    done = find(old, "no-such-python")
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"none is: {old} is 3.9.2, no-such-python does not run." in done.stderr
    assert "make run PYTHON=" in done.stderr


def test_the_usual_names_are_tried(tmp_path: Path) -> None:
    make_python(tmp_path / "python3", "echo 3.9.2; exit 1")
    make_python(tmp_path / "python3.12", f'exec {sys.executable} "$@"')
    assert find(path=f"{tmp_path}:/usr/bin:/bin").stdout == "python3.12\n"


def test_launchers_that_do_not_run_are_passed_over(tmp_path: Path) -> None:
    """As with pyenv: its launcher is first on PATH and fails, the interpreter itself is in a folder of its version."""
    make_python(tmp_path / "shims/python9.9", "exit 127")
    make_python(tmp_path / "pyenv/versions/9.9.1/bin/python", "echo 9.9 /opt/9.9/bin/python")
    variables = {"PATH": str(tmp_path / "shims"), "PYENV_ROOT": str(tmp_path / "pyenv")}
    assert find_python("9.9", variables) == "/opt/9.9/bin/python"
    assert find_python("9.8", variables) is None


def test_a_name_that_lies_about_its_version_is_passed_over(tmp_path: Path) -> None:
    make_python(tmp_path / "python9.9", "echo 9.8 /opt/9.8/bin/python")
    assert find_python("9.9", {"PATH": str(tmp_path), "HOME": str(tmp_path)}) is None
