"""The pool of `headrace work` with real processes, which need no broker."""

import asyncio
import signal
from pathlib import Path

import pytest

from headrace.cli.work import pool as pool_module
from headrace.cli.work.pool import PoolOptions, WorkPool
from headrace.cli.work.process import PoolProcess, ProcessLimits
from headrace.cli.work.status import PoolOutput
from headrace.client.work.messages import LoadFailed, Message
from headrace.model.backoff import ExponentialDelay
from headrace.model.scale import ScaleRules
from tests.waiting import until_async

_APP = """
import os
import threading
from pathlib import Path

from headrace import Client


class Changed(Client):
    def run(self, *, signals=()):
        {run}


client = Changed("localhost:1")
client.queue("emails").worker()(print)
"""


def test_changed_code_does_not_wait_for_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that ended is started at once when its files change, however long the wait would be."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(pool_module, "_RESTART_DELAY_S", ExponentialDelay(3600.0, 3600.0))
    app, marker = tmp_path / "app.py", tmp_path / "ran"
    app.write_text(_APP.format(run="os._exit(7)"))

    async def run() -> None:
        pool = WorkPool(
            PoolOptions("app:client", ScaleRules(), ProcessLimits(grace_s=0.1), is_reloaded=True), PoolOutput()
        )
        working = asyncio.create_task(pool.work())
        try:
            await until_async(lambda: pool.view().restarts == 1)
            app.write_text(_APP.format(run="Path('ran').touch(), threading.Event().wait()"))
            await until_async(marker.exists)
        finally:
            working.cancel()
            await asyncio.wait([working])
            await pool.shut_down()

    asyncio.run(run())


class Heard:
    """A pool of one process; what it printed, and what the process says."""

    def __init__(self, limits: ProcessLimits, target: str = "app:client") -> None:
        self.messages: list[Message] = []
        self.process = PoolProcess(1, target, limits, lambda _, message: self.messages.append(message))


def test_a_process_that_hangs_when_it_is_imported_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what it has started, so that the pool can go on with another one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text(
        "import subprocess, time\n"
        "child = subprocess.Popen(['sleep', '3600'])\n"
        "open('child', 'w').write(str(child.pid) + '\\n')\n"
        "time.sleep(3600)\n"
    )

    async def run() -> None:
        process = Heard(ProcessLimits(start_s=3.0)).process
        await process.start()
        assert await asyncio.wait_for(process.loaded, 30) is None
        assert await asyncio.wait_for(process.wait(), 30) == -signal.SIGKILL
        assert "within 3 s" in process.problem
        assert "--start-timeout" in process.problem
        pid = int((tmp_path / "child").read_text())
        await until_async(lambda: not is_running(pid))

    asyncio.run(run())


def is_running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_message_that_is_too_long_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool listens to what the process says after it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text(
        "import sys, socket\n"
        "pool = socket.socket(fileno=int(sys.argv[1]))\n"
        "pool.sendall(b'x' * (3 << 20) + b'\\n')\n"
        "pool.detach()\n"
        "client = None\n"
    )

    async def run() -> None:
        heard = Heard(ProcessLimits())
        await heard.process.start()
        assert await heard.process.loaded is None
        await heard.process.wait()
        assert "client" in heard.process.problem
        assert [type(each) for each in heard.messages] == [LoadFailed]

    asyncio.run(run())
