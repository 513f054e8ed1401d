"""Runs a command whose output is read while it runs, and ends it when the caller is interrupted."""

import os
import select
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

_TICK_S = 0.5
_STOP_S = 10.0


def run(
    command: Sequence[str],
    log: TextIO,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] = lambda line: None,
    on_tick: Callable[[], None] = lambda: None,
) -> int:
    """Run the command with its output in `log`; give each line to `on_line`, and call `on_tick` twice a second.

    Returns its exit code, negative for a signal. It has a process group of its own: when this function is left by an
    exception (Ctrl-C too), the group is ended first, with everything that the command has started.
    """
    log.write(f"$ {' '.join(command)}\n")
    log.flush()
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        _follow(process, log, on_line, on_tick)
        return process.wait()
    finally:
        _end(process)


def _follow(
    process: subprocess.Popen[bytes], log: TextIO, on_line: Callable[[str], None], on_tick: Callable[[], None]
) -> None:
    """Read until the command ends; something that it left running may hold its output open."""
    assert process.stdout is not None
    rest = b""
    while True:
        readable, _, _ = select.select([process.stdout], [], [], _TICK_S)
        if readable:
            block = os.read(process.stdout.fileno(), 65536)
            *lines, rest = (rest + block).split(b"\n")
            if not block and rest:
                lines = [rest]
            for line in lines:
                text = line.decode(errors="replace").rstrip("\r")
                log.write(text + "\n")
                on_line(text)
            log.flush()
            if not block:
                return
        elif process.poll() is not None:
            return
        on_tick()


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    process.stdout.close()
    if process.poll() is not None:
        return
    try:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
