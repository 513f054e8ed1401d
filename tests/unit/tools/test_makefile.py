"""The Makefile installs what each command needs, and CI runs the command that the README names."""

import re
import subprocess
from pathlib import Path

import pytest

from .tiny import ROOT, environment


def commands(*arguments: str) -> str:
    """What make would run."""
    variables = environment()
    del variables["PYTHON"]
    return subprocess.run(
        ["make", "--dry-run", *arguments],
        cwd=ROOT,
        env=variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout


@pytest.mark.parametrize(
    ("arguments", "extras"),
    [
        (["run"], "'cluster,spark'"),
        (["run", "EXTRAS="], "''"),
        (["cluster", "EXTRAS="], "',cluster'"),
        (["test"], "cluster,dev,spark"),
        (["check"], "cluster,dev,spark"),
        (["site"], "site"),
    ],
)
def test_each_command_installs_what_it_needs(arguments: list[str], extras: str) -> None:
    found = re.findall(r"-m tools\.install --venv \.venv  --extras (\S*)$", commands(*arguments), re.MULTILINE)
    assert set(found) == {extras}


@pytest.mark.parametrize(
    ("failing", "last"),
    [
        ((), "all is well"),
        (("mypy",), "FAILED: lint (see above)"),
        (("python",), "FAILED: unit (see above)"),
        (("ruff", "python"), "FAILED: unit lint (see above)"),
    ],
)
def test_the_last_lines_of_make_test_say_what_failed(tmp_path: Path, failing: tuple[str, ...], last: str) -> None:
    for name in ("python", "ruff", "mypy", "lint-imports"):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho {name} has run\nexit {int(name in failing)}\n")
        program.chmod(0o755)
    (tmp_path / "lint-imports").write_text("#!/bin/sh\necho all is well\n")
    done = subprocess.run(
        ["make", "test", "INSTALL=@true", "PACKAGES=", f"BIN={tmp_path}"],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.splitlines()[-1] == last
    assert (done.returncode != 0) is bool(failing)
    assert "python has run" in done.stdout


def test_a_python_that_is_named_replaces_that_of_the_environment() -> None:
    assert "tools/find-python python3.12) " in commands("run", "PYTHON=python3.12")
    assert "--this-python" in commands("run", "PYTHON=python3.12")


def test_ci_runs_the_test_command_of_the_readme() -> None:
    named = re.findall(r"^    (make \w+) +#", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert named == ["make run", "make test"]
    assert (ROOT / ".ci/run").read_text().endswith(f" -m tools.cold {named[1]}\n")


def test_no_package_index_is_named() -> None:
    """Where packages come from is for pip's own settings to say."""
    for path in ("Makefile", "constraints.txt", ".ci/run", "tools/install.py", "tools/cold.py"):
        assert not re.search(r"https?://|--(extra-)?index-url", (ROOT / path).read_text()), path
