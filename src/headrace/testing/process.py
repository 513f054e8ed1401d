"""A real `headrace serve` process for tests that must cross a process boundary: kill -9, SIGTERM, restart.

For tests of your own code `headrace.testing.Broker` is faster: it needs no process.
"""

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from headrace.testing.child import ChildProcess

_READY = re.compile(r"ready on (\S+):(\d+)")
_HTTP = re.compile(r"queues on (http://\S+:\d+)")


class BrokerProcess(ChildProcess):
    """`headrace serve` on free ports of 127.0.0.1. The ports and the data directory stay the same over restarts.

    `start` returns when the broker has printed its ready line; if it exits instead, `RuntimeError` has its stderr.
    `settings` are passed as `--set name=value`, `args` as they are. `prefix` is put before the command, to run it
    elsewhere: `["ip", "netns", "exec", "b1"]`. `log_file` saves stderr.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        settings: Mapping[str, object] | None = None,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        log_file: Path | None = None,
    ) -> None:
        super().__init__("the broker", log_file)
        self.data_dir = data_dir
        self.host = host
        self.port = port
        self.prefix = list(prefix)
        # A test's broker does not run long enough to benefit from it.
        self.settings = {"preload.enable": False, **(settings or {})}
        self.args = list(args)
        self.env = dict(env or {})
        self.http_url = ""
        """The URL of its queues, once started; empty with `http.listen=off`."""
        self.ready_line = ""
        self.ready_after_s = 0.0
        """How long the last start took, from the start of the process to its ready line."""
        self._started_s = 0.0

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def command(self) -> list[str]:
        command = [*self.prefix, sys.executable, "-m", "headrace", "serve"]
        command += ["--data-dir", str(self.data_dir), "--kafka-listen", self.bootstrap]
        if "http.listen" not in self.settings:
            command += ["--http-listen", self.http_url.removeprefix("http://") or "127.0.0.1:0"]
        for name, value in self.settings.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            command += ["--set", f"{name}={text}"]
        return command + self.args

    def start(self, timeout_s: float = 60.0) -> Self:
        self.launch()
        return self.await_ready(timeout_s)

    def launch(self) -> None:
        """Start the process without waiting; see `await_ready`."""
        self._started_s = time.monotonic()
        env = {**os.environ, "PYTHONUNBUFFERED": "1", **self.env}
        self._spawn(self.command, stdout=subprocess.PIPE, env=env)

    def await_ready(self, timeout_s: float = 60.0) -> Self:
        """Wait for the ready line of a launched process."""
        line = self._read_line(self._running(), time.monotonic() + timeout_s)
        match = _READY.search(line)
        if match is None:
            self.kill()
            raise RuntimeError(f"the broker did not get ready; it printed {line!r} and on stderr:\n{self.stderr}")
        self.ready_after_s = time.monotonic() - self._started_s
        self.ready_line = line.rstrip("\n")
        self.port = int(match[2])
        http = _HTTP.search(line)
        self.http_url = http[1] if http is not None else ""
        return self

    @staticmethod
    def _read_line(process: subprocess.Popen[bytes], deadline: float) -> str:
        assert process.stdout is not None
        # select(2) knows the first 1,024 file descriptors only.
        poll = select.poll()
        poll.register(process.stdout, select.POLLIN)
        readable = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
        return process.stdout.readline().decode() if readable else ""

    def terminate(self, timeout_s: float = 60.0) -> int:
        """SIGTERM; returns the exit code."""
        process = self._running()
        self._end(signal.SIGTERM, timeout_s)
        return process.returncode

    def restart(self, *, kill: bool = False) -> Self:
        """Stop, with SIGTERM or with kill -9, and start again on the same port and data directory."""
        if kill:
            self.kill()
        elif self.is_running:
            self.terminate()
        return self.start()

    def close(self) -> None:
        """Stop with SIGTERM, with kill -9 if that takes too long, and release its resources."""
        if self.is_running:
            self.resume()
            with suppress(subprocess.TimeoutExpired):
                self.terminate(timeout_s=30.0)
        super().close()
