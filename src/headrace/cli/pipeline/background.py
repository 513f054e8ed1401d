"""The work of `headrace pipeline start`, `stop` and `status`. Needs no Spark."""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from headrace.cli.errors import CommandFailed
from headrace.cli.output import print_json, say, table
from headrace.cli.pipeline.run import failing, load
from headrace.model.errors import HeadraceError
from headrace.pipelines.control.folder import AlreadyRunning, StateFolder, read_json
from headrace.pipelines.control.reachability import check_brokers, check_reached
from headrace.pipelines.control.supervisor import STOP_GRACE_S
from headrace.pipelines.control.topic_sinks import clean_up_all
from headrace.pipelines.errors import NotReady
from headrace.pipelines.report.supervised import start_in_background
from headrace.pipelines.run.session import check_ready
from headrace.pipelines.sink.options import sink_options

_START_WAIT_S = 30.0
_TAIL_BYTES = 64 * 1024


def start_file(file: Path, bootstrap: str | None, master: str | None, state_dir: Path) -> None:
    """Start a supervisor. Mistakes in the file are reported here, and not only in a log."""
    read = load(file, bootstrap)
    folder = StateFolder.of(state_dir, read.spec.name)
    with failing():
        check_ready()
        folder.check_version()
    for lock in (folder.supervisor_lock, folder.run_lock):
        if (pid := lock.holder()) is not None:
            raise CommandFailed(f"{read.spec.name} is already running (process {pid})")
    try:
        check_brokers(read.spec)
    except NotReady as error:
        say(f"{error}; {read.spec.name} is started all the same, and tries again until there is one")
    command = [sys.executable, "-m", "headrace", "pipeline", "run", str(file.absolute()), "--supervised"]
    command += ["--state-dir", str(state_dir.absolute())]
    command += [] if bootstrap is None else ["--bootstrap", bootstrap]
    command += [] if master is None else ["--master", master]
    process = start_in_background(folder, command, file, bootstrap)
    deadline = time.monotonic() + _START_WAIT_S
    while folder.supervisor_lock.holder() != process.pid:
        if process.poll() is not None or time.monotonic() > deadline:
            raise CommandFailed(f"{read.spec.name} did not start: see {folder.log}")
        time.sleep(0.05)
    print(f"Started {read.spec.name} (process {process.pid}); its log is {folder.log}")


def folder_of(pipeline: str, state_dir: Path) -> StateFolder:
    """The folder of a pipeline that is given by its name or by its file."""
    if pipeline.endswith(".toml") or Path(pipeline).is_file():
        pipeline = load(Path(pipeline), None).spec.name
    folder = StateFolder.of(state_dir, pipeline)
    if not folder.root.is_dir():
        raise CommandFailed(f"there is no pipeline {pipeline} in {state_dir}; `headrace pipeline status` lists them")
    return folder


def stop_pipeline(pipeline: str, state_dir: Path) -> None:
    """SIGTERM to the holder of the lock. The pid is read from a held lock, so it is never that of another process."""
    folder = folder_of(pipeline, state_dir)
    lock = folder.supervisor_lock if folder.supervisor_lock.holder() else folder.run_lock
    pid = lock.holder()
    if not pid:
        _end_what_is_open(folder)
        print(f"{folder.root.name} is not running")
        return
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        pass
    except PermissionError:
        raise CommandFailed(f"process {pid} belongs to another user: only that one can stop it") from None
    deadline = time.monotonic() + STOP_GRACE_S + 10
    while lock.holder() == pid:
        if time.monotonic() > deadline:
            raise CommandFailed(f"{folder.root.name} (process {pid}) did not stop: see {folder.log}")
        time.sleep(0.05)
    _end_what_is_open(folder)
    print(f"Stopped {folder.root.name}")


def _end_what_is_open(folder: StateFolder) -> None:
    """So that nothing of a pipeline that was killed, and may never run again, holds back those who read its topics."""
    name = folder.root.name
    with failing():
        folder.check_version()
    try:
        with folder.run_lock.take(f"the pipeline {name}"):
            sinks = folder.read_sinks().values()
            found = [sink_options(each) for each in sinks]
            for connection in {each.connection for each in found}:
                check_reached({each.bootstrap for each in found if each.connection == connection}, connection)
            clean_up_all(sinks)
    except AlreadyRunning:
        return  # It was started again meanwhile, and does the same itself.
    except HeadraceError as error:
        raise CommandFailed(
            f"{name} is stopped, but transactions that it may have left open hold back readers of its topics "
            f"({error}): `headrace pipeline stop {name}` ends them once that is fixed"
        ) from error


def show_status(pipeline: str | None, state_dir: Path, *, as_json: bool) -> None:
    if pipeline is not None:
        folders = [folder_of(pipeline, state_dir)]
    else:
        found = sorted(state_dir.iterdir()) if state_dir.is_dir() else []
        folders = [StateFolder(path.absolute()) for path in found if path.is_dir()]
    described = [describe(folder) for folder in folders]
    if as_json:
        print_json(described)
    elif not described:
        print(f"There are no pipelines in {state_dir}; `headrace pipeline run FILE` or `start FILE` starts one")
    else:
        _print(described)


def describe(folder: StateFolder) -> dict[str, Any]:
    """A pipeline as it is now. A state file whose supervisor is gone tells what was, so the lock decides."""
    supervisor, runner = folder.supervisor_lock.holder(), folder.run_lock.holder()
    states: list[dict[str, Any]] = [read_json(each) or {} for each in (folder.supervisor_state, folder.run_state)]
    known = max(states, key=lambda each: float(each.get("since_s") or 0))
    state = str(known.get("state", "never started"))
    if supervisor is None and runner is not None:
        state = "running here"
    elif supervisor is None and state in ("running", "waiting", "starting"):
        state = "died"
    last = last_batches(folder.progress)
    return {
        "name": folder.root.name,
        "state": state,
        "pid": supervisor or runner,
        "since": known.get("since_s"),
        "restarts": known.get("restarts", 0),
        "last_error": known.get("last_error", ""),
        "lag": max((each["lag"] for each in last.values()), default=None),
        "queries": last,
    }


def last_batches(progress: Path) -> dict[str, dict[str, Any]]:
    """The last batch of each query that the end of the progress file tells of."""
    found: dict[str, dict[str, Any]] = {}
    try:
        with progress.open("rb") as file:
            file.seek(max(0, progress.stat().st_size - _TAIL_BYTES))
            lines = file.read().split(b"\n")
    except OSError:
        return found
    for line in lines:
        try:
            batch = json.loads(line)
        except ValueError:
            continue  # The first line may be cut off, and the last may be on its way.
        found[batch["query"]] = batch
    return found


def _print(described: list[dict[str, Any]]) -> None:
    heads = ("NAME", "STATE", "PROCESS", "RESTARTS", "LAST BATCH", "LAG", "LAST ERROR")
    rows = []
    for each in described:
        batches = sorted(each["queries"].values(), key=lambda batch: str(batch["at"]))
        last = f"{batches[-1]['query']} {batches[-1]['batch_id']} at {batches[-1]['at']}" if batches else "-"
        lag = "-" if each["lag"] is None else f"{each['lag']:,}"
        rows.append(
            (each["name"], each["state"], each["pid"] or "-", each["restarts"], last, lag, each["last_error"] or "-")
        )
    right = ("PROCESS", "RESTARTS", "LAG")
    table(None, [(head, "right" if head in right else "left") for head in heads], rows)
