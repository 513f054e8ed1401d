"""The state folder of a pipeline: `<state-dir>/<name>/`.

    version                the version of this layout; a folder without it was created by 0.1 and has version 1
    checkpoint/<query>/    Spark's checkpoint: offsets, commits and state of each query
    checkpoint/<query>/rejected.json    records that failed in the steps of the query; see `dead_letters/rejects.py`
    checkpoint/schemas.json    the schemas that sources are read with; see `control/source_schemas.py`
    sinks.json             the topics that the last run wrote to, with the options of their sinks
    start.json             start offsets of queries without a checkpoint (written by `reset`)
    progress.jsonl         one line per batch; metrics.prom is the same for Prometheus
    run.json               status of the last `headrace pipeline run`; supervisor.json the same for `start`
    figures.json           what a supervised run has done so far, for the reports of its supervisor
    log, spark.log         logs of the pipeline and of Spark, of bounded size
    run.lock, supervisor.lock    held by the running process; the file has its pid

Locks are `flock` locks: the system releases them when the process ends, however it ends. A pid in a file that is not
locked is stale and is never signalled.
"""

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal

from headrace.pipelines.errors import PipelineError

DEFAULT_STATE_DIR = Path("headrace-pipelines")
VERSION = 1
"""Version of the folder's layout. A newer one is refused: ignoring a part of it could write rows twice."""


class AlreadyRunning(PipelineError):
    """Another process runs the pipeline."""


@dataclass(frozen=True, slots=True)
class StateFolder:
    """The files in a pipeline's state folder."""

    root: Path

    @classmethod
    def of(cls, state_dir: Path, name: str) -> "StateFolder":
        return cls((state_dir / name).absolute())

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    @property
    def schemas(self) -> Path:
        """A reset moves it away with the checkpoint: all records are then judged again."""
        return self.checkpoint / "schemas.json"

    @property
    def progress(self) -> Path:
        return self.root / "progress.jsonl"

    @property
    def metrics(self) -> Path:
        return self.root / "metrics.prom"

    @property
    def log(self) -> Path:
        return self.root / "log"

    @property
    def run_lock(self) -> "ProcessLock":
        return ProcessLock(self.root / "run.lock")

    @property
    def supervisor_lock(self) -> "ProcessLock":
        return ProcessLock(self.root / "supervisor.lock")

    @property
    def run_state(self) -> Path:
        """The status of the last run without a supervisor: `RunStatus` as JSON."""
        return self.root / "run.json"

    @property
    def figures(self) -> Path:
        """The figures of a supervised run, for its supervisor."""
        return self.root / "figures.json"

    @property
    def supervisor_state(self) -> Path:
        return self.root / "supervisor.json"

    def make(self) -> None:
        """Create the folder if needed; `PipelineError` if a newer Headrace has written it."""
        self.check_version()
        self.root.mkdir(parents=True, exist_ok=True)
        if not self._version.exists():
            replace_text(self._version, f"{VERSION}\n")

    @property
    def _version(self) -> Path:
        return self.root / "version"

    def check_version(self) -> None:
        """Raise `PipelineError` if a newer Headrace has written the folder. Changes nothing."""
        try:
            text = self._version.read_text("utf-8").strip()
        except OSError:
            return
        if not text.isdecimal():
            raise PipelineError(f"{self._version} does not hold a number: restore it, or remove it if 0.1 ran last")
        if int(text) > VERSION:
            raise PipelineError(
                f"{self.root} was written by a newer Headrace (version {text}, this one reads {VERSION}): use that one"
            )

    def read_start(self) -> dict[str, dict[str, dict[str, int]]]:
        """The start offsets of a reset: source, topic, partition, offset."""
        self.check_version()
        found: dict[str, dict[str, dict[str, int]]] = read_json(self.root / "start.json") or {}
        return found

    def read_sinks(self) -> dict[str, dict[str, str]]:
        """The sink options of each query that writes to topics, from the last run."""
        self.check_version()
        found: dict[str, dict[str, str]] = read_json(self.root / "sinks.json") or {}
        return found

    def write_sinks(self, sinks: Mapping[str, Mapping[str, str]]) -> None:
        """Store the sink options, so that a command with only the pipeline's name can end open transactions."""
        write_json(self.root / "sinks.json", sinks)

    def reset_checkpoint(self, start: Mapping[str, Mapping[str, Mapping[str, int]]]) -> Path | None:
        """Move the checkpoint away and store `start` as the start offsets of the next run; returns the backup's path.

        The checkpoint is moved first: after a crash in between, the pipeline starts where its file says, and the backup
        can be restored. It never continues with one half of each.
        """
        self.check_version()
        backup = None
        if self.checkpoint.exists():
            backup = self.root / f"checkpoint.{time.strftime('%Y%m%d-%H%M%S')}"
            number = 1
            while backup.exists():
                number += 1
                backup = self.root / f"checkpoint.{time.strftime('%Y%m%d-%H%M%S')}-{number}"
            shutil.move(self.checkpoint, backup)
        write_json(self.root / "start.json", start)
        return backup


class ProcessLock:
    """A lock file that one process at a time holds."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None

    def take(self, what: str) -> "ProcessLock":
        """Hold the lock until `release` or the end of the process; `AlreadyRunning` if another process holds it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = self._path.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            pid = self.holder()
            raise AlreadyRunning(f"{what} is already running{f' (process {pid})' if pid else ''}") from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self._file = file
        return self

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def holder(self) -> int | None:
        """The pid of the process that holds the lock; None if it is free."""
        try:
            file = self._path.open("r")
        except OSError:
            return None
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                text = file.read().strip()
                return int(text) if text.isdecimal() else 0
        return None

    def __enter__(self) -> "ProcessLock":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


RunState = Literal["running", "ended", "stopped", "failed"]


@dataclass(slots=True)
class RunStatus:
    """The status of a run, for `headrace pipeline status`."""

    state: RunState = "running"
    since_s: float = 0.0
    last_error: str = ""


@contextmanager
def recorded_run(folder: StateFolder, *, supervised: bool) -> Iterator[RunStatus]:
    """Store the status of a run while it runs and when it has ended; a supervisor does this itself."""
    run = RunStatus(since_s=time.time())
    if supervised:
        yield run
        return
    write_json(folder.run_state, asdict(run))
    try:
        yield run
    except KeyboardInterrupt:
        run.state = "stopped"
        raise
    except BaseException as error:
        run.state, run.last_error = "failed", str(error)
        raise
    finally:
        run.since_s = time.time()
        write_json(folder.run_state, asdict(run))


def read_json(path: Path) -> Any:
    """The content of a JSON file; None if it is missing or incomplete."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None


def write_json(path: Path, value: Any) -> None:
    """Replace a file atomically: a reader sees the old or the new content."""
    replace_text(path, json.dumps(value))


def replace_text(path: Path, text: str) -> None:
    new = path.with_name(f"{path.name}.new")
    with new.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
