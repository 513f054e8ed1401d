"""The install of a small source tree, through the real pip, from nothing to ready, interrupted and repaired."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.waiting import PATIENCE_S, until
from tools import install as module
from tools.install import DISK_MB, DOWNLOAD_MB, InstallError, _describe, _pip_environment
from tools.pip_output import PipProgress
from tools.progress import Progress

from .tiny import ROOT, environment, make_tree

COMMAND = [sys.executable, "-m", "tools.install", "--venv", ".venv"]


def install(tree: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *options],
        cwd=tree,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_install_that_is_interrupted_and_repaired(tmp_path: Path) -> None:
    """One test, since making a virtual environment takes seconds."""
    tree = make_tree(tmp_path / "a folder with spaces")
    waits = tmp_path / "waits"
    with subprocess.Popen(
        COMMAND, cwd=tree, env=environment(BUILD_WAITS=str(waits)), stderr=subprocess.PIPE, text=True
    ) as process:
        pid = until(lambda: waits.exists() and waits.read_text(), "the build")
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert "Installing Headrace into .venv: about 24 MB to download, 116 MB on disk." in stderr
    assert "Stopped. The next run starts the install over." in stderr
    until(lambda: not is_running(int(pid)), "the end of what pip has started")

    done = install(tree)
    assert done.returncode == 0, done.stderr
    assert "Making .venv anew: its last install was interrupted." in done.stderr
    assert "Installing 1 packages: " in done.stderr
    assert "Installed: " in done.stderr
    assert not (tree / ".venv/tmp").exists()
    code = "import headrace.cli.main as main; print(main.__file__)"
    python = [str(tree / ".venv/bin/python"), "-c", code]
    ran = subprocess.run(python, env=environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert ran.stdout.strip() == str(tree / "headrace/cli/main.py")

    log = (tree / ".venv/install.log").stat()
    again = install(tree)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert (tree / ".venv/install.log").stat() == log

    failed = install(tree, "--extras", "cluster", BUILD_REQUIRES="no-such-package")
    assert failed.returncode == 1
    assert "No matching distribution found for no-such-package" in failed.stderr
    assert f"The whole log: {tree}/.venv/install.log" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_a_folder_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    tree = make_tree(tmp_path)
    (tree / ".venv").mkdir()
    (tree / ".venv/thesis.txt").write_text("years of work")
    done = install(tree)
    assert done.returncode == 1
    assert "is a folder that is not a virtual environment. Name another with VENV=…" in done.stderr
    assert (tree / ".venv/thesis.txt").exists()


def test_an_extra_that_does_not_exist(tmp_path: Path) -> None:
    done = install(make_tree(tmp_path), "--extras", "sprak")
    assert done.returncode == 1
    assert "There is no extra sprak: EXTRAS may have archive, cluster, dev, otel, site, spark." in done.stderr


def test_sizes_are_known_for_every_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert DOWNLOAD_MB.keys() == DISK_MB.keys() == {"", *extras}


def test_versions_of_build_tools_are_constrained_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PIP_CONSTRAINT", "mine.txt")
    monkeypatch.delenv("PIP_BUILD_CONSTRAINT", raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", "https://packages.example.org/simple")
    variables = _pip_environment(tmp_path)
    assert variables["PIP_CONSTRAINT"] == "mine.txt constraints.txt"
    assert variables["PIP_BUILD_CONSTRAINT"] == "constraints.txt"
    assert variables["PIP_INDEX_URL"] == "https://packages.example.org/simple"


def test_wheels_that_are_unpacked_at_once_are_not_compressed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DIST_EXTRA_CONFIG", raising=False)
    settings = Path(_pip_environment(tmp_path)["DIST_EXTRA_CONFIG"])
    assert settings.read_text() == "[bdist_wheel]\ncompression = stored\n"
    monkeypatch.setenv("DIST_EXTRA_CONFIG", "/etc/mine.cfg")
    assert _pip_environment(tmp_path)["DIST_EXTRA_CONFIG"] == "/etc/mine.cfg"


def test_progress_counts_the_file_that_is_being_downloaded(tmp_path: Path) -> None:
    seen = PipProgress()
    seen.feed("  Downloading numpy-2.whl (20.0 MB)")
    seen.feed("  Downloading pyspark-4.tar.gz (400.0 MB)")
    (tmp_path / "pip-unpack-1").mkdir()
    with (tmp_path / "pip-unpack-1/pyspark-4.tar.gz").open("wb") as file:
        file.truncate(100_000_000)
    assert _describe(seen, tmp_path, tmp_path, 600) == ("Downloading", "pyspark (400 MB), 120 MB of about 600 MB")


def test_a_file_that_is_removed_meanwhile_counts_nothing(tmp_path: Path) -> None:
    """pip moves and removes files while progress is looked at."""
    seen = PipProgress()
    seen.feed("  Downloading numpy-2.whl (20.0 MB)")
    (tmp_path / "pip-unpack-1").mkdir()
    assert module._bytes_of(tmp_path / "pip-unpack-1/numpy-2.whl") == 0
    assert _describe(seen, tmp_path, tmp_path, 600) == ("Downloading", "numpy (20 MB), 0 MB of about 600 MB")


def test_progress_counts_what_is_installed(tmp_path: Path) -> None:
    site = tmp_path / "lib/python3.11/site-packages"
    (site / "typing_extensions-4.16.0.dist-info").mkdir(parents=True)
    seen = PipProgress()
    seen.feed("Installing collected packages: typing-extensions, six")
    assert _describe(seen, tmp_path, tmp_path, 0) == ("Installing 2 packages", "1 of 2, now six")


def test_an_environment_without_room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    full = shutil._ntuple_diskusage(10**12, 10**12, 2 * 10**9)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    with pytest.raises(InstallError, match=r"has 2\.0 GB free, and installing takes 2\..* EXTRAS=$"):
        module.install(tmp_path / "venv", ("spark",), False, Progress())


class TestPythonWithoutVenv:
    """Debian's Python, as it comes."""

    PACKAGE = f"python3.{sys.version_info[1]}-venv"

    @pytest.fixture(autouse=True)
    def without_ensurepip(self, monkeypatch: pytest.MonkeyPatch) -> None:
        find = importlib.util.find_spec
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ensurepip" else find(name))

    def test_a_user_is_told_which_package_has_it(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(module, "can_install", lambda: False)
        with pytest.raises(InstallError, match=f"sudo apt-get install {self.PACKAGE}$"):
            module.install(tmp_path / "venv", (), False, Progress())

    def test_root_gets_it_installed(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        asked: list[str] = []
        monkeypatch.setattr(module, "can_install", lambda: True)
        monkeypatch.setattr(module, "install_packages", lambda packages, why, progress: asked.extend(packages))
        with pytest.raises(InstallError, match="cannot make virtual environments"):
            module.install(tmp_path / "venv", (), False, Progress())
        assert asked == [self.PACKAGE]
