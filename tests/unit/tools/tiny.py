"""A source tree as small as can be, with this project's own tools in it. Installing it needs no network."""

import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

_BACKEND = '''
"""Builds the package as a link to its source; waits if BUILD_WAITS names a file, in which its process id is."""
import base64, hashlib, os, signal, sys, zipfile
from pathlib import Path

INFO = "headrace-0.1.dist-info"

def get_requires_for_build_editable(config_settings=None):
    return []

def build_editable(folder, config_settings=None, metadata_directory=None):
    if "BUILD_WAITS" in os.environ:
        Path(os.environ["BUILD_WAITS"]).write_text(str(os.getpid()))
        signal.pause()
    requires = os.environ.get("BUILD_REQUIRES", "")
    metadata = "Metadata-Version: 2.1\\nName: headrace\\nVersion: 0.1\\nProvides-Extra: cluster\\n"
    files = {
        "headrace.pth": str(Path.cwd()),
        f"{INFO}/METADATA": metadata + (f"Requires-Dist: {requires}\\n" if requires else ""),
        f"{INFO}/WHEEL": "Wheel-Version: 1.0\\nGenerator: tiny\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        f"{INFO}/RECORD": "",
    }
    name = "headrace-0.1-py3-none-any.whl"
    with zipfile.ZipFile(Path(folder) / name, "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
    return name
'''

_PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "headrace"
version = "0.1"
"""


def make_tree(folder: Path) -> Path:
    """Make the tree; its tools are a copy, since they install the tree that they are in."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(ROOT / "tools", folder / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", folder / ".ci/run")
    (folder / "pyproject.toml").write_text(_PROJECT)
    (folder / "constraints.txt").write_text("# none\n")
    (folder / "backend.py").write_text(_BACKEND)
    for module in ("cli/main", "cli/serve/commands", "app/broker"):
        file = folder / "headrace" / f"{module}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    return folder


def environment(**more: str) -> dict[str, str]:
    """What the tools run with: nothing from a `make` that runs these tests, and no network."""
    hidden = {"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "VENV", "PYTHONPATH", "EXTRAS"}
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    return kept | {"PYTHON": sys.executable, "PIP_NO_INDEX": "1", "PIP_RETRIES": "0"} | more
