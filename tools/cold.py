"""Runs a command as on a machine that has never seen the project: `python -m tools.cold make test`.

The home folder, pip's cache and all other caches are new and empty, and so is the virtual environment; afterwards they
are removed, also when the command fails or is interrupted. What the environment says about where packages come from and
which certificates are trusted stays: PIP_* variables, and the pip.conf and .netrc of the user.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

_STOP_S = 30.0


def cold_environment(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The environment with its home and caches in this folder."""
    cold = dict(environment)
    home = Path(environment.get("HOME") or Path.home())
    configuration = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    # pip reads the second file after the first: it is the one that counts. A variable set by the user wins over both.
    for file in (home / ".pip/pip.conf", configuration / "pip/pip.conf"):
        if file.exists() and "PIP_CONFIG_FILE" not in environment:
            cold["PIP_CONFIG_FILE"] = str(file)
    if (home / ".netrc").exists():
        cold.setdefault("NETRC", str(home / ".netrc"))
    # A launcher such as pyenv's finds its interpreters through the home folder, an interpreter needs no help.
    cold.setdefault("PYTHON", sys.executable)
    for name, place in {
        "HOME": "home",
        "XDG_CACHE_HOME": "cache",
        "XDG_CONFIG_HOME": "home/.config",
        "XDG_DATA_HOME": "home/.local/share",
        "XDG_STATE_HOME": "home/.local/state",
        "PIP_CACHE_DIR": "cache/pip",
        "VENV": "venv",
    }.items():
        cold[name] = str(folder / place)
    return cold


@contextmanager
def cold_folder() -> Iterator[Path]:
    """A new folder with an empty home and cache in it, removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-cold-"))
    try:
        folder.chmod(0o755)  # PostgreSQL and other servers do not run as root, and look into the home folder.
        for name in ("home", "cache"):
            (folder / name).mkdir()
        yield folder
    finally:
        end_s = time.monotonic() + _STOP_S
        # What the command has started may write for a moment after its end.
        while folder.exists() and time.monotonic() < end_s:
            shutil.rmtree(folder, ignore_errors=True)


def run_cold(command: Sequence[str]) -> int:
    """Run the command and return its exit code. A signal ends it, with everything in its session."""
    with cold_folder() as folder:
        process = subprocess.Popen(command, env=cold_environment(os.environ, folder), start_new_session=True)
        try:
            return process.wait()
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of the command: also what `timeout` has put into a process group of its own."""
    end_s = time.monotonic() + _STOP_S
    number = signal.SIGTERM
    while members := _session(process.pid):
        for member in members:
            with suppress(ProcessLookupError):
                os.kill(member, number)
        process.poll()
        time.sleep(0.1)
        if time.monotonic() > end_s:
            number = signal.SIGKILL
    process.wait()


def _session(leader: int) -> list[int]:
    """The processes of a session that are still running, from the system's own list."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name, in parentheses, may itself hold anything; state, parent, group and session come behind it.
            state, _, _, session = stat.read_text(errors="replace").rpartition(")")[2].split()[:4]
            if int(session) == leader and state != "Z":
                found.append(int(stat.parent.name))
    return found


def main(command: Sequence[str]) -> int:
    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    code = run_cold(command)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
