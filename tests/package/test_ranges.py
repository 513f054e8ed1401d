"""Headrace is installed beside other packages: its ranges leave them the versions that they want.

A program that uses the SDK has dependencies of its own, and often a web server. What pip makes of both is tried by the
slow tests; that the ranges hold what others pin is seen from the ranges alone.
"""

import json
import re
import sys
import venv
from pathlib import Path

import pytest

from headrace.testing.process import BrokerProcess

from .conftest import ROOT, Built, Installation, run
from .test_build import PROJECT

requirements = pytest.importorskip("packaging.requirements")

pytestmark = pytest.mark.xdist_group("package")

AIRFLOW = ROOT / "tests" / "data" / "airflow-constraints-3.11.txt"
BOUNDED = {"kio": "nothing else in an installation requires it, and its minor versions change its interface"}
"""The requirements with an upper bound, and the reason for each."""
_RESOLVE_S = 280.0


def ranges() -> dict[str, str]:
    """The range of each requirement, without extras."""
    found = [requirements.Requirement(line) for line in PROJECT["dependencies"]]
    return {each.name: str(each.specifier) for each in found}


def lowest() -> list[str]:
    return [f"{name}=={re.findall(r'>=([^,]+)', bounds)[0]}" for name, bounds in ranges().items()]


def test_upper_bounds_have_a_reason() -> None:
    assert {name for name, bounds in ranges().items() if "<" in bounds or "==" in bounds} == set(BOUNDED)


def test_the_versions_that_airflow_pins_are_within_the_ranges() -> None:
    pins = dict(line.split("==") for line in AIRFLOW.read_text().splitlines() if "==" in line)
    shared = {name: version for name, version in pins.items() if name in ranges()}
    assert len(shared) >= 6
    for name, version in shared.items():
        assert requirements.Requirement(f"{name}{ranges()[name]}").specifier.contains(version), name


def pip(folder: Path) -> tuple[str | Path, ...]:
    return (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", folder / "bin" / "python")


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """An environment without any package."""
    venv.create(tmp_path / "empty", symlinks=True, with_pip=False)
    reachable = run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "typer", cwd=tmp_path)
    if reachable.returncode != 0:
        pytest.skip("pip finds no packages: there is no index in reach")
    return tmp_path / "empty"


@pytest.mark.slow
@pytest.mark.parametrize(
    "others",
    [
        ("fastapi[standard]",),
        ("celery[sqs]",),
        ("fastapi==0.115.0", "uvicorn==0.34.2"),
        ("apache-airflow>=3",),
        ("--constraint", str(AIRFLOW)),
    ],
    ids=["fastapi", "celery", "an older fastapi", "airflow", "what airflow pins"],
)
def test_pip_finds_versions_for_headrace_and(others: tuple[str, ...], built: Built, empty: Path) -> None:
    resolve = ("install", "--quiet", "--dry-run", "--report", "-", "--only-binary", ":all:", str(built.wheel), *others)
    done = run(*pip(empty), *resolve, cwd=empty, timeout_s=_RESOLVE_S)
    assert done.returncode == 0, done.stderr
    chosen = {each["metadata"]["name"].lower() for each in json.loads(done.stdout)["install"]}
    assert {"headrace", "httptools", "starlette"} <= chosen


class LowestBroker(BrokerProcess):
    def __init__(self, folder: Path, data_dir: Path) -> None:
        super().__init__(data_dir, env={"PYTHONPATH": ""})
        self._folder = folder

    @property
    def command(self) -> list[str]:
        _python, _m, _headrace, *arguments = super().command
        return [str(self._folder / "bin" / "headrace"), *arguments]


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info >= (3, 13), reason="some of the lowest versions have no wheels for Python 3.13")
def test_a_broker_and_its_commands_run_with_the_lowest_versions(built: Built, empty: Path, tmp_path: Path) -> None:
    install = ("install", "--quiet", "--no-compile", "--only-binary", ":all:", str(built.wheel), *lowest())
    done = run(*pip(empty), *install, cwd=empty, timeout_s=_RESOLVE_S)
    assert done.returncode == 0, done.stderr
    installation = Installation(empty / "bin")
    with LowestBroker(empty, tmp_path / "data") as broker:

        def headrace(*arguments: str, stdin: str = "") -> str:
            ended = installation.run(*arguments, cwd=tmp_path, stdin=stdin, HEADRACE_BOOTSTRAP=broker.bootstrap)
            assert ended.returncode == 0, ended
            return ended.stdout

        assert "headrace serve" in headrace("serve", "--help")
        headrace("topic", "create", "tea", "--partitions", "2")
        headrace("produce", "tea", "--compression", "zstd", stdin="green\nblack\n")
        assert sorted(headrace("consume", "tea", "--from-beginning").split()) == ["black", "green"]
        assert "tea" in headrace("topic", "list")
        headrace("queue", "create", "emails")
        headrace("queue", "send", "emails", "to alice")
        assert headrace("queue", "receive", "emails", "--wait", "20s") == "to alice\n"
        headrace("queue", "send", "emails", "to bob", "--delay", "1h")
        broker.restart()
        assert headrace("queue", "receive", "emails", "--wait", "0s") == ""
