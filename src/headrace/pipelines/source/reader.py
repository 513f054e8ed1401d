"""The batch and streaming readers of the data source: planned on the driver, executed by Spark's Python workers.

Records are passed to Spark as Arrow batches, decoded in bulk. A worker holds one fetched piece at a time, whatever the
backlog. Offsets are JSON as in Spark's Kafka source.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from headrace.model.errors import RecordError
from headrace.pipelines.connection_options import ConnectionOptions, credentials_of
from headrace.pipelines.source.admission import BatchAdmission
from headrace.pipelines.source.blocks import read_blocks
from headrace.pipelines.source.offsets import (
    BEGAN,
    OffsetLoss,
    OffsetRange,
    Offsets,
    Partition,
    began,
    from_json,
    ranges,
    split,
    to_json,
)
from headrace.pipelines.source.options import SourceOptions, parse_source_options
from headrace.pipelines.source.positions import Positions, SourceError
from headrace.pipelines.spark_errors import hide_traceback
from headrace.runtime.clock import SystemClock
from headrace.wire import EARLIEST, Cluster, OffsetGone, Timeouts, WireError

log = logging.getLogger(__name__)

_FIRST_PATIENCE_S = 10.0
"""Patience for the first contact: a broker that never answered more likely has another address than an outage."""

_clusters: dict[tuple[str, str, Timeouts, ConnectionOptions], Cluster] = {}


class DataLoss(SourceError):
    """Offsets that were due to be read no longer exist."""


class RangePartition(InputPartition):
    """The range of offsets that one task reads."""

    def __init__(self, range_: OffsetRange) -> None:
        super().__init__(tuple(range_))

    @property
    def range(self) -> OffsetRange:
        return OffsetRange(*self.value)


def shared_cluster(options: SourceOptions) -> Cluster:
    """One per process and set of options: Spark reuses its Python workers, and their connections with them."""
    timeouts = _timeouts(options)
    key = (options.bootstrap, options.client_id, timeouts, options.connection)
    if key not in _clusters:
        _clusters[key] = _cluster(options, timeouts)
    return _clusters[key]


def _cluster(options: SourceOptions, timeouts: Timeouts) -> Cluster:
    credentials = credentials_of(options.connection)
    return Cluster(options.bootstrap, client_id=options.client_id, timeouts=timeouts, credentials=credentials)


def _timeouts(options: SourceOptions) -> Timeouts:
    return Timeouts(options.connect_timeout_s, options.request_timeout_s, options.patience_s)


def _connect(options: SourceOptions) -> Cluster:
    """The shared cluster, after a broker has answered within `_FIRST_PATIENCE_S`."""
    hasty = replace(_timeouts(options), patience_s=min(options.patience_s, _FIRST_PATIENCE_S))
    with _cluster(options, hasty) as probe:
        probe.metadata(())
    return shared_cluster(options)


# -- in a worker


def read_range(options: SourceOptions, columns: Sequence[str], whole: OffsetRange) -> Iterator[pa.RecordBatch]:
    """The visible records of a range, in Arrow batches of these columns."""
    cluster = shared_cluster(options)
    at = whole.start
    while at < whole.end:
        try:
            pieces = read_blocks(
                cluster,
                whole.topic,
                whole.partition,
                at,
                whole.end,
                committed=options.read_committed,
                headers="headers" in columns,
                max_bytes=options.fetch_bytes,
            )
            for blocks, following in pieces:
                for block in blocks:
                    yield block.select(columns)
                at = following
            return
        except OffsetGone:
            at = _after_loss(cluster, options, whole._replace(start=at))
        except RecordError as error:
            raise SourceError(
                f"the records of {whole.topic}-{whole.partition} from offset {at} on cannot be read: {error}"
            ) from error


def _after_loss(cluster: Cluster, options: SourceOptions, rest: OffsetRange) -> int:
    """Where to continue after deleted offsets at the start of `rest`; `DataLoss` with failOnDataLoss."""
    where = (rest.topic, rest.partition)
    first = cluster.list_offsets({where: EARLIEST})[where].offset
    if first > rest.start:
        loss = OffsetLoss(*where, rest.start, min(first, rest.end))
        after = first
    else:
        loss = OffsetLoss(*where, rest.start, rest.end)
        after = rest.end
    report_losses([loss], options)
    return after


def report_losses(losses: Sequence[OffsetLoss], options: SourceOptions) -> None:
    if not losses:
        return
    listed = "; ".join(str(loss) for loss in losses[:5])
    more = f" (and {len(losses) - 5} more)" if len(losses) > 5 else ""
    if options.fail_on_data_loss:
        raise DataLoss(
            f"data was lost before it was read: {listed}{more}; retention or a deletion removed it; "
            "set failOnDataLoss=false to continue without it"
        )
    log.warning("data was lost before it was read: %s%s", listed, more)


# -- on the driver


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A read as Spark describes it: options and columns, parsed on first use."""

    given: Mapping[str, str]
    columns: tuple[str, ...]
    streaming: bool
    problem: str = ""
    """Why the columns are invalid; raised on first use, since Spark would hide an error of the constructor."""

    def options(self) -> SourceOptions:
        if self.problem:
            raise SourceError(self.problem)
        return parse_source_options(self.given, streaming=self.streaming)


def tasks(found: Sequence[OffsetRange], options: SourceOptions) -> list[RangePartition]:
    parts = split(found, min_parts=options.min_partitions, max_records=options.max_records_per_partition)
    return [RangePartition(part) for part in parts]


class BatchReader(DataSourceReader):
    def __init__(self, reading: ReadRequest) -> None:
        self._reading = reading

    def partitions(self) -> list[InputPartition]:
        with hide_traceback():
            options = self._reading.options()
            positions = Positions(_connect(options), options)
            wanted = positions.partitions(must_exist=True)
            start, end = positions.starting(wanted), positions.ending(wanted)
            end = _checked_end(start, end, options, positions)
            found, losses = ranges(start, end, positions.earliest(wanted))
            report_losses(losses, options)
            # Without any partition Spark creates one itself, so give it one that reads nothing.
            return [*tasks(found, options)] or [RangePartition(OffsetRange("", 0, 0, 0))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        with hide_traceback():
            yield from read_range(self._reading.options(), self._reading.columns, partition.range)


def _checked_end(start: Offsets, end: Offsets, options: SourceOptions, positions: Positions) -> dict[Partition, int]:
    """Check the end offsets: one before the start is an error, unless either is a time; then the range is empty."""
    latest = positions.latest(start)
    checked: dict[Partition, int] = {}
    for (topic, index), first in start.items():
        until = end[topic, index]
        if until > latest[topic, index]:
            raise SourceError(
                f"{options.ending.option} asks for {topic}-{index} up to offset {until}: it ends at "
                f"{latest[topic, index]}"
            )
        if first > until and not (options.starting.is_time or options.ending.is_time):
            raise SourceError(f"{topic}-{index} cannot be read from offset {first}: the read ends at {until}")
        checked[topic, index] = max(first, until)
    return checked


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The streaming reader. It parses its options and connects on the first call: Spark would hide an error of the
    constructor behind one of its own."""

    def __init__(self, reading: ReadRequest) -> None:
        self._reading = reading
        self._state: _StreamState | None = None

    @property
    def _stream(self) -> "_StreamState":
        if self._state is None:
            options = self._reading.options()
            self._state = _StreamState(options, _connect(options))
        return self._state

    def initialOffset(self) -> dict[str, Any]:
        with hide_traceback():
            return to_json(self._stream.initial())

    def getDefaultReadLimit(self) -> ReadLimit:
        with hide_traceback():
            options = self._stream.options
        if options.max_offsets:
            return ReadMaxRows(options.max_offsets)
        if options.max_bytes:
            return ReadMaxBytes(options.max_bytes)
        if options.min_offsets:
            return ReadMinRows(options.min_offsets)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        with hide_traceback():
            at = from_json(start)
            end = self._stream.admit(at, everything=isinstance(limit, ReadAllAvailable))
            if end is None or end == at:
                return start
            if at == self._stream.began_at:
                # Spark stores where a micro-batch ends, but asks again where the stream starts: after a restart
                # "latest" would be a later offset, and the first micro-batch would lose its records.
                return {**to_json(end), BEGAN: to_json(at)}
            return to_json(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        latest = self._state.latest if self._state is not None else None
        return None if latest is None else to_json(latest)

    def prepareForTriggerAvailableNow(self) -> None:
        with hide_traceback():
            self._stream.stop_at_latest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with hide_traceback():
            first = began(end)
            return self._stream.tasks(from_json(start) if first is None else first, from_json(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        with hide_traceback():
            yield from read_range(self._reading.options(), self._reading.columns, partition.range)

    def commit(self, end: dict[str, Any]) -> None:
        with hide_traceback():
            self._stream.commit(from_json(end))

    def stop(self) -> None:
        if self._state is not None:
            self._state.cluster.close()


class _StreamState:
    """The driver's state of a stream between micro-batches."""

    def __init__(self, options: SourceOptions, cluster: Cluster) -> None:
        self.options = options
        self.cluster = cluster
        self.latest: dict[Partition, int] | None = None
        """The end offsets at the last trigger."""
        self.began_at: dict[Partition, int] | None = None
        """The start of the stream, once Spark has asked for it; with a checkpoint Spark does not ask."""
        self._positions = Positions(cluster, options)
        self._admission = BatchAdmission(options, SystemClock())
        self._target: dict[Partition, int] | None = None
        self._committed: dict[Partition, int] = {}

    def initial(self) -> dict[Partition, int]:
        """Where a stream without a checkpoint starts; resolved once, since Spark asks repeatedly."""
        if self.began_at is None:
            self.began_at = self._positions.starting(self._positions.partitions(must_exist=True))
        return self.began_at

    def stop_at_latest(self) -> None:
        """End at the offsets of now, for `Trigger.AvailableNow`."""
        self._target = self._positions.latest(self._positions.partitions(must_exist=False))

    def admit(self, start: dict[Partition, int], *, everything: bool) -> dict[Partition, int] | None:
        """Where the next micro-batch ends; None if it does not start yet. Everything before `start` is processed."""
        self.commit(start)
        existing = self._positions.partitions(must_exist=False)
        self._check_deleted(start, existing)
        if self._target is None:
            latest = self._positions.latest(existing)
        else:
            latest = {partition: end for partition, end in self._target.items() if partition in existing}
        self.latest = latest
        earliest = self._positions.earliest(latest)
        _, losses = ranges(start, latest, earliest)
        report_losses(losses, self.options)
        begin = {partition: max(start.get(partition, 0), earliest[partition]) for partition in latest}
        begin = {partition: min(offset, latest[partition]) for partition, offset in begin.items()}
        return self._admission.admit(
            begin,
            latest,
            everything=everything,
            is_last=self._target is not None,
            weigh=lambda: self._positions.bytes_per_offset(begin, latest),
        )

    def _check_deleted(self, start: dict[Partition, int], existing: set[Partition]) -> None:
        gone = sorted({topic for topic, index in start if (topic, index) not in existing})
        if not gone:
            return
        if self.options.fail_on_data_loss:
            raise DataLoss(
                f"{' and '.join(gone)} was deleted or is no longer subscribed to, so its unread records are lost; "
                "set failOnDataLoss=false to continue without them"
            )
        log.warning("deleted or no longer subscribed to: %s", ", ".join(gone))

    def tasks(self, start: dict[Partition, int], end: dict[Partition, int]) -> list[RangePartition]:
        earliest = self._positions.earliest(self._positions.existing(end))
        found, losses = ranges(start, end, earliest)
        report_losses(losses, self.options)
        return tasks(found, self.options)

    def commit(self, end: dict[Partition, int]) -> None:
        """Commit the offsets to `commitGroup`, for tools that show lag. The stream does not depend on it."""
        if not self.options.commit_group or end == self._committed:
            return
        try:
            self.cluster.commit_offsets(self.options.commit_group, end)
            self._committed = end
        except WireError as error:
            log.warning("the offsets were not committed to the group %s: %s", self.options.commit_group, error)
