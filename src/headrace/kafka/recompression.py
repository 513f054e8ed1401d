"""Recompression of batches for topics with their own codec (`compression.type` other than `producer`).

Only Produce to such topics uses it. A batch in another codec is decompressed and compressed with the topic's, in a
worker thread unless it is small. All else, such as producer and sequence, stays; the checksum is recomputed. The append
validates the batch as always, by its new size. Requests of one connection stay in order, since the next one is not
begun before this one's batches are in the log.
"""

import asyncio
from concurrent.futures import Executor
from typing import NamedTuple

from headrace.cluster.metadata import Metadata
from headrace.config.topic import TopicSettings
from headrace.model.errors import HeadraceError
from headrace.model.image import ClusterImage
from headrace.protocol.fast import TopicKey
from headrace.protocol.produce_request import PartitionData, ProduceRequest
from headrace.records.batch import CODEC_MASK, HEADER_SIZE, Buffer, check_batch, read_header
from headrace.records.builder import seal
from headrace.records.compression import Codec, compress
from headrace.records.reader import decompressed
from headrace.replication.partitions import PartitionTable

_NAME, _PRODUCER = "compression.type", "producer"
_GZIP_DEFAULT = -1
_AT_ONCE_BYTES = 4 * 1024
"""Uncompressed batches up to this size are compressed on the event loop; a compressed one's real size is unknown."""
_MAX_AT_A_TIME = 2
"""Concurrent recompressions: a small batch may decompress to a large one, and flushes need worker threads, too."""

Refused = dict[tuple[TopicKey, int], HeadraceError]
"""Partitions whose batch cannot be decompressed."""


class Recompressor:
    def __init__(self, metadata: Metadata, partitions: PartitionTable, workers: Executor) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._workers = workers
        self._room = asyncio.Semaphore(_MAX_AT_A_TIME)
        self._image: ClusterImage | None = None
        self._is_needed = False

    @property
    def is_needed(self) -> bool:
        """Whether any topic has its own codec. Computed once per image."""
        image = self._metadata.image
        if image is not self._image:
            self._image = image
            self._is_needed = self._metadata.settings.topic_defaults.compression_type != _PRODUCER or any(
                topic.settings.get(_NAME, _PRODUCER) != _PRODUCER for topic in image.topics.values()
            )
        return self._is_needed

    def concerns(self, request: ProduceRequest) -> bool:
        """Whether a batch of this request has another codec than its topic."""
        return any(
            self._target_for(topic, index, records) is not None
            for topic, partitions in request.topics
            for index, records in partitions
        )

    async def recompress(self, request: ProduceRequest) -> tuple[ProduceRequest, Refused]:
        """Return the request with each batch in its topic's codec, and the partitions that failed."""
        topics: list[tuple[TopicKey, list[PartitionData]]] = []
        refused: Refused = {}
        for topic, partitions in request.topics:
            recompressed: list[PartitionData] = []
            for index, records in partitions:
                target = self._target_for(topic, index, records)
                if target is not None and records is not None:
                    try:
                        records = memoryview(await self._recompressed(records, target))
                    except HeadraceError as error:
                        refused[topic, index] = error
                recompressed.append(PartitionData(index, records))
            topics.append((topic, recompressed))
        return request._replace(topics=topics), refused

    def _target_for(self, topic: TopicKey, index: int, records: memoryview | None) -> "CompressionTarget | None":
        """Return the compression for a batch; None if it stays unchanged, or will be refused."""
        table = self._partitions
        try:
            partition = table.get(topic, index) if isinstance(topic, str) else table.by_id(topic, index)
        except HeadraceError:
            return None
        target = target_of(partition.settings)
        if target is None or records is None or not _is_sane(records, partition.settings):
            return None
        return None if read_header(records).codec == target.codec else target

    async def _recompressed(self, records: memoryview, target: "CompressionTarget") -> Buffer:
        if read_header(records).codec == Codec.NONE and len(records) <= _AT_ONCE_BYTES:
            return recompressed(records, target)
        async with self._room:
            return await asyncio.get_running_loop().run_in_executor(self._workers, recompressed, records, target)


class CompressionTarget(NamedTuple):
    """The codec and level of a topic's batches."""

    codec: Codec
    level: int | None = None
    """None: the codec's own default."""


def target_of(settings: TopicSettings) -> CompressionTarget | None:
    """Return a topic's compression; None if batches stay in the producer's codec."""
    match settings.compression_type:
        case "uncompressed":
            return CompressionTarget(Codec.NONE)
        case "snappy":
            return CompressionTarget(Codec.SNAPPY)
        case "gzip":
            level = settings.compression_gzip_level
            return CompressionTarget(Codec.GZIP, None if level == _GZIP_DEFAULT else level)
        case "lz4":
            return CompressionTarget(Codec.LZ4, settings.compression_lz4_level)
        case "zstd":
            return CompressionTarget(Codec.ZSTD, settings.compression_zstd_level)
    return None


def recompressed(batch: Buffer, target: CompressionTarget) -> bytes:
    """Recompress a batch; raises `CorruptBatch` if it is damaged."""
    header = check_batch(batch)
    body = compress(target.codec, decompressed(batch, header), target.level)
    return seal(header._replace(attributes=header.attributes & ~CODEC_MASK | target.codec), body)


def _is_sane(records: memoryview, settings: TopicSettings) -> bool:
    """Whether it is exactly one batch of an allowed size; if not, the append raises the error."""
    return HEADER_SIZE <= len(records) <= settings.max_message_bytes and read_header(records).size == len(records)
