"""Runs a pipeline: starts its queries, monitors them, and stops them together.

A failed query stops the others, and its cause is raised. On `stop`, each query ends between two batches. Nothing is
lost either way; an interrupted batch is repeated at the next start.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.pipelines.control.folder import StateFolder
from headrace.pipelines.control.offset_mirror import OffsetMirror
from headrace.pipelines.control.progress import BatchProgress, ProgressFiles, RunProgress, read_report
from headrace.pipelines.control.sink_schemas import SinkSchemas
from headrace.pipelines.control.source_schemas import SourceSchemas
from headrace.pipelines.control.topic_sinks import REJECTED, topic_sinks
from headrace.pipelines.control.topics import prepare_topics
from headrace.pipelines.control.tracer import pipeline_spans
from headrace.pipelines.errors import PipelineFailed
from headrace.pipelines.run.failure_recovery import FailureRecovery
from headrace.pipelines.run.inputs import read_static, read_topics
from headrace.pipelines.run.output_modes import uses_transform_with_state
from headrace.pipelines.run.plan import PlanSchemas, Query, plan
from headrace.pipelines.run.start import start_query
from headrace.pipelines.spark_errors import explain_error
from headrace.pipelines.spec.file import SpecFile
from headrace.pipelines.spec.model import Source
from headrace.pipelines.values.pinned import new_ids_in
from headrace.schemas.payload.frames import SchemaKey

if TYPE_CHECKING:
    from headrace.pipelines.control.spans import PipelineSpans

_POLL_S = 0.2
_STOP_GRACE_S = 60.0
_START_WAIT_S = 60.0
_START_ATTEMPTS = 6
_INITIALIZING = "Initializing"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_STATE_STORE = "spark.sql.streaming.stateStore.providerClass"

_log = logging.getLogger("headrace.pipelines")


class Runner:
    """One run of a pipeline. `run` returns when the pipeline has ended or was stopped, or raises `PipelineFailed`."""

    def __init__(
        self,
        spark: SparkSession,
        file: SpecFile,
        folder: StateFolder,
        *,
        ends: bool = False,
        on_progress: Callable[[RunProgress], None] = lambda book: None,
    ) -> None:
        self._spark = spark
        self._file = file
        self._folder = folder
        self._ends = ends or file.spec.trigger.ends
        self._on_progress = on_progress
        self._stopping = threading.Event()
        self._queries: dict[str, StreamingQuery] = {}
        self._planned: dict[str, Query] = {}
        self._schemas = PlanSchemas(SourceSchemas(file.spec, folder.schemas), SinkSchemas(file.spec, registers=True))
        self._recovery = FailureRecovery(spark, file, folder, self._schemas.sources, self._stopping.is_set)
        self._seen: dict[str, str] = {}
        self._spans: PipelineSpans | None = None
        self.book = RunProgress([], [])

    def stop(self) -> None:
        """Stop after the current batch. May be called from a signal handler or another thread."""
        self._stopping.set()

    @property
    def was_stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping.is_set()

    def run(self) -> RunProgress:
        """Run until all queries end or `stop` is called."""
        self._spans = spans = pipeline_spans(self._file.spec)
        if spans is None:
            return self._run()
        failure: BaseException | None = None
        try:
            return self._run()
        except BaseException as error:
            failure = error
            raise
        finally:
            spans.end(failure)

    def _run(self) -> RunProgress:
        spec = self._file.spec
        self._folder.make()
        prepare_topics(spec)
        rejected = {name: each for name, each in self._folder.read_sinks().items() if name.startswith(REJECTED)}
        self._folder.write_sinks({**rejected, **topic_sinks(spec)})
        queries = plan(self._spark, self._file, self._read, self._schemas)
        self._planned = {each.name: each for each in queries}
        self.book = RunProgress(
            [each.name for each in queries if each.sink is not None],
            [each.name for each in queries if each.sink is None],
        )
        files = ProgressFiles(spec.name, self._folder.progress, self._folder.metrics)
        mirror = OffsetMirror(spec)
        try:
            for query in queries:
                self._start(self._without_rejected(query))
            is_running = True
            while is_running and not self._stopping.is_set():
                self._collect_progress(files, mirror)
                self._restart_failed()
                # One that has failed since is restarted in the next round.
                is_running = any(each.isActive or each.exception() for each in self._queries.values())
                self._stopping.wait(_POLL_S)
            self._stop_after_batch()
            self._collect_progress(files, mirror)
            self._check()
        finally:
            for running in self._queries.values():
                _stop(running)
            mirror.close()
        return self.book

    def _read(self, name: str, source: Source, *, headers: bool) -> DataFrame:
        if not source.is_stream:
            return read_static(self._spark, self._file.spec, source)
        start = self._folder.read_start().get(name)
        return read_topics(self._spark, self._file.spec, source, headers=headers, start=start)

    def _start(self, query: Query) -> None:
        if uses_transform_with_state(query.rows):
            self._spark.conf.set(_STATE_STORE, _ROCKSDB)
        for attempt in range(1, _START_ATTEMPTS + 1):
            try:
                running = start_query(query, self._file.spec, self._folder, ends=self._ends)
            except PySparkException as error:
                raise PipelineFailed(f"{query.name}: {explain_error(error)}") from error
            self._queries[query.name] = running
            if self._is_up(running) or attempt == _START_ATTEMPTS or not _was_slow(running):
                return
            _log.warning("the query %s did not find its Python worker in time and is started again", query.name)

    def _is_up(self, query: StreamingQuery) -> bool:
        """Wait until a query has started the Python process of its source. Spark waits at most ten seconds for it,
        which
        is too short on a busy machine if several start at once."""
        deadline = time.monotonic() + _START_WAIT_S
        while query.isActive and query.status["message"].startswith(_INITIALIZING) and time.monotonic() < deadline:
            if self._stopping.wait(0.05):
                break
        return query.exception() is None

    def _collect_progress(self, files: ProgressFiles, mirror: OffsetMirror) -> None:
        """Collect the queries' reports since the last call."""
        fresh = [batch for name, query in self._queries.items() for batch in self._reports(name, query)]
        for batch in fresh:
            self.book.add(batch)
            if batch.did_work:
                files.write(batch, self.book)
                if self._spans is not None:
                    self._spans.batch(batch)
        if fresh:
            mirror.commit(self.book.committed())
        self._on_progress(self.book)

    def _reports(self, name: str, query: StreamingQuery) -> list[BatchProgress]:
        """The new reports of a query, the oldest first."""
        fresh: list[BatchProgress] = []
        reports = query._jsq.recentProgress()
        for at in range(len(reports) - 1, -1, -1):
            timestamp = reports[at].timestamp()
            if timestamp <= self._seen.get(name, ""):
                break
            fresh.append(self._with_rejected(read_report(name, reports[at].json())))
        if fresh:
            self._seen[name] = fresh[0].at
        return fresh[::-1]

    def _without_rejected(self, query: Query) -> Query:
        """The query without the records that have failed in its steps."""
        if query.sink is None or not self._recovery.rejected(query.name).records:
            return query
        self._recovery.finish(query.name)
        again = plan(self._spark, self._file, self._recovery.reading(query.name, self._read), self._schemas)
        return next(each for each in again if each.name == query.name)

    def _with_rejected(self, batch: BatchProgress) -> BatchProgress:
        """Count excluded records as bad: Spark's report does not include them."""
        rejects = self._recovery.rejected(batch.query)
        if not batch.did_work or rejects.batch != batch.batch_id:
            return batch
        count = len(rejects.records)
        letters = count if self._file.spec.errors.on_error == "dead-letter" else 0
        return replace(batch, bad=batch.bad + count, letters=letters)

    def _restart_failed(self) -> None:
        """Restart queries that failed because of single records or new schemas; raise any other failure."""
        for name, query in [*self._queries.items()]:
            error = query.exception()
            if error is None:
                continue
            if (found := new_ids_in(str(error))) is not None:
                self._plan_again(name, *found)
            else:
                _log.error("the query %s failed", name, exc_info=error)
                self._recovery.recover(self._planned[name], query, error)
            self._start(self._without_rejected(self._planned[name]))

    def _plan_again(self, name: str, source: str, ids: list[SchemaKey]) -> None:
        """Plan a query again whose batch has records of new schemas: see `source_schemas.py`."""
        _log.info("%s has records of new schemas (%s): %s is planned again", source, ", ".join(map(str, ids)), name)
        self._schemas.sources.learn(source, ids)
        again = plan(self._spark, self._file, self._read, self._schemas)
        self._planned[name] = next(each for each in again if each.name == name)

    def _check(self) -> None:
        for name, query in self._queries.items():
            error = query.exception()
            if error is not None and new_ids_in(str(error)) is None:
                # New schemas are for the next start to decide about: see `_plan_again`.
                _log.error("the query %s failed", name, exc_info=error)
                raise PipelineFailed(f"{name}: {explain_error(error)}") from error

    def _stop_after_batch(self) -> None:
        deadline = time.monotonic() + _STOP_GRACE_S
        before = {name: _batch(query) for name, query in self._queries.items()}
        waiting = dict(self._queries)
        while waiting and time.monotonic() < deadline:
            for name, query in [*waiting.items()]:
                is_between = not query.isActive or not query.status["isTriggerActive"]
                if is_between or _batch(query) != before[name]:
                    _stop(query)
                    del waiting[name]
            time.sleep(0.02)


def _was_slow(query: StreamingQuery) -> bool:
    return "Python worker failed to connect back" in str(query.exception())


def _batch(query: StreamingQuery) -> int:
    last = query._jsq.lastProgress() if query.isActive else None
    return -1 if last is None else int(last.batchId())


def _stop(query: StreamingQuery) -> None:
    try:
        query.stop()
    except Exception as error:
        # Its JVM may have died. The error that stopped the pipeline is being raised already.
        _log.warning("a query did not stop: %s", explain_error(error))
