"""Pipelines over topics: a Spark data source and sinks, tables and archives, and the runner of pipeline files.

The names below are the public interface; the modules behind them may move. Each is imported on first use: PySpark is
loaded only by those that need it, so `clean_up`, `SpecFile` and `StateFolder` work without it.

    clean_up            end what a killed query of an exactly-once topic sink left open
    explain_error       the cause of any PySpark exception, in one sentence
    read_topic_table    a topic and its archive as one DataFrame
    Runner              run a pipeline file (`SpecFile`) with its state in a folder (`StateFolder`)
    TableSink           write micro-batches to a Parquet or Iceberg table (`TableOptions`)
    UpsertSink          write micro-batches to PostgreSQL or SQLite (`UpsertOptions`)
    write_batch         write a micro-batch to topics from `foreachBatch`
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.pipelines.archive.topic_table import read_topic_table
    from headrace.pipelines.control.folder import StateFolder
    from headrace.pipelines.control.topic_sinks import clean_up
    from headrace.pipelines.run.runner import Runner
    from headrace.pipelines.sink.writer import write_batch
    from headrace.pipelines.spark_errors import explain_error
    from headrace.pipelines.spec.file import SpecFile
    from headrace.pipelines.tables.sink import TableOptions, TableSink
    from headrace.pipelines.upsert.database import UpsertOptions
    from headrace.pipelines.upsert.sink import UpsertSink

__all__ = [
    "Runner",
    "SpecFile",
    "StateFolder",
    "TableOptions",
    "TableSink",
    "UpsertOptions",
    "UpsertSink",
    "clean_up",
    "explain_error",
    "read_topic_table",
    "write_batch",
]

_MODULES = {
    "Runner": "run.runner",
    "SpecFile": "spec.file",
    "StateFolder": "control.folder",
    "TableOptions": "tables.sink",
    "TableSink": "tables.sink",
    "UpsertOptions": "upsert.database",
    "UpsertSink": "upsert.sink",
    "clean_up": "control.topic_sinks",
    "explain_error": "spark_errors",
    "read_topic_table": "archive.topic_table",
    "write_batch": "sink.writer",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
