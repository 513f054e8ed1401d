"""The data source `headrace` with crashes at steps of the two-phase commit: each call over the wire is one.

A file `<sink id>@<step>@<victim>` in the folder that the option `armed` names arms a step, once: the first process that
comes to it renames the file and does it. Steps, in the order of a batch, the first in a task, the others on the driver:

    stage:before stage:after        a task writes rows
    prepare:before prepare:after    a transaction is taken over; after: the first of them
    decide:before decide:written    the entry is about to be written; is written, not committed
    decide:after                    the commit point is passed
    end:before end:after            a transaction is committed; after: the first of them
    settle:before settle:after      the entry that says so

Victims: `worker` is the process itself, `driver` the JVM with the Python process that started it, `broker` the process
whose id is in the file `broker` of the folder, `error` is an exception.
"""

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from headrace.model.ids import ProducerIdAndEpoch
from headrace.pipelines.sink.options import sink_options
from headrace.pipelines.sink.writer import BatchSink, StreamSink
from headrace.pipelines.source.datasource import HeadraceDataSource
from headrace.wire import Cluster, Partition, ResumedTransaction, Timeouts

FORMAT = "headrace"
"""Registered, it takes the place of the real one in its session."""
STAGING = ("stage:before", "stage:after")
DECIDING = (
    "prepare:before", "prepare:after", "decide:before", "decide:written", "decide:after", "end:before", "end:after",
    "settle:before", "settle:after",
)  # fmt: skip


class Crash(Exception):
    """The victim `error`."""


def arm(folder: Path, sink_id: str, step: str, victim: str) -> Path:
    """Returns the file that is there until it happens."""
    file = folder / f"{sink_id}@{step}@{victim}"
    file.touch()
    return file


def reach(folder: Path, sink_id: str, step: str) -> None:
    for victim in ("worker", "driver", "broker", "error"):
        file = folder / f"{sink_id}@{step}@{victim}"
        try:
            file.rename(file.with_name(f"fired-{time.time_ns()}@{file.name}"))
        except FileNotFoundError:
            continue
        if victim == "error":
            raise Crash(f"at {step}")
        kill(victim, folder)


def kill(victim: str, folder: Path) -> None:
    if victim == "worker":
        os.kill(os.getpid(), signal.SIGKILL)
    elif victim == "broker":
        os.kill(int((folder / "broker").read_text()), signal.SIGKILL)
    else:
        for process_id in driver_processes(os.getpid()):
            os.kill(process_id, signal.SIGKILL)
        time.sleep(60)  # This process ends with them; nothing may happen meanwhile.


def driver_processes(process_id: int) -> list[int]:
    """The JVM that a worker belongs to, and the Python process that started it."""
    while (parent := parent_of(process_id)) > 1:
        if Path(f"/proc/{parent}/comm").read_text().strip() == "java":
            return [parent, parent_of(parent)]
        process_id = parent
    return []


def parent_of(process_id: int) -> int:
    return int(Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[1])


class CrashingCluster(Cluster):
    def __init__(self, sink_id: str, bootstrap: str, armed: Path | None = None, **settings: Any) -> None:
        super().__init__(bootstrap, **settings)
        self._sink_id = sink_id
        self._armed = armed

    def _reach(self, step: str) -> None:
        if self._armed is not None:
            reach(self._armed, self._sink_id, step)

    def _is_ledger(self, transactional_id: str | None) -> bool:
        return transactional_id == f"pipeline/{self._sink_id}"

    def produce(
        self, batches: Mapping[Partition, bytes], *, transactional_id: str | None = None, timeout_ms: int = 30_000
    ) -> dict[Partition, int]:
        step = "stage"
        if self._is_ledger(transactional_id):
            is_settled = any(b'"settled":true' in batch for batch in batches.values())
            step = self._entry = "settle" if is_settled else "decide"
        self._reach(f"{step}:before")
        answer = super().produce(batches, transactional_id=transactional_id, timeout_ms=timeout_ms)
        self._reach("decide:written" if step == "decide" else f"{step}:after" if step == "stage" else "")
        return answer

    def resume_txn(self, transactional_id: str, **settings: Any) -> ResumedTransaction:
        self._reach("prepare:before")
        answer = super().resume_txn(transactional_id, **settings)
        self._reach("prepare:after")
        return answer

    def end_txn(self, transactional_id: str, producer: ProducerIdAndEpoch, *, committed: bool) -> ProducerIdAndEpoch:
        step = self._entry if self._is_ledger(transactional_id) else "end"
        if step == "end" and committed:
            self._reach("end:before")
        answer = super().end_txn(transactional_id, producer, committed=committed)
        if committed:
            self._reach(f"{step}:after")
        return answer


class _Crashing:
    options: Any

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        own = dict(options)
        self.armed = Path(own.pop("armed"))
        super().__init__(sink_options(own), schema)  # type: ignore[call-arg]

    def connect(self, timeouts: Timeouts | None = None) -> Cluster:
        options = self.options
        return CrashingCluster(options.sink_id, options.bootstrap, self.armed, timeouts=timeouts or Timeouts())


class CrashingStreamSink(_Crashing, StreamSink): ...


class CrashingBatchSink(_Crashing, BatchSink): ...


class CrashingSource(HeadraceDataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return CrashingBatchSink(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return CrashingStreamSink(self.options, schema)
