"""Batches on their way into topics that have a codec of their own (`compression.type` other than `producer`).

Only Produce for such topics comes here. A batch in another codec is taken out of it and put into the topic's, in a
worker thread unless it is small; everything else about it, producer and sequence included, stays, and the checksum is
made anew. What may be written is decided as always, when it is appended: with the size that the batch then has.
Requests of one connection stay in order, since the next one is not begun before this one's batches are in the log.
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
"""Uncompressed batches up to this size are compressed where they are; nobody knows how large a compressed one is."""
_MAX_AT_A_TIME = 2
"""Batches in work: a small one may turn out to be large, and flushes want worker threads, too."""

Refused = dict[tuple[TopicKey, int], HeadraceError]
"""Partitions whose batch cannot be taken out of its codec."""


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
        """Whether there is any topic with a codec of its own. Looked up once for each image."""
        image = self._metadata.image
        if image is not self._image:
            self._image = image
            self._is_needed = self._metadata.settings.topic_defaults.compression_type != _PRODUCER or any(
                topic.settings.get(_NAME, _PRODUCER) != _PRODUCER for topic in image.topics.values()
            )
        return self._is_needed

    def concerns(self, request: ProduceRequest) -> bool:
        """Whether a batch of this request is for a topic with another codec than its own."""
        return any(
            self._target_for(topic, index, records) is not None
            for topic, partitions in request.topics
            for index, records in partitions
        )

    async def recompress(self, request: ProduceRequest) -> tuple[ProduceRequest, Refused]:
        """The request with each batch in the codec of its topic."""
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
        """What to put a batch into; None if it stays as it is, or will be refused."""
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
    """What a topic's batches are recompressed to."""

    codec: Codec
    level: int | None = None
    """None: the codec's own default."""


def target_of(settings: TopicSettings) -> CompressionTarget | None:
    """None where batches stay in the producer's codec."""
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
    """A batch in another codec; `CorruptBatch` if it is damaged."""
    header = check_batch(batch)
    body = compress(target.codec, decompressed(batch, header), target.level)
    return seal(header._replace(attributes=header.attributes & ~CODEC_MASK | target.codec), body)


def _is_sane(records: memoryview, settings: TopicSettings) -> bool:
    """Whether it is one batch of a size that is allowed; what is wrong otherwise is told when it is to be appended."""
    return HEADER_SIZE <= len(records) <= settings.max_message_bytes and read_header(records).size == len(records)
