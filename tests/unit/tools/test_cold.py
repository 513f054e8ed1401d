"""CI runs as on a machine that has never seen the project: what only a warm cache makes work fails there."""

import io
import os
import signal
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from tests.waiting import PATIENCE_S, until
from tools.cold import cold_environment

from .tiny import environment, make_tree

# The wheel of a build backend, and a package that comes as source code and is built with it.
BACKEND = """
import zipfile
from pathlib import Path

def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "thing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(Path(folder) / name, "w") as wheel:
        wheel.writestr("thing.py", "")
        info = "thing-1.0.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: thing\\nVersion: 1.0\\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", "")
    return name
"""
SOURCE = {
    "pyproject.toml": '[build-system]\nrequires = ["thing-backend"]\nbuild-backend = "thing_backend"\n',
    "PKG-INFO": "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n",
}
INSTALL = "test:\n\t@$(PYTHON) -m pip install --quiet --find-links links --target $(OUT) {option} thing\n"


def make_packages(folder: Path) -> None:
    folder.mkdir()
    with zipfile.ZipFile(folder / "thing_backend-1.0-py3-none-any.whl", "w") as wheel:
        info = "thing_backend-1.0.dist-info"
        wheel.writestr("thing_backend.py", BACKEND)
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: thing-backend\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    with tarfile.open(folder / "thing-1.0.tar.gz", "w:gz") as archive:
        for name, text in SOURCE.items():
            member = tarfile.TarInfo(f"thing-1.0/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))


def run(tree: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=tree,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_an_install_that_needs_a_warm_cache_fails(tmp_path: Path) -> None:
    """What once happened: a package was built without its build tools, and a cached wheel of it hid that."""
    tree = make_tree(tmp_path / "tree")
    make_packages(tree / "links")
    right, wrong = INSTALL.format(option=""), INSTALL.format(option="--no-build-isolation")
    warm = {"PIP_CACHE_DIR": str(tmp_path / "warm"), "TMPDIR": str(tmp_path)}

    (tree / "Makefile").write_text(right)
    assert run(tree, "make", "test", OUT=str(tmp_path / "1"), **warm).returncode == 0
    (tree / "Makefile").write_text(wrong)
    assert run(tree, "make", "test", OUT=str(tmp_path / "2"), **warm).returncode == 0

    failed = run(tree, ".ci/run", OUT=str(tmp_path / "3"), **warm)
    assert failed.returncode != 0
    assert "thing_backend" in failed.stderr
    (tree / "Makefile").write_text(right)
    passed = run(tree, ".ci/run", OUT=str(tmp_path / "4"), **warm)
    assert passed.returncode == 0, passed.stderr
    assert [*tmp_path.glob("headrace-cold-*")] == []


def test_home_caches_and_venv_are_new_and_gone_afterwards(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    (tree / ".venv").mkdir()
    (tree / "Makefile").write_text(
        "VENV ?= .venv\n"
        "test:\n"
        '\t@find "$$HOME" "$$XDG_CACHE_HOME" -mindepth 1 | grep . && exit 1 || true\n'
        '\t@test ! -e "$$PIP_CACHE_DIR" && test ! -e "$(VENV)"\n'
        '\t@touch "$$HOME/left"; mkdir "$(VENV)"\n'
        '\t@echo "$$HOME $$XDG_CACHE_HOME $$PIP_CACHE_DIR $(VENV)"; exit 3\n'
    )
    done = run(tree, ".ci/run", TMPDIR=str(tmp_path), HOME=str(tmp_path), PIP_CACHE_DIR=str(tmp_path))
    assert done.returncode == 2, done.stderr
    assert "Error 3" in done.stderr
    folders = done.stdout.split()
    assert len(set(folders)) == 4
    assert all(Path(folder).is_relative_to(tmp_path) and not Path(folder).exists() for folder in folders)
    assert [*tmp_path.glob("headrace-cold-*")] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    """The command is in a process group of its own, as the tests are."""
    tree = make_tree(tmp_path / "tree")
    (tree / "Makefile").write_text(
        f'test:\n\t@timeout 600 {sys.executable} -c "import os, signal; '
        "open('pid.new', 'w').write(str(os.getpid())); os.rename('pid.new', 'pid'); signal.pause()\"\n"
    )
    with subprocess.Popen(
        [".ci/run"], cwd=tree, env=environment(TMPDIR=str(tmp_path)), stderr=subprocess.DEVNULL
    ) as process:
        until((tree / "pid").exists, "the command")
        pid = int((tree / "pid").read_text())
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == 128 + number
    until(lambda: not Path(f"/proc/{pid}").exists(), "the end of the command")
    assert [*tmp_path.glob("headrace-cold-*")] == []


def test_where_packages_come_from_stays(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".config/pip").mkdir(parents=True)
    (home / ".config/pip/pip.conf").write_text("[global]\nindex-url = https://packages.example.org/simple\n")
    (home / ".netrc").touch()
    before = {"HOME": str(home), "PIP_CERT": "/etc/ca.pem", "PATH": os.environ["PATH"]}
    cold = cold_environment(before, tmp_path / "cold")
    assert cold["PIP_CONFIG_FILE"] == str(home / ".config/pip/pip.conf")
    assert cold["NETRC"] == str(home / ".netrc")
    assert cold["PIP_CERT"] == "/etc/ca.pem"
    listed = run(tmp_path, sys.executable, "-m", "pip", "config", "list", **cold)
    assert "https://packages.example.org/simple" in listed.stdout

    named = cold_environment(before | {"PIP_CONFIG_FILE": "/etc/mine.conf"}, tmp_path / "cold")
    assert named["PIP_CONFIG_FILE"] == "/etc/mine.conf"
    elsewhere = cold_environment(before | {"XDG_CONFIG_HOME": str(tmp_path)}, tmp_path / "cold")
    assert "PIP_CONFIG_FILE" not in elsewhere
