"""Produces rows to partitions in large requests; the next request is encoded while one is in flight."""

import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import zip_longest
from types import TracebackType

import pyarrow as pa

from headrace.model.ids import ProducerIdAndEpoch
from headrace.pipelines.sink.rows import WrongRows
from headrace.records.compression import Codec
from headrace.records.encoder import encode
from headrace.wire import Cluster, ErrorCode, Partition, Refused

_FLUSH_BYTES = 8 * 1024 * 1024
"""Rows are buffered up to this size, and one request of about this size is in flight, which bounds the memory."""
_SEQUENCES = 1 << 31


class RowSender:
    """Produces as one idempotent producer: in order, and without duplicates on retries.

    One request is in flight at a time. As a context manager it leaves no thread running.
    """

    def __init__(
        self,
        cluster: Cluster,
        producer: ProducerIdAndEpoch,
        *,
        transactional_id: str | None,
        codec: Codec,
        batch_bytes: int,
    ) -> None:
        self._cluster = cluster
        self._producer = producer
        self._transactional_id = transactional_id
        self._codec = codec
        self._batch_bytes = batch_bytes
        self._sequences: dict[Partition, int] = {}
        self._waiting: dict[Partition, list[pa.RecordBatch]] = {}
        self._waiting_bytes = 0
        self._in_flight: Future[None] | None = None
        self._thread = ThreadPoolExecutor(1)

    def __enter__(self) -> "RowSender":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)

    def add(self, partition: Partition, rows: pa.RecordBatch) -> None:
        self._waiting.setdefault(partition, []).append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= _FLUSH_BYTES:
            self._send_waiting()

    def flush(self) -> None:
        """Send what is buffered, and return when all of it is acknowledged."""
        self._send_waiting()
        self._arrived()

    def _send_waiting(self) -> None:
        encoded = {partition: self._encode(partition, parts) for partition, parts in self._waiting.items()}
        self._waiting, self._waiting_bytes = {}, 0
        self._arrived()
        if encoded:
            self._in_flight = self._thread.submit(self._send, encoded)

    def _arrived(self) -> None:
        """Wait until the request in flight is acknowledged."""
        if self._in_flight is not None:
            in_flight, self._in_flight = self._in_flight, None
            in_flight.result()

    def _encode(self, partition: Partition, parts: list[pa.RecordBatch]) -> list[bytes]:
        rows = pa.Table.from_batches(parts)
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = (sequence + rows.num_rows) % _SEQUENCES
        return encode(
            rows,
            timestamp_ms=round(time.time() * 1000),
            target_bytes=self._batch_bytes,
            codec=self._codec,
            producer_id=self._producer.producer_id,
            producer_epoch=self._producer.epoch,
            base_sequence=sequence,
            transactional=self._transactional_id is not None,
        )

    def _send(self, encoded: Mapping[Partition, list[bytes]]) -> None:
        """One batch of each partition per request, in order."""
        for batches in zip_longest(*encoded.values()):
            request = {partition: batch for partition, batch in zip(encoded, batches, strict=True) if batch is not None}
            try:
                self._cluster.produce(request, transactional_id=self._transactional_id)
            except Refused as error:
                if error.code is ErrorCode.message_too_large or error.code is ErrorCode.record_list_too_large:
                    raise WrongRows(
                        f"a record is larger than its topic allows ({error}): make the column value smaller, or raise "
                        "max.message.bytes of the topic"
                    ) from error
                raise
