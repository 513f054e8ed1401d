"""Schema validation of produced batches, for topics with `key.schema.validation` or `value.schema.validation`.

Only Produce to such topics uses it. An uncompressed batch that is quickly read passes at once if all its schemas are
known to belong to its subject. All else waits, off the event loop: large and compressed batches are read in a worker
thread, unknown schemas are looked up, payloads are checked in a worker thread. Meanwhile the connection begins no other
request, so that the appends of a connection happen in the order of its requests (invariant 3).

A batch is refused as a whole, with an error for each record that does not fit; other partitions are not affected. If
the registry does not answer in time, or too many batches wait, it is refused with an error that clients retry.
"""

import asyncio
import time
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import Executor
from typing import NamedTuple, TypeVar

from headrace.cluster.metadata import Metadata
from headrace.config.topic import TopicSettings
from headrace.kafka.recompression import Refused
from headrace.model.errors import HeadraceError, InvalidRecord, NotLeader, SchemasUnavailable
from headrace.model.ids import TopicName
from headrace.model.image import ClusterImage
from headrace.protocol.fast import TopicKey
from headrace.protocol.produce_request import ProduceRequest
from headrace.records.batch import HEADER_SIZE, BatchHeader, check_batch, read_header
from headrace.records.compression import Codec
from headrace.records.reader import decompressed
from headrace.replication.partition import Partition
from headrace.replication.partitions import PartitionTable
from headrace.schemas.codec_cache import CodecCache, SchemaCodec
from headrace.schemas.errors import InvalidSchema
from headrace.schemas.lookup import SchemaLookup
from headrace.schemas.payload.errors import InvalidPayload
from headrace.schemas.payload.frames import SchemaKey
from headrace.schemas.record_rules import (
    MAX_PROBLEMS,
    RecordProblem,
    SchemaRule,
    UsedSchema,
    check_count,
    ids_in,
    record_problems,
    rules_of,
    used_schemas,
)
from headrace.schemas.resolved import IdOrGuid

A = TypeVar("A")

CheckedPlace = tuple[TopicKey, int]
"""A partition as a request names it."""

_SETTINGS = ("key.schema.validation", "value.schema.validation")
_OFF = "off"
_AT_ONCE_RECORDS = 1_000
"""Uncompressed batches of up to so many records are read on the event loop, and so many records of larger ones that
are not alike: that takes a millisecond or two."""
_AT_ONCE_ALIKE = 8_000
"""So are batches of up to so many records if most of them are alike: a worker thread would take as long, and the event
loop could not go on meanwhile, as both need the interpreter."""
_MAX_AT_A_TIME = 2
"""Batches in worker threads at the same time: flushes need threads, too, and each may decompress to a large one."""
_MAX_WAIT_S = 15.0
"""How long a batch waits for its turn: shorter than producers wait for their answer."""
_MAX_SCHEMAS = 200
"""Different schemas in one batch."""


class BatchToCheck(NamedTuple):
    """A batch for a topic with schema validation."""

    topic: TopicKey
    partition: Partition
    records: memoryview
    header: BatchHeader
    rules: tuple[SchemaRule, ...]

    @property
    def place(self) -> CheckedPlace:
        return self.topic, self.partition.index

    @property
    def is_small(self) -> bool:
        return self.header.codec == Codec.NONE and self.header.record_count <= _AT_ONCE_RECORDS

    @property
    def may_pass_at_once(self) -> bool:
        return self.header.codec == Codec.NONE and self.header.record_count <= _AT_ONCE_ALIKE


class SchemaChecks:
    def __init__(self, metadata: Metadata, partitions: PartitionTable, lookup: SchemaLookup, workers: Executor) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._lookup = lookup
        self._workers = workers
        self._codecs = CodecCache(lookup, workers)
        self._room = asyncio.Semaphore(_MAX_AT_A_TIME)
        self._image: ClusterImage | None = None
        self._is_needed = False
        self._rules: dict[TopicName, tuple[TopicSettings, tuple[SchemaRule, ...]]] = {}
        """By topic, with the settings that they are made from."""

    @property
    def is_needed(self) -> bool:
        """Whether any topic has schema validation. Computed once per image."""
        image = self._metadata.image
        if image is not self._image:
            self._image = image
            self._rules.clear()
            self._is_needed = any(
                topic.settings.get(name, _OFF) != _OFF for topic in image.topics.values() for name in _SETTINGS
            )
        return self._is_needed

    def concerned(self, request: ProduceRequest) -> list[BatchToCheck]:
        """The batches of a request that have to be checked; those that the append refuses anyway are left out."""
        table = self._partitions
        found: list[BatchToCheck] = []
        for topic, partitions in request.topics:
            for index, records in partitions:
                try:
                    partition = table.get(topic, index) if isinstance(topic, str) else table.by_id(topic, index)
                except HeadraceError:
                    continue
                settings = partition.settings
                if not settings.checks_schemas or records is None or not partition.is_leader:
                    continue
                if HEADER_SIZE <= len(records) <= settings.max_message_bytes:
                    header = read_header(records)
                    if header.size == len(records):
                        rules = self._rules_for(partition.topic, settings)
                        found.append(BatchToCheck(topic, partition, records, header, rules))
        return found

    def _rules_for(self, topic: TopicName, settings: TopicSettings) -> tuple[SchemaRule, ...]:
        known = self._rules.get(topic)
        if known is None or known[0] is not settings:
            known = self._rules[topic] = (settings, rules_of(topic, settings))
        return known[1]

    def pass_at_once(self, batches: Sequence[BatchToCheck]) -> bool:
        """Whether all batches are quickly read, and the cache says that their schemas belong to the subjects."""
        return all(batch.may_pass_at_once and self._passes(batch) for batch in batches)

    def _passes(self, batch: BatchToCheck) -> bool:
        data = bytes(batch.records[HEADER_SIZE:])
        for rule in batch.rules:
            subject = rule.topic_subject
            if rule.checks_payload or subject is None:
                return False
            ids = ids_in(data, batch.header, rule, _AT_ONCE_RECORDS)
            if ids is None:
                return False
            for each in ids:
                if not self._lookup.knows(each, subject):
                    return False
        return True

    async def refused(self, request: ProduceRequest, batches: Sequence[BatchToCheck]) -> Refused:
        """Check the batches of a request that were concerned; the partitions whose batch does not pass, with its error.

        A partition that this broker has begun to lead meanwhile is refused, too: its batch was not checked.
        """
        errors = await asyncio.gather(*(self._error(batch) for batch in batches))
        refused = {batch.place: error for batch, error in zip(batches, errors, strict=True) if error is not None}
        return {**self.unchecked(request, {batch.place for batch in batches}), **refused}

    def unchecked(self, request: ProduceRequest, checked: Container[CheckedPlace]) -> Refused:
        """The partitions that have to be checked and were not, with an error that clients retry.

        To be asked just before the append: whatever waits may find that this broker leads a partition now, and its
        batch was not looked at before (invariant: a topic with validation has no unchecked batch).
        """
        if not self.is_needed:
            return {}
        return {
            batch.place: NotLeader(
                f"the records for {batch.partition.topic}-{batch.partition.index} were not checked: this broker "
                "did not lead it when they came; send them again"
            )
            for batch in self.concerned(request)
            if batch.place not in checked
        }

    async def _error(self, batch: BatchToCheck) -> HeadraceError | None:
        try:
            found = [await self._problems(batch, rule) for rule in batch.rules]
            problems = sorted(each for part in found for each in part)
            if not problems:
                return None
        except HeadraceError as error:
            return _damage(batch) or error
        count = len({index for index, _ in problems})
        first, reason = problems[0]
        least = "at least " if any(len(part) == MAX_PROBLEMS for part in found) else ""
        message = f"{least}{count} of {batch.header.record_count} records do not fit; record {first}: {reason}"
        damage = _damage(batch)
        if damage is None and (traffic := batch.partition.traffic) is not None:
            traffic.schema_refusals += count
        return damage or InvalidRecord(message, record_errors=tuple(problems[:MAX_PROBLEMS]))

    async def _problems(self, batch: BatchToCheck, rule: SchemaRule) -> list[RecordProblem]:
        check_count(batch.header)
        used = await self._read(batch, lambda data: used_schemas(data, batch.header, rule), at_once=batch.is_small)
        keys = {key for key, _ in used.schemas}
        if len(keys) > _MAX_SCHEMAS:
            raise InvalidRecord(f"the batch has {len(keys)} different schemas: send at most {_MAX_SCHEMAS} at a time")
        codecs: dict[SchemaKey, SchemaCodec | str] = {}
        if rule.topic_subject is None:
            codecs = await self._codecs_for(keys)
        refused = await self._refused_schemas(rule, used.schemas, codecs)
        if rule.checks_payload:
            accepted = {schema for schema in used.schemas if schema not in refused}
            codecs = await self._codecs_for({key for key, _ in accepted})
            refused |= {schema: why for schema in accepted if isinstance(why := codecs[schema[0]], str)}
        elif not refused and used.is_whole:
            return []
        usable = {key: each.codec for key, each in codecs.items() if not isinstance(each, str)}
        return await self._read(
            batch,
            lambda data: record_problems(data, batch.header, rule, refused, usable, time.thread_time),
            at_once=batch.is_small and not rule.checks_payload,
        )

    async def _codecs_for(self, keys: set[SchemaKey]) -> dict[SchemaKey, SchemaCodec | str]:
        return dict(zip(keys, await asyncio.gather(*map(self._codec, keys)), strict=True))

    async def _codec(self, key: SchemaKey) -> SchemaCodec | str:
        """The codec of a schema, or why there is none."""
        try:
            found = await self._codecs.get(key)
        except InvalidSchema as error:
            return f"values of the schema {key} cannot be checked: {error}"
        return f"there is no schema {key}: register it first" if found is None else found

    async def _refused_schemas(
        self, rule: SchemaRule, used: frozenset[UsedSchema], codecs: Mapping[SchemaKey, SchemaCodec | str]
    ) -> dict[UsedSchema, str]:
        """The schemas that do not belong to their subject, each with the reason."""
        refused: dict[UsedSchema, str] = {}
        asked: dict[tuple[SchemaKey, str], list[UsedSchema]] = {}
        for schema in used:
            key, indexes = schema
            codec = codecs.get(key)
            if isinstance(codec, str):
                refused[schema] = codec
                continue
            try:
                subject = rule.topic_subject if codec is None else rule.subject_for(codec.schema, indexes)
            except InvalidPayload as error:
                refused[schema] = str(error)
                continue
            assert subject is not None, "a rule without a subject has all codecs"
            asked.setdefault((key, subject), []).append(schema)
        unknown = [(key, subject) for key, subject in asked if not self._lookup.knows(_wanted(key), subject)]
        answers = await asyncio.gather(*(self._lookup.belongs(_wanted(key), subject) for key, subject in unknown))
        for (key, subject), is_member in zip(unknown, answers, strict=True):
            if not is_member:
                reason = f"the schema {key} does not belong to the subject {subject}"
                refused |= dict.fromkeys(asked[key, subject], reason)
        return refused

    async def _read(self, batch: BatchToCheck, read: Callable[[bytes], A], *, at_once: bool) -> A:
        """Call `read` with the decompressed records, at once or in a worker thread."""
        if at_once:
            return read(decompressed(batch.records, batch.header))
        try:
            async with asyncio.timeout(_MAX_WAIT_S):
                await self._room.acquire()
        except TimeoutError:
            raise SchemasUnavailable("too many batches wait to be checked by their schemas: send it again") from None
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._workers, lambda: read(decompressed(batch.records, batch.header))
            )
        finally:
            self._room.release()


def _damage(batch: BatchToCheck) -> HeadraceError | None:
    """Why a batch that does not pass is not what its producer has sent; None if it is."""
    try:
        check_batch(batch.records)
    except HeadraceError as error:
        return error
    return None


def _wanted(key: SchemaKey) -> IdOrGuid:
    return key if isinstance(key, int) else str(key)
