"""The formats of a shard's log: that of Headrace 0.1, and Kafka's from feature level 2 on. Pure.

A key has different bytes in each format, so for compaction the two are different keys. How a record of the old format
is prevented from reappearing (invariant 61):

- A log has old records first, then Kafka's. If it has old values when the format changes, a marker divides it. The
  marker is never overwritten, so compaction leaves it in place.
- The first record in Kafka's format for a key with an old value goes into one batch with a tombstone for the old key.
  Batches are atomic, after a crash and for compaction. So when compaction has removed the new record, or its tombstone,
  the old value is gone, too.
- After the marker an old tombstone changes no state: it only removes the old value. The key's current value is in the
  record in the same batch, or in a later one.
- A transactional record comes without a tombstone, since the transaction may be aborted; the old value remains
  registered.

Old values that are not overwritten are rewritten in the background (`record_rewrite.py`), but not while an open
transaction may change them: the rewrite would then follow, and override, the transaction's record.

A key of the old format is a msgpack array; its first byte is 0x9N. Kafka's begins with the two-byte type of the record;
its first byte is 0.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Generic, Protocol, TypeVar

from headrace.coordinator.machine import InternalRecord

K = TypeVar("K")
V = TypeVar("V")

_MARKER = InternalRecord(b"\x91\xa6format", b"\x91\xa8format-2")
"""["format"], ["format-2"]: the records after it are in Kafka's format."""
_KAFKA = 0
"""The first byte of keys in Kafka's format."""


class Format(Protocol[K, V]):
    """Encodes and decodes records."""

    def write(self, key: K, value: V | None) -> tuple[InternalRecord, ...]: ...

    def read(self, entry: InternalRecord) -> tuple[K, V | None] | None:
        """The decoded record; None if it is redundant with another one; `CorruptBatch` if it cannot be decoded."""
        ...


class RecordFormats(Generic[K, V]):
    """Encodes records in the current format, and tracks the keys with old values in the log."""

    def __init__(self, old: Format[K, V], kafka: Format[K, V]) -> None:
        self._old = old
        self._kafka = kafka
        self._is_kafka = False
        self._is_kafka_due = False
        self._old_values: dict[K, V] = {}

    def use_kafka(self) -> None:
        self._is_kafka_due = True

    @property
    def has_old(self) -> bool:
        return bool(self._old_values)

    def old_values(self) -> Iterator[tuple[K, V | None]]:
        """The log's values in the old format, including those that a transaction has overwritten since."""
        return iter(self._old_values.items())

    def encode(self, record: tuple[K, V | None]) -> tuple[InternalRecord, ...]:
        """The log entries of a record, for one batch; assumes that they will be appended."""
        key, value = record
        if not self._is_kafka:
            if not self._is_kafka_due:
                return self._encode_old(key, value)
            self._is_kafka = True
            if self._old_values:
                return (_MARKER, *self.encode(record))
        if self._old_values and key in self._old_values:
            del self._old_values[key]
            return (*self._kafka.write(key, value), *self._old.write(key, None))
        return self._kafka.write(key, value)

    def encode_in_transaction(self, record: tuple[K, V | None]) -> tuple[InternalRecord, ...]:
        """The log entries of a record that may be aborted: it never switches the format."""
        return self._kafka.write(*record) if self._is_kafka else self._encode_old(*record)

    def _encode_old(self, key: K, value: V | None) -> tuple[InternalRecord, ...]:
        self._note_old(key, value)
        return self._old.write(key, value)

    def decode(self, entry: InternalRecord) -> tuple[K, V | None] | None:
        """The record in a log entry; None if it changes no state."""
        key = entry.key
        if key and key[0] == _KAFKA:
            self._is_kafka = True
            return self._kafka.read(entry)
        if key == _MARKER.key:
            self._is_kafka = True
            return None
        found = self._old.read(entry)
        if found is not None:
            self._note_old(*found)
            if self._is_kafka and entry.value is None:
                return None
        return found

    def _note_old(self, key: K, value: V | None) -> None:
        if value is None:
            self._old_values.pop(key, None)
        else:
            self._old_values[key] = value


class FormattedMachine(Generic[K, V]):
    """A machine whose records are key-value pairs, and whose log may be in either format."""

    def __init__(self, old: Format[K, V], kafka: Format[K, V]) -> None:
        self._formats = RecordFormats(old, kafka)

    def apply(self, record: tuple[K, V | None], producer_id: int) -> None:
        raise NotImplementedError

    def encode(self, record: tuple[K, V | None]) -> Sequence[InternalRecord]:
        return self._formats.encode(record)

    def encode_in_transaction(self, record: tuple[K, V | None]) -> Sequence[InternalRecord]:
        return self._formats.encode_in_transaction(record)

    def replay(self, entry: InternalRecord, producer_id: int) -> None:
        record = self._formats.decode(entry)
        if record is not None:
            self.apply(record, producer_id)

    def use_kafka_format(self) -> None:
        self._formats.use_kafka()

    @property
    def has_old_records(self) -> bool:
        return self._formats.has_old

    def old_records(self, limit: int) -> Sequence[tuple[K, V | None]]:
        return tuple(islice(self._old_records(), limit))

    def _old_records(self) -> Iterator[tuple[K, V | None]]:
        """The record to write for each old value, without those that cannot be rewritten yet."""
        return self._formats.old_values()
