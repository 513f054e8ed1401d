"""The formats in which a shard's log has its records: Headrace 0.1's, and Kafka's from feature level 2 on. Pure.

A key has other bytes in each format, so for compaction the two are different keys. What keeps a record of the old
format from coming back (invariant 61):

- A log has old records first and Kafka's behind them. Where old values are in it when the format changes, a marker
  divides it. The marker is never replaced, so compaction leaves it where it is.
- The first record in Kafka's format under a key of which the log has an old value goes into one batch with a tombstone
  for the old key. A batch is whole or not there, after a crash as for compaction. So when compaction has removed the
  new record, or its tombstone, the old value is gone, too.
- Behind the marker an old tombstone changes no state: it only says that the old value is replaced. What became of it
  is in the record beside it, or in one that replaced that.
- A record in a producer's transaction brings no tombstone, since the transaction may be aborted; the old value stays
  known as such.

Old values that nobody writes again are rewritten in the background (`record_rewrite.py`), none while a transaction may
still change it: it would then be behind what the transaction wrote.

A key of the old format is a msgpack array, its first byte is 0x9N. Kafka's begins with a number of two bytes that is
the type of the record, its first byte is 0.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Generic, Protocol, TypeVar

from headrace.coordinator.machine import InternalRecord

K = TypeVar("K")
V = TypeVar("V")

_MARKER = InternalRecord(b"\x91\xa6format", b"\x91\xa8format-2")
"""["format"], ["format-2"]: what follows is in Kafka's format."""
_KAFKA = 0
"""The first byte of its keys."""


class Format(Protocol[K, V]):
    """How records are written and read."""

    def write(self, key: K, value: V | None) -> tuple[InternalRecord, ...]: ...

    def read(self, entry: InternalRecord) -> tuple[K, V | None] | None:
        """What a record says, None if nothing that is not in another one; `CorruptBatch` if this broker cannot
        know."""
        ...


class RecordFormats(Generic[K, V]):
    """Writes records in the format that is due, and knows of which keys the log has old values."""

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
        """What the log has in the old format, be it replaced by a transaction since."""
        return iter(self._old_values.items())

    def encode(self, record: tuple[K, V | None]) -> tuple[InternalRecord, ...]:
        """The entries of a record, for one batch. What they change in the log is taken for certain."""
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
        """The entries of a record that may be aborted: the format does not change with it."""
        return self._kafka.write(*record) if self._is_kafka else self._encode_old(*record)

    def _encode_old(self, key: K, value: V | None) -> tuple[InternalRecord, ...]:
        self._note_old(key, value)
        return self._old.write(key, value)

    def decode(self, entry: InternalRecord) -> tuple[K, V | None] | None:
        """What an entry of the log says; None if it changes no state."""
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
    """A machine whose records are keys and values, and whose log may be in either format."""

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
        """What is to be written again for each old value; nothing for those that cannot be rewritten yet."""
        return self._formats.old_values()
