"""Runs a pipeline in the background. `report/supervised.py` is the process.

It starts the command that runs the pipeline, and restarts it after a failure with exponential backoff up to a minute; a
run of at least a minute resets the backoff. A command that succeeds, or exits with code 2 (the file is invalid), is not
restarted. `stop` ends both, the pipeline after its current batch; `hold` ends the pipeline in the same way, and the
supervisor waits until it is to `resume`.

The command's output goes to the pipeline's log, which has a bounded size. The command's standard input is a pipe that
closes when the supervisor ends, however it ends: a pipeline never outlives its supervisor.
"""

import logging
import logging.handlers
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Literal

from headrace.model.backoff import ExponentialDelay
from headrace.model.errors import HeadraceError
from headrace.pipelines.control.folder import StateFolder, write_json
from headrace.pipelines.control.topic_sinks import clean_up_all

LOG_BYTES = 5 * 1024 * 1024
LOG_FILES = 4
RESTART_DELAY_S = ExponentialDelay(1.0, 60.0)
LASTED_S = 60.0
STOP_GRACE_S = 90.0
FILE_IS_WRONG = 2
_LOOK_EVERY_S = 0.2


@dataclass(slots=True)
class PipelineStatus:
    """The state of a supervised pipeline, for `headrace pipeline status`."""

    state: Literal["starting", "running", "waiting", "ended", "failed", "stopped"] = "starting"
    pid: int | None = None
    since_s: float = 0.0
    restarts: int = 0
    last_error: str = ""
    next_start_s: float | None = None


def wait_before(failures: int) -> float:
    """The backoff after this many consecutive failures."""
    return RESTART_DELAY_S.after(failures)


def log_handler(log: Path) -> logging.Handler:
    """A rotating log of at most 20 MB."""
    log.parent.mkdir(parents=True, exist_ok=True)
    return logging.handlers.RotatingFileHandler(
        log, maxBytes=LOG_BYTES, backupCount=LOG_FILES - 1, encoding="utf-8", errors="replace"
    )


class Supervisor:
    """Runs the command until it succeeds, must not be restarted, or `stop` is called."""

    def __init__(
        self, folder: StateFolder, command: Sequence[str], *, first_wait_s: float = RESTART_DELAY_S.first
    ) -> None:
        self._folder = folder
        self._command = [*command]
        self._first_wait_s = first_wait_s
        self.on_status: Callable[[], None] = lambda: None
        """Called after each change of `status`."""
        self._stopping = threading.Event()
        self._held = threading.Event()
        self._has_ended_it = False
        """Whether the last run was ended by `hold`."""
        self._was_killed = False
        self._status = PipelineStatus()
        self._process: subprocess.Popen[bytes] | None = None
        self._log = logging.Logger("supervisor")
        self._handler = log_handler(folder.log)
        self._handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        self._log.addHandler(self._handler)

    @property
    def status(self) -> PipelineStatus:
        return self._status

    def stop(self) -> None:
        self._stopping.set()

    def share_log(self, logger: logging.Logger) -> None:
        """Let the lines of another logger go to the pipeline's log: a rotated file has one handler in a process."""
        logger.handlers = [self._handler]
        logger.setLevel(logging.INFO)
        logger.propagate = False

    def hold(self) -> None:
        """Stop the pipeline after its batch, until `resume`. May be called from another thread."""
        self._held.set()

    def resume(self) -> None:
        """Start the pipeline again after `hold`."""
        self._held.clear()

    def run(self) -> int:
        """Run until the end; returns the exit code, 0 if the command succeeded or was stopped."""
        failures = 0
        while True:
            started = time.monotonic()
            code = self._run_once()
            if self._stopping.is_set():
                return self._finish("stopped", 0)
            if self._has_ended_it:
                self._wait_while_held()
                failures = 0
                continue
            if code == 0:
                return self._finish("ended", 0)
            if code == FILE_IS_WRONG:
                return self._finish("failed", code)
            failures = 1 if time.monotonic() - started >= LASTED_S else failures + 1
            wait_s = wait_before(failures) * self._first_wait_s / RESTART_DELAY_S.first
            self._write_status("waiting", next_start_s=time.time() + wait_s)
            self._log.info("the pipeline ended with code %d, it is started again in %.0f s", code, wait_s)
            if self._waited(wait_s):
                return self._finish("stopped", 0)
            self._status.restarts += 1

    def _waited(self, wait_s: float) -> bool:
        """Wait before a restart, or until the pipeline is held and resumed. True if the supervisor is to end."""
        deadline = time.monotonic() + wait_s
        while not self._held.is_set() and (left := deadline - time.monotonic()) > 0:
            if self._stopping.wait(min(left, _LOOK_EVERY_S)):
                return True
        if self._held.is_set():
            self._wait_while_held()
        return self._stopping.is_set()

    def _wait_while_held(self) -> None:
        self._end_transactions()
        self._write_status("stopped")
        self._log.info("the pipeline is stopped, and waits for a request to start it")
        while self._held.is_set() and not self._stopping.wait(_LOOK_EVERY_S):
            pass

    def _end_transactions(self) -> None:
        """End what a pipeline that was killed has left open: it would hold back those who read its topics."""
        if not self._was_killed:
            return
        try:
            clean_up_all(self._folder.read_sinks().values())
        except HeadraceError as error:
            self._log.info("transactions may be open, and end when the pipeline is started again: %s", error)
        else:
            self._was_killed = False

    def _run_once(self) -> int:
        self._process = process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self._write_status("running", pid=process.pid)
        self._log.info("started process %d: %s", process.pid, " ".join(self._command))
        last: deque[str] = deque(maxlen=1)
        assert process.stdout is not None
        reader = threading.Thread(target=self._copy, args=(process.stdout, last), daemon=True)
        reader.start()
        self._has_ended_it = False
        while process.poll() is None:
            if self._stopping.wait(_LOOK_EVERY_S) or self._held.is_set():
                self._has_ended_it = True
                self._end(process)
        reader.join(5)
        if process.stdin is not None:
            process.stdin.close()
        process.stdout.close()
        if process.returncode and not self._has_ended_it:
            ended_by = f"it was ended by signal {-process.returncode}" if process.returncode < 0 else ""
            self._status.last_error = ended_by or (last[0] if last else f"exit code {process.returncode}")
        return int(process.returncode)

    def _copy(self, output: IO[bytes], last: deque[str]) -> None:
        """Copy the command's output to the log, and remember its last error."""
        for raw in output:
            line = raw.decode(errors="replace").rstrip("\n")
            self._log.info("%s", line)
            if line.startswith("headrace: "):
                last.append(line.removeprefix("headrace: "))

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        self._log.info("asked to stop")
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_GRACE_S)
        except subprocess.TimeoutExpired:
            self._log.info("it did not stop within %.0f s and is killed", STOP_GRACE_S)
            process.kill()
            process.wait()
            self._was_killed = True

    def _write_status(self, state: Literal["running", "waiting", "ended", "failed", "stopped"], **more: float) -> None:
        self._status.state = state
        self._status.pid = int(more["pid"]) if "pid" in more else None
        self._status.next_start_s = more.get("next_start_s")
        self._status.since_s = time.time()
        write_json(self._folder.supervisor_state, asdict(self._status))
        self.on_status()

    def _finish(self, state: Literal["ended", "failed", "stopped"], code: int) -> int:
        self._write_status(state)
        self._log.info("the pipeline has %s", state)
        self._handler.close()
        return code
