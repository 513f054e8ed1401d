"""The Makefile installs what each command needs, and CI runs the command that the README names."""

import re
import subprocess

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
    assert re.findall(r"-m tools\.install --venv \.venv  --extras (\S*)$", commands(*arguments), re.MULTILINE) == [
        extras
    ]


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
