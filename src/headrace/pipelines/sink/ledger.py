"""The ledger: the last committed batch of each exactly-once sink, in the compacted topic `__pipeline_commits`.

An entry names the query and the batch that was decided last, and the transactions that hold its rows. Writing the entry
is the commit point of the batch: before it, all of its transactions are eventually aborted; after it, all of them are
eventually committed. Pure: `two_phase.py` calls the broker, in the order that guarantees this.

    key     the sink's id
    value   JSON: version, query, batch, transactions as [transactional id, producer id, epoch], settled, earlier

`settled` is true when all of the transactions are known to be committed, so that their ids may be reused. `earlier` has
the last batches of the queries that used the sink before, so that a return to an old checkpoint repeats nothing.
"""

import re
from collections.abc import Iterable

import msgspec

from headrace.model.errors import HeadraceError

LEDGER_TOPIC = "__pipeline_commits"
LEDGER_PARTITIONS = 8
"""For a new ledger topic. A sink's partition is chosen by its id, from however many the topic has."""
LEDGER_SETTINGS = {
    "cleanup.policy": "compact",
    # Small segments are compacted early, so an old entry is found quickly.
    "segment.bytes": str(4 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.2",
}
_VERSION = 1
_EARLIER_MAX = 16
_SINK_ID = re.compile(r"[A-Za-z0-9._-]{1,200}")
_PREFIX = "pipeline"
_SLOTS = 8


class LedgerError(HeadraceError):
    """A ledger entry that cannot be read, or must not be written."""


class OpenTransaction(msgspec.Struct, array_like=True, frozen=True):
    """An open transaction, and the producer that can end it."""

    transactional_id: str
    producer_id: int
    epoch: int


class LedgerEntry(msgspec.Struct, frozen=True):
    query: str
    batch: int
    transactions: tuple[OpenTransaction, ...]
    settled: bool = False
    earlier: tuple[tuple[str, int], ...] = ()
    """Queries that used the sink before, with the last batch of each; the most recent first."""
    version: int = _VERSION


def is_sink_id(text: str) -> bool:
    return _SINK_ID.fullmatch(text) is not None


def ledger_transactional_id(sink_id: str) -> str:
    """The transactional id of the sink's driver: it fences an older driver, which then cannot write entries."""
    return f"{_PREFIX}/{sink_id}"


def task_transactional_id(sink_id: str, claim_epoch: int, partition: int, attempt: int) -> str:
    """The transactional id of a task: unique per attempt, and among the claims of the last few batches.

    Ids are reused after several claims, so their number is bounded by the number of tasks, not of batches.
    """
    return f"{task_prefix(sink_id)}{claim_epoch % _SLOTS}/{partition}/{attempt}"


def task_prefix(sink_id: str) -> str:
    """The prefix of the transactional ids of a sink's tasks, and of no other ids."""
    return f"{ledger_transactional_id(sink_id)}/"


def has_decided(entry: LedgerEntry | None, query: str, batch: int) -> bool:
    """Whether a batch is committed or will be: its rows must not be written again."""
    if entry is None:
        return False
    known = dict(entry.earlier)
    known[entry.query] = entry.batch
    return batch <= known.get(query, -1)


def decide(entry: LedgerEntry | None, query: str, batch: int, transactions: Iterable[OpenTransaction]) -> LedgerEntry:
    """The entry that commits a batch."""
    if entry is None:
        return LedgerEntry(query, batch, tuple(transactions))
    if has_decided(entry, query, batch):
        raise LedgerError(f"batch {batch} of query {query} is decided already")
    if not entry.settled:
        raise LedgerError(f"batch {entry.batch} of query {entry.query} is not settled yet")
    earlier = tuple(each for each in entry.earlier if each[0] not in (query, entry.query))
    if entry.query != query:
        earlier = ((entry.query, entry.batch), *earlier)[:_EARLIER_MAX]
    return LedgerEntry(query, batch, tuple(transactions), earlier=earlier)


def settle(entry: LedgerEntry) -> LedgerEntry:
    """The entry after all of its transactions are committed."""
    return msgspec.structs.replace(entry, settled=True, transactions=())


class _Version(msgspec.Struct, frozen=True):
    """The part of an entry that all versions have."""

    version: int = _VERSION


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(LedgerEntry).decode
_decode_version = msgspec.json.Decoder(_Version).decode


def to_bytes(entry: LedgerEntry) -> bytes:
    return _encode(entry)


def from_bytes(data: bytes) -> LedgerEntry:
    try:
        if (version := _decode_version(data).version) != _VERSION:
            raise LedgerError(
                f"an entry of {LEDGER_TOPIC} was written by a newer Headrace (version {version}): use that one"
            )
        return _decode(data)
    except msgspec.MsgspecError as error:
        raise LedgerError(f"an entry of {LEDGER_TOPIC} cannot be read: {error}") from error
