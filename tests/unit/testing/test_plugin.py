"""The pytest plugin as its users have it: loaded by every pytest of an environment with Headrace, used by few."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

OWN_MODULES = ["headrace", "headrace.testing", "headrace.testing.plugin"]


def run_pytest(folder: Path, test: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A run of pytest with this plugin and no other, in a folder with one test, with warnings as errors."""
    (folder / "test_one.py").write_text(test)
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    command = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, "-p", "headrace.testing.plugin", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_loading_it_imports_nothing_but_itself() -> None:
    code = (
        "import sys, pytest; before = set(sys.modules); import headrace.testing.plugin; "
        "print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == str(OWN_MODULES)


def test_a_run_that_does_not_use_it_imports_no_more_and_leaves_nothing(tmp_path: Path) -> None:
    test = (
        "import sys\n\n"
        "def test_modules():\n"
        f"    assert sorted(each for each in sys.modules if each.startswith('headrace')) == {OWN_MODULES}\n"
        "    assert not {'kio', 'confluent_kafka', 'msgspec', 'uvloop', 'hypothesis'} & set(sys.modules)\n"
    )
    done = run_pytest(tmp_path, test)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["test_one.py"]


def test_a_run_with_a_broker_leaves_nothing_either(tmp_path: Path) -> None:
    pytest.importorskip("hypothesis")
    test = (
        "import sys\n\n"
        "def test_broker(headrace_broker):\n"
        "    assert headrace_broker.bootstrap.startswith('127.0.0.1:')\n"
        "    assert 'hypothesis' not in sys.modules\n"
    )
    done = run_pytest(tmp_path, test)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["test_one.py"]
    assert "ResourceWarning" not in done.stderr


def test_the_fixtures_are_listed_with_what_they_are(tmp_path: Path) -> None:
    listed = run_pytest(tmp_path, "", "--fixtures").stdout
    assert "A running broker for this test only" in listed
    assert "A running broker that all tests of the run share" in listed
