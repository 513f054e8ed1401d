"""Tries every Python that Headrace is for: `python -m tools.smoke [3.12 …]`.

For each version it installs with empty caches into a new virtual environment, and does through the command line what a
newcomer does first: serve, produce, consume, a queue, the tour on Spark. A version that this machine does not have is
named as not tried.
"""

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools.cold import cold_environment, cold_folder

VERSIONS = ("3.11", "3.12", "3.13")
_READY = re.compile(r"ready on (\S+:\d+)")
_WARNING = re.compile(r"headrace/\S+\.py:\d+: \w*Warning: .*")
_INSTALL_S = 1200.0
_READY_S = 60.0
_STEP_S = 60.0
_TOUR_S = 300.0


class SmokeError(Exception):
    """A step did not do what it should."""


@dataclass(frozen=True)
class Result:
    version: str
    outcome: str
    failed: bool = False


def find_python(version: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """An interpreter of this version that runs: on PATH, or one of pyenv's. None if there is none.

    Every match on PATH is tried, for pyenv puts a launcher there that fails unless its version is selected.
    """
    candidates = [Path(folder) / f"python{version}" for folder in environment.get("PATH", "").split(os.pathsep)]
    pyenv = Path(environment.get("PYENV_ROOT") or Path(environment.get("HOME", "/")) / ".pyenv")
    candidates += sorted(pyenv.glob(f"versions/{version}.*/bin/python"), reverse=True)
    code = "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)"
    for candidate in candidates:
        try:
            done = subprocess.run([candidate, "-c", code], capture_output=True, text=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        found, _, path = done.stdout.strip().partition(" ")
        if done.returncode == 0 and found == version:
            return path
    return None


def try_version(version: str) -> Result:
    python = find_python(version)
    if python is None:
        return Result(version, f"not tried: python{version} runs neither from PATH nor from pyenv")
    print(f"Python {version} ({python})", flush=True)
    with cold_folder() as folder:
        environment = cold_environment(os.environ, folder) | {"PYTHON": python, "PYTHONWARNINGS": "default"}
        started = time.monotonic()
        install = [python, "-m", "tools.install", "--venv", environment["VENV"], "--extras", "cluster,spark"]
        try:
            if subprocess.run(install, env=environment, timeout=_INSTALL_S, check=False).returncode != 0:
                return Result(version, "the install failed, see above", failed=True)
            installed = time.monotonic()
            _use(folder, environment)
        except (SmokeError, subprocess.TimeoutExpired) as error:
            return Result(version, f"failed: {error}", failed=True)
        return Result(version, f"works; install {installed - started:.0f} s, use {time.monotonic() - installed:.0f} s")


def _use(folder: Path, environment: Mapping[str, str]) -> None:
    """What a newcomer does first, each step with a check of what it prints."""
    headrace = Headrace(folder, environment)
    with headrace.broker() as bootstrap:
        headrace.step(["topic", "create", "orders", "--partitions", "3", "-b", bootstrap], "Created the topic orders")
        headrace.step(
            ["produce", "orders", "--key-separator", ":", "-b", bootstrap], "Sent 2 messages", "alice:tea\nbob:coffee\n"
        )
        headrace.step(["consume", "orders", "--from-beginning", "--keys", "-b", bootstrap], "alice\ttea")
        headrace.step(["queue", "create", "emails", "-b", bootstrap], "emails")
        headrace.step(["queue", "send", "emails", "good morning", "-b", bootstrap], "1 message")
        headrace.step(["queue", "receive", "emails", "--wait", "5s", "-b", bootstrap], "good morning")
    has_java = shutil.which("java") or "JAVA_HOME" in environment
    last = "Every order was counted once." if has_java else "A pipeline on Spark: left out"
    headrace.step(["demo", "--orders", "1000"], last, timeout_s=_TOUR_S)


class Headrace:
    """The command line of one virtual environment, in a folder of its own."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        self._command = str(Path(environment["VENV"]) / "bin" / "headrace")

    def step(self, arguments: Sequence[str], expected: str, stdin: str = "", timeout_s: float = _STEP_S) -> None:
        """Run a command and print how long it took; its output must have the expected text and no warning of ours."""
        started = time.monotonic()
        done = subprocess.run(
            [self._command, *arguments],
            cwd=self._folder,
            env=self._environment,
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        name = f"headrace {' '.join(arguments[: 2 if arguments[0] in ('topic', 'queue') else 1])}"
        if done.returncode != 0 or expected not in done.stdout:
            raise SmokeError(f"{name} ended with {done.returncode} and without {expected!r}:\n{done.stdout}")
        _check_warnings(name, done.stdout)
        print(f"  {name}: {time.monotonic() - started:.1f} s", flush=True)

    @contextmanager
    def broker(self) -> Iterator[str]:
        """A broker on free ports, and its address. It must stop cleanly."""
        started = time.monotonic()
        data = ["--data-dir", str(self._folder / "data")]
        listen = ["--kafka-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"]
        log_file = self._folder / "broker.log"
        with log_file.open("w") as log:
            process = subprocess.Popen(
                [self._command, "serve", *data, *listen],
                cwd=self._folder,
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
            try:
                assert process.stdout is not None
                readable, _, _ = select.select([process.stdout], [], [], _READY_S)
                ready = _READY.search(process.stdout.readline()) if readable else None
                if ready is None:
                    raise SmokeError(f"headrace serve did not become ready:\n{log_file.read_text()}")
                print(f"  headrace serve: ready after {time.monotonic() - started:.1f} s", flush=True)
                yield ready[1]
                process.send_signal(signal.SIGINT)
                code = process.wait(_STEP_S)
            finally:
                process.kill()
                process.wait()
                if process.stdout is not None:
                    process.stdout.close()
        if code != 0:
            raise SmokeError(f"headrace serve ended with {code}:\n{log_file.read_text()}")
        _check_warnings("headrace serve", log_file.read_text())


def _check_warnings(name: str, output: str) -> None:
    if warning := _WARNING.search(output):
        raise SmokeError(f"{name} warned: {warning[0]}")


def main(versions: Sequence[str]) -> int:
    results = [try_version(version) for version in versions or VERSIONS]
    print()
    for result in results:
        print(f"Python {result.version}: {result.outcome}")
    return int(any(result.failed for result in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
