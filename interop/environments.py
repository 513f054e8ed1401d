"""Virtual environments in `.cache/` for libraries that are checked here and that nothing else in the project needs."""

import subprocess
import venv
from pathlib import Path

from client_suite import Unavailable

_ROOT = Path(__file__).resolve().parent.parent


def environment(requirements: Path, name: str) -> Path:
    """The Python of an environment that has what the file lists; pip fetches it the first time, and when it changes.

    `Unavailable` says why it cannot be had.
    """
    folder = _ROOT / ".cache" / f"{name}-venv"
    python, installed, wanted = folder / "bin" / "python", folder / ".installed", requirements.read_text()
    if not installed.exists() or installed.read_text() != wanted:
        venv.create(folder, with_pip=True, clear=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--requirement", str(requirements)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unavailable(f"pip cannot install {name}: {done.stderr.strip()[-200:]}")
        installed.write_text(wanted)
    return python
