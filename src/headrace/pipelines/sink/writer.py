"""The sink of format `headrace`: rows of a query, or of a batch job, to topics.

    df.writeStream.format("headrace").option("topic", "revenue").option("kafka.bootstrap.servers", …)
        .option("delivery", "exactly-once").option("sinkId", "revenue").option("checkpointLocation", …).start()

With at-least-once, a task writes its rows directly; a repeated task writes them again. With exactly-once, each task
leaves its rows in an open transaction, and the driver commits all of them by the two-phase commit of `two_phase.py`.
Options are in `options.py`, columns in `schema.py`. Spark refuses update mode for sinks in Python: `write_batch` is the
same sink for `foreachBatch`, which allows any mode.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headrace.model.ids import ProducerIdAndEpoch
from headrace.pipelines.connection_options import credentials_of
from headrace.pipelines.sink.broker import WireBroker
from headrace.pipelines.sink.ledger import OpenTransaction, has_decided, task_transactional_id
from headrace.pipelines.sink.options import SinkOptions, WrongOption, sink_options
from headrace.pipelines.sink.rows import RowRouter, WrongRows
from headrace.pipelines.sink.schema import check_schema
from headrace.pipelines.sink.sender import RowSender
from headrace.pipelines.sink.two_phase import (
    Claim,
    HeldClaim,
    SinkError,
    SinkFenced,
    TransactionalBroker,
    abandon,
    commit,
    take_over,
)
from headrace.pipelines.spark_errors import hide_traceback
from headrace.wire import Cluster, ErrorCode, Refused, Timeouts, WireError

_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
_CLEANUP_TIMEOUTS = Timeouts(connect_s=2, request_s=5, patience_s=5)
"""For a failing task that aborts its transaction, if the broker answers."""


@dataclass(frozen=True)
class TaskCommitMessage(WriterCommitMessage):
    """The message of a finished task to the driver."""

    held: HeldClaim | None
    query: str
    batch: int
    transaction: OpenTransaction | None
    """None if there were no rows, if the batch is already committed, or with at-least-once."""


class SinkWriterBase:
    """Common base of the writers for batches and for streams.

    Spark creates a writer to plan a micro-batch, pickles it for the tasks, and creates another one to commit. Pickling
    is therefore the only sign that tasks are about to start, so the sink is taken over then. The driver gets the claim
    back from the tasks, in their commit messages.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_schema(schema, has_topic=options.topic is not None)
        self.options = options
        self.held: HeldClaim | None = None

    def __getstate__(self) -> dict[str, Any]:
        if self.options.is_exactly_once and self.held is None:
            with hide_traceback(), self.connect() as cluster:
                self.held = take_over(self.broker(cluster))
        return dict(self.__dict__)

    def connect(self, timeouts: Timeouts | None = None) -> Cluster:
        client_id = f"headrace-sink-{self.options.sink_id}" if self.options.sink_id else "headrace-sink"
        return Cluster(
            self.options.bootstrap,
            client_id=client_id,
            timeouts=timeouts or Timeouts(),
            credentials=credentials_of(self.options.connection),
        )

    def broker(self, cluster: Cluster) -> TransactionalBroker:
        return WireBroker(
            cluster,
            self.options.sink_id,
            timeout_ms=self.options.transaction_timeout_ms,
            skips_lost=self.options.skips_lost,
        )

    # -- in a task

    def stage(self, blocks: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        context = TaskContext.get()
        assert context is not None, "rows are written by tasks"
        query, batch = self.batch(context)
        if self.held is not None and has_decided(self.held.entry, query, batch):
            for _ in blocks:
                pass  # Stateful operators before the sink commit their state only when they are read to the end.
            return TaskCommitMessage(self.held, query, batch, None)
        # Topics are looked up while a request is in flight, so the lookup has connections of its own.
        with self.connect() as cluster, self.connect() as lookup:
            router = RowRouter(self.options.topic, lambda topic: _partition_count(lookup, topic), context.partitionId())
            return TaskCommitMessage(self.held, query, batch, self._send(cluster, router, context, blocks))

    def _send(
        self, cluster: Cluster, router: RowRouter, context: TaskContext, blocks: Iterator[pa.RecordBatch]
    ) -> OpenTransaction | None:
        transaction: OpenTransaction | None = None
        sender: RowSender | None = None
        try:
            with ExitStack() as stack:
                for rows in blocks:
                    if not rows.num_rows:
                        continue
                    if sender is None:
                        # Only now that there are rows: most partitions of a small batch are empty.
                        transaction = None if self.held is None else self._begin(cluster, self.held.claim, context)
                        sender = stack.enter_context(self._sender(cluster, transaction))
                    for partition, part in router.split(rows):
                        sender.add(partition, part)
                if sender is not None:
                    sender.flush()
        except BaseException:
            if transaction is not None:
                with suppress(WireError, SinkError), self.connect(_CLEANUP_TIMEOUTS) as another:
                    self.broker(another).abort([transaction])
            raise
        return transaction

    def _begin(self, cluster: Cluster, claim: Claim, context: TaskContext) -> OpenTransaction:
        sink_id, timeout_ms = self.options.sink_id, self.options.transaction_timeout_ms
        if not self.broker(cluster).holds(claim):
            raise SinkFenced(f"another driver has taken over the sink {sink_id}: this task is obsolete")
        name = task_transactional_id(sink_id, claim.epoch, context.partitionId(), context.attemptNumber())
        try:
            return OpenTransaction(name, *cluster.init_producer_id(name, timeout_ms=timeout_ms))
        except Refused as error:
            if error.code is not ErrorCode.invalid_transaction_timeout:
                raise
            raise WrongOption(
                f"the option transactionTimeout ({timeout_ms} ms) is longer than the broker allows: shorten it, or "
                "raise transaction.max.timeout.ms"
            ) from error

    def _sender(self, cluster: Cluster, transaction: OpenTransaction | None) -> RowSender:
        name = None if transaction is None else transaction.transactional_id
        producer = (
            cluster.init_producer_id()
            if transaction is None
            else ProducerIdAndEpoch(transaction.producer_id, transaction.epoch)
        )
        options = self.options
        return RowSender(cluster, producer, transactional_id=name, codec=options.codec, batch_bytes=options.batch_bytes)

    def batch(self, context: TaskContext) -> tuple[str, int]:
        """The query id and batch id of the write; a batch that is committed is not written again."""
        raise NotImplementedError

    # -- on the driver

    def commit_staged(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        staged = [each for each in messages if isinstance(each, TaskCommitMessage)]
        held = next((each.held for each in staged if each.held is not None), None)
        if held is None:
            return
        transactions = [each.transaction for each in staged if each.transaction is not None]
        with self.connect() as cluster:
            commit(self.broker(cluster), held, staged[0].query, staged[0].batch, transactions)

    def abort_staged(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Called by Spark after a failed task or a failed commit; a batch past its commit point stays committed."""
        staged = [each for each in messages if isinstance(each, TaskCommitMessage)]
        held = self.held or next((each.held for each in staged if each.held is not None), None)
        if held is not None:
            with self.connect() as cluster:
                abandon(self.broker(cluster), held.claim)


class BatchSink(SinkWriterBase, DataSourceArrowWriter):
    """`df.write`: at-least-once, or atomic (exactly-once)."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        # A write without queryId and batchId is never recognised as a repetition.
        self._batch = (options.query_id or uuid.uuid4().hex, options.batch_id or 0)

    def batch(self, context: TaskContext) -> tuple[str, int]:
        return self._batch

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with hide_traceback():
            return self.stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with hide_traceback():
            self.commit_staged(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        with hide_traceback():
            self.abort_staged(messages)


class StreamSink(SinkWriterBase, DataSourceStreamArrowWriter):
    """`df.writeStream`: each micro-batch at least once, or exactly once."""

    def batch(self, context: TaskContext) -> tuple[str, int]:
        query, batch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        assert query is not None, "Spark names the query in every task of a stream"
        return query, int(batch or 0)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with hide_traceback():
            return self.stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        with hide_traceback():
            self.commit_staged(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        with hide_traceback():
            self.abort_staged(messages)


def batch_sink(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchSink:
    if overwrite:
        raise WrongOption("a topic cannot be overwritten: use mode append")
    return BatchSink(sink_options(options), schema)


def stream_sink(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamSink:
    found = sink_options(options)
    if found.query_id is not None:
        raise WrongOption("the options queryId and batchId are for batch writes: a stream has its own")
    return StreamSink(found, schema)


def write_batch(df: DataFrame, batch_id: int, query_id: str, options: Mapping[str, str]) -> None:
    """Write a micro-batch from within `foreachBatch`, with the guarantees of `writeStream`, in any output mode.

    `query_id` must stay the same as long as the checkpoint does. Each sink of a query needs its own `sinkId`.
    """
    named = {**options, "queryId": query_id, "batchId": str(batch_id)}
    df.write.format("headrace").options(**named).mode("append").save()


def _partition_count(cluster: Cluster, topic: str) -> int:
    found = cluster.metadata([topic]).get(topic)
    if found is None:
        raise WrongRows(f"the topic {topic} does not exist: create it, or correct the option or the column topic")
    return len(found.partitions)
