"""Starts the queries of a pipeline, each with its sink and its own checkpoint."""

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headrace.pipelines.control.folder import StateFolder
from headrace.pipelines.control.topic_sinks import topic_sinks
from headrace.pipelines.foreach_batch import running_query_id
from headrace.pipelines.run.console import ConsoleSink
from headrace.pipelines.run.inputs import FORMAT
from headrace.pipelines.run.plan import Query
from headrace.pipelines.run.rows import table_options, upsert_options
from headrace.pipelines.sink.writer import write_batch
from headrace.pipelines.spec.model import Sink, Spec
from headrace.pipelines.tables.sink import TableSink
from headrace.pipelines.upsert.sink import UpsertSink

BatchWriter = Callable[[DataFrame, int], None]


def start_query(query: Query, spec: Spec, folder: StateFolder, *, ends: bool) -> StreamingQuery:
    """Start a query. With `ends` it stops when it has processed the backlog."""
    writer = query.rows.writeStream.queryName(f"{spec.name}.{query.name}").outputMode(query.mode)
    writer = writer.option("checkpointLocation", checkpoint_of(spec, folder, query.name))
    if ends or spec.trigger.ends:
        writer = writer.trigger(availableNow=True)
    elif spec.trigger.every is not None:
        writer = writer.trigger(processingTime=spec.trigger.every)
    return _to_sink(writer, query, spec).start()


def checkpoint_of(spec: Spec, folder: StateFolder, query: str) -> str:
    """The checkpoint of a query: at the file's `checkpoint` URL, for a cluster, else in the state folder."""
    if spec.checkpoint is not None and "://" in spec.checkpoint:
        return f"{spec.checkpoint.rstrip('/')}/{spec.name}/{query}"
    return str(folder.checkpoint / query)


def _to_sink(writer: DataStreamWriter, query: Query, spec: Spec) -> DataStreamWriter:
    options = topic_sinks(spec).get(query.name)
    if options is None:
        assert query.sink is not None, "dead letters go to topics"
        return writer.foreachBatch(_batch_writer(query.sink, spec, query.name))
    if query.mode == "append":
        return _to_topics(writer, options)
    return writer.foreachBatch(_to_topics_by_batch(options))


def _to_topics_by_batch(options: dict[str, str]) -> BatchWriter:
    """The topic sink through `foreachBatch`: Spark refuses update mode for sinks in Python."""

    def write(batch: DataFrame, batch_id: int) -> None:
        write_batch(batch, batch_id, running_query_id(batch), options)

    return write


def _to_topics(writer: DataStreamWriter, options: dict[str, str]) -> DataStreamWriter:
    writer = writer.format(FORMAT)
    for name, value in options.items():
        writer = writer.option(name, value)
    return writer


def _batch_writer(sink: Sink, spec: Spec, query: str) -> BatchWriter:
    if sink.kind == "console":
        return ConsoleSink(query, sink.rows).write
    if sink.kind == "database":
        database = UpsertSink(upsert_options(sink, spec.folder, f"{spec.name}.{query}"))
        return _ignore_result(database.write)
    table = TableSink(table_options(sink, spec.folder))
    return _ignore_result(table.write)


def _ignore_result(write: Callable[[DataFrame, int], bool]) -> BatchWriter:
    """Drop the result, whether the batch was new: Spark expects None."""

    def written(batch: DataFrame, batch_id: int) -> None:
        write(batch, batch_id)

    return written
