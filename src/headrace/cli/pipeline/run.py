"""The work of `headrace pipeline validate`, `explain` and `run`."""

import logging
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli.errors import CommandFailed
from headrace.cli.output import count, print_json, say
from headrace.model.errors import HeadraceError
from headrace.model.extras import missing_extra
from headrace.pipelines.control.folder import RunState, RunStatus, StateFolder, recorded_run
from headrace.pipelines.control.progress import RunProgress
from headrace.pipelines.control.reachability import check_brokers
from headrace.pipelines.control.supervisor import log_handler
from headrace.pipelines.control.topics import prepare_topics
from headrace.pipelines.errors import PipelineError, SpecError
from headrace.pipelines.report.figures import FiguresFile, RunMeter
from headrace.pipelines.report.run_reports import RunReports
from headrace.pipelines.run.session import FEW_ROWS, check_ready, start_session
from headrace.pipelines.spec.file import SpecFile
from headrace.pipelines.spec.model import Spec
from headrace.wire import WireError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.pipelines.run.runner import Runner


def load(file: Path, bootstrap: str | None) -> SpecFile:
    """The file, read; a broker that is named on the command line takes the place of its own."""
    return SpecFile(file, bootstrap=bootstrap)


@contextmanager
def quick_session(file: SpecFile, *, for_rows: bool = False) -> "Iterator[SparkSession]":
    """A session in this process, only to plan with, or for a few rows."""
    with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
        say("Starting Spark, which takes some seconds …")
        defaults = FEW_ROWS if for_rows else {}
        spark = start_session(file.spec, "local[1]", Path(folder), is_brief=True, defaults=defaults)
        try:
            yield spark
        finally:
            spark.stop()


def validate_file(file: Path, bootstrap: str | None, *, as_json: bool) -> None:
    read = load(file, bootstrap)
    check_ready()
    from headrace.pipelines.run.validate import validate

    with quick_session(read) as spark:
        checked = validate(spark, read)
        if as_json:
            modes = {each.name: each.mode for each in checked.queries}
            print_json({"name": read.spec.name, "modes": modes, "notes": checked.notes(read)})
            return
        for query in checked.queries:
            print(f"{query.name}: {query.mode}, {_columns(query.columns)}")
        for note in checked.notes(read):
            print(f"note: {note}")
    print(f"{file} is valid")


def _columns(columns: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def explain_file(file: Path, bootstrap: str | None) -> None:
    read = load(file, bootstrap)
    check_ready()
    from headrace.pipelines.run.validate import validate

    with quick_session(read) as spark:
        for query in validate(spark, read).queries:
            print(f"-- {query.name} ({query.mode})")
            query.rows.explain()


def run_file(
    file: Path,
    bootstrap: str | None,
    master: str | None,
    state_dir: Path,
    *,
    once: bool,
    plain: bool,
    supervised: bool,
) -> None:
    """Run until it ends, is stopped or fails. A wrong file is exit code 2, everything else that goes wrong is 1."""
    read = load(file, bootstrap)
    folder = StateFolder.of(state_dir, read.spec.name)
    is_new = not folder.root.exists()
    with failing():
        folder.check_version()
        if is_new:
            # A pipeline that cannot start leaves no folder behind.
            _prepare(read.spec, supervised=supervised)
    lock = folder.run_lock
    with failing(), lock.take(f"the pipeline {read.spec.name}"), recorded_run(folder, supervised=supervised) as note:
        log_to(None if supervised else folder.log)
        if not is_new:
            _prepare(read.spec, supervised=supervised)
        with _reported(read.spec, folder, note, supervised=supervised) as run:
            say(f"Starting Spark on {master or read.spec.spark.master} …")
            with _failures_logged(read.spec.name, folder), session(read, master, folder) as spark:
                note.state = _run(spark, read, folder, run, once=once, plain=plain or supervised, supervised=supervised)


def _prepare(spec: Spec, *, supervised: bool) -> None:
    """Before Spark, which takes its time: a missing broker or topic is reported at once."""
    check_ready()
    if not supervised:
        check_brokers(spec)
    prepare_topics(spec)


class _ReportedRun:
    """The link between a run and its reports: progress goes out, and a request to stop comes in."""

    def __init__(self) -> None:
        self.on_progress: Callable[[RunProgress], None] = lambda book: None
        self._stop: Callable[[], None] | None = None
        self._is_stopped = False

    def stop(self) -> None:
        """Stop the run, or do so as soon as it can be."""
        if not self._is_stopped:
            say("Stopping after this batch, as a broker was asked to")
        self._is_stopped = True
        if self._stop is not None:
            self._stop()

    def can_be_stopped(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        if self._is_stopped:
            stop()


@contextmanager
def _reported(spec: Spec, folder: StateFolder, note: RunStatus, *, supervised: bool) -> Iterator[_ReportedRun]:
    """Report a run to the brokers; a supervisor does it from the file of figures."""
    run = _ReportedRun()
    if supervised:
        meter, file = RunMeter(), FiguresFile(folder.figures)
        run.on_progress = lambda book: file.write(meter.measure(book))
        yield run
        return
    reports = RunReports(spec, folder.log, run.stop)
    run.on_progress = reports.update
    reports.start()
    try:
        yield run
    except KeyboardInterrupt:
        reports.finish("stopped")
        raise
    except BaseException as error:
        reports.finish("failed", str(error))
        raise
    reports.finish("stopped" if note.state == "stopped" else "ended")


@contextmanager
def session(read: SpecFile, master: str | None, folder: StateFolder) -> "Iterator[SparkSession]":
    spark = start_session(read.spec, master, folder.root)
    try:
        yield spark
    finally:
        # A JVM that has died cannot be stopped; report the first error instead.
        with suppress(Exception):
            spark.stop()


@contextmanager
def _failures_logged(name: str, folder: StateFolder) -> Iterator[None]:
    """The whole trace of a failure goes to the log; the person at the terminal gets a sentence."""
    logger = logging.getLogger("headrace.pipelines")
    try:
        yield
    except HeadraceError as error:
        logger.error("%s stopped", name, exc_info=error)
        raise
    except Exception as error:
        from headrace.pipelines.spark_errors import explain_error

        logger.error("%s stopped", name, exc_info=error)
        if (missing := missing_extra(error)) is not None:
            raise missing from error
        reason = f"{type(error).__name__}: {explain_error(error)}"
        raise CommandFailed(f"{name} stopped by a failure of Spark: {reason} (see {folder.log})") from error


def _run(
    spark: "SparkSession",
    read: SpecFile,
    folder: StateFolder,
    run: _ReportedRun,
    *,
    once: bool,
    plain: bool,
    supervised: bool,
) -> RunState:
    """How it ended."""
    from headrace.cli.pipeline.view import PipelineView
    from headrace.pipelines.run.runner import Runner

    with PipelineView(f"{read.spec.name} (Ctrl-C stops it)", live=not plain) as view:

        def progressed(book: RunProgress) -> None:
            view.update(book)
            run.on_progress(book)

        runner = Runner(spark, read, folder, ends=once, on_progress=progressed)
        _stop_on_signals(runner)
        run.can_be_stopped(runner.stop)
        if supervised:
            threading.Thread(target=_stop_with_parent, args=(runner,), daemon=True).start()
        started = time.monotonic()
        book = runner.run()
    rows = max((each.rows_in for each in book.queries.values()), default=0)
    out = sum(each.rows_out for name, each in book.queries.items() if name in read.spec.sinks)
    say(
        f"{read.spec.name}: {count(rows, 'record')} in, {count(out, 'row')} out, {book.bad:,} bad, "
        f"in {time.monotonic() - started:,.1f} s"
    )
    return "stopped" if runner.was_stopped else "ended"


def _stop_on_signals(runner: "Runner") -> None:
    """The first Ctrl-C stops after the batch, the second at once."""

    def heard(number: int, _: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        say("Stopping after this batch; Ctrl-C again stops at once")
        runner.stop()

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, heard)


def _stop_with_parent(runner: "Runner") -> None:
    """Standard input ends when the supervisor does. Python's own buffer has a lock that its exit waits for."""
    while os.read(0, 1024):
        pass
    runner.stop()


@contextmanager
def failing() -> Iterator[None]:
    """What goes wrong with a pipeline, other than its file, is a command that failed."""
    try:
        yield
    except SpecError:
        raise
    except (PipelineError, WireError) as error:
        raise CommandFailed(str(error)) from error


def log_to(file: Path | None) -> None:
    """Let the pipeline's own log lines go to its log, or to stderr for the supervisor to collect."""
    handler: logging.Handler = logging.StreamHandler() if file is None else log_handler(file)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("headrace")
    logger.handlers = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
