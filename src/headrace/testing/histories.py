"""Histories of clients' operations and their results: JSON lines, recorded as they happen, for `checkers`.

    with Recorder(folder / "producer-1.jsonl", "producer-1") as record:
        sent = record.send("orders", "producer-1/17")
        ...
        record.ok(sent, partition=2, offset=1041)

Every value is sent once in a history, so that a read identifies its send. A line is in the file when its method
returns: a process that is killed afterwards has written it. An operation without an end, or with a timeout, is unknown:
it may have happened. `failed` is only for operations that certainly did not happen and never will.

Times are of the machine's monotonic clock, so the histories of all processes of one machine can be merged.
"""

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple, TypeVar

import msgspec

from headrace.model.ids import PartitionIndex, TopicName, TopicPartition

Fate = Literal["ok", "failed", "unknown"]
_AnyBegun = TypeVar("_AnyBegun", bound="Begun")


class Read(NamedTuple):
    """One record as a client got it. The leader epoch is its batch's, -1 if the client does not expose it."""

    topic: TopicName
    partition: PartitionIndex
    offset: int
    value: str
    leader_epoch: int = -1

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Position(NamedTuple):
    """A partition and an offset in it; -1 if unknown."""

    topic: TopicName
    partition: PartitionIndex
    offset: int = -1

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Line(msgspec.Struct, tag_field="do", frozen=True, omit_defaults=True, kw_only=True):
    at: float
    """Seconds: the start of an operation that has an end line, else the time of completion."""
    by: str
    """The name of the producer or consumer; a new or restarted one has a new name."""


class Begun(Line, frozen=True):
    """The start of an operation; its end is another line."""

    id: int


class SendOperation(Begun, frozen=True, tag="send"):
    topic: TopicName
    value: str
    txn: int | None = None
    """The id of its transaction's `begin`."""
    idempotent: bool = True
    of: str | None = None
    """The input value of this output, where each input must be processed exactly once."""


class Init(Begun, frozen=True, tag="init"):
    """A producer takes over a transactional id and fences its previous producers."""

    transactional_id: str


class Begin(Begun, frozen=True, tag="begin"):
    """A transaction begins. This never fails: it sends no request."""

    transactional_id: str


class Finish(Begun, frozen=True, tag="finish"):
    """A request to commit or abort a transaction."""

    txn: int
    commit: bool


class Commit(Begun, frozen=True, tag="commit"):
    """A commit of a group's offsets; with `txn`, as part of that transaction."""

    group: str
    offsets: tuple[Position, ...]
    txn: int | None = None


class Delete(Begun, frozen=True, tag="delete"):
    """Records before an offset may be deleted: by DeleteRecords, or by retention that a test triggers."""

    topic: TopicName
    partition: PartitionIndex
    before: int


class End(Line, frozen=True, tag="end"):
    id: int
    fate: Fate
    partition: int | None = None
    offset: int | None = None
    error: str | None = None


class Poll(Line, frozen=True, tag="poll"):
    """The records that one poll returned, in order."""

    records: tuple[Read, ...]
    committed: bool = True
    """True with isolation.level=read_committed."""


class Assign(Line, frozen=True, tag="assign"):
    """The consumer is assigned these additional partitions. The offset is its start position, if known.

    With `group`, the coordinator has made it their owner; without, it only reads them from that position on.
    """

    partitions: tuple[Position, ...]
    group: str | None = None
    generation: int | None = None


class Revoke(Line, frozen=True, tag="revoke"):
    """The consumer revoked or lost these partitions."""

    partitions: tuple[TopicPartition, ...]
    group: str | None = None


class Committed(Line, frozen=True, tag="committed"):
    """A group's committed offsets in a response; `began` is the time of the request."""

    began: float
    group: str
    offsets: tuple[Position, ...]


class MetadataState(Line, frozen=True, tag="state"):
    """A partition's state in the metadata, recorded in the order of revisions."""

    topic: TopicName
    partition: PartitionIndex
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int


class Note(Line, frozen=True, tag="note"):
    """A fault or another event in the system: see `checkers` for those that it interprets."""

    what: str
    detail: str = ""


AnyLine = (
    SendOperation
    | Init
    | Begin
    | Finish
    | Commit
    | Delete
    | End
    | Poll
    | Assign
    | Revoke
    | Committed
    | MetadataState
    | Note
)
_encode = msgspec.json.Encoder().encode
_decoder: msgspec.json.Decoder[AnyLine] = msgspec.json.Decoder(AnyLine)


class Recorder:
    """Writes the history of one producer or consumer. Each line is one atomic append."""

    def __init__(self, path: Path, by: str, *, now: Callable[[], float] = time.monotonic) -> None:
        self.by = by
        self._now = now
        self._last_id = 0
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def send(
        self, topic: str, value: str, *, txn: int | None = None, idempotent: bool = True, of: str | None = None
    ) -> int:
        return self._begin(
            SendOperation(
                at=self._now(),
                by=self.by,
                id=self._new_id(),
                topic=TopicName(topic),
                value=value,
                txn=txn,
                idempotent=idempotent,
                of=of,
            )
        )

    def init(self, transactional_id: str) -> int:
        return self._begin(Init(at=self._now(), by=self.by, id=self._new_id(), transactional_id=transactional_id))

    def begin(self, transactional_id: str) -> int:
        """Returns the id that `send`, `commit` and `finish` take as `txn`."""
        return self._begin(Begin(at=self._now(), by=self.by, id=self._new_id(), transactional_id=transactional_id))

    def finish(self, txn: int, *, commit: bool) -> int:
        return self._begin(Finish(at=self._now(), by=self.by, id=self._new_id(), txn=txn, commit=commit))

    def commit(self, group: str, offsets: Iterable[Position], *, txn: int | None = None) -> int:
        return self._begin(
            Commit(at=self._now(), by=self.by, id=self._new_id(), group=group, offsets=tuple(offsets), txn=txn)
        )

    def delete(self, topic: str, partition: int, before: int) -> int:
        return self._begin(
            Delete(
                at=self._now(),
                by=self.by,
                id=self._new_id(),
                topic=TopicName(topic),
                partition=PartitionIndex(partition),
                before=before,
            )
        )

    def ok(self, id: int, *, partition: int | None = None, offset: int | None = None) -> None:
        self._write(End(at=self._now(), by=self.by, id=id, fate="ok", partition=partition, offset=offset))

    def failed(self, id: int, error: object = None) -> None:
        """Record that an operation did not happen and never will."""
        self._write(End(at=self._now(), by=self.by, id=id, fate="failed", error=_text(error)))

    def unknown(self, id: int, error: object = None) -> None:
        """Record that an operation may have happened, or may still happen."""
        self._write(End(at=self._now(), by=self.by, id=id, fate="unknown", error=_text(error)))

    def poll(self, records: Iterable[Read], *, committed: bool = True) -> None:
        self._write(Poll(at=self._now(), by=self.by, records=tuple(records), committed=committed))

    def assign(
        self, partitions: Iterable[Position], *, group: str | None = None, generation: int | None = None
    ) -> None:
        at = self._now()
        self._write(Assign(at=at, by=self.by, partitions=tuple(partitions), group=group, generation=generation))

    def revoke(self, partitions: Iterable[TopicPartition], *, group: str | None = None) -> None:
        self._write(Revoke(at=self._now(), by=self.by, partitions=tuple(partitions), group=group))

    def committed(self, began: float, group: str, offsets: Iterable[Position]) -> None:
        self._write(Committed(at=self._now(), by=self.by, began=began, group=group, offsets=tuple(offsets)))

    def state(
        self, where: TopicPartition, *, leader: int, leader_epoch: int, isr: Iterable[int], partition_epoch: int
    ) -> None:
        topic, partition = where
        line = MetadataState(
            at=self._now(),
            by=self.by,
            topic=topic,
            partition=partition,
            leader=leader,
            leader_epoch=leader_epoch,
            isr=tuple(isr),
            partition_epoch=partition_epoch,
        )
        self._write(line)

    def note(self, what: str, detail: str = "") -> None:
        self._write(Note(at=self._now(), by=self.by, what=what, detail=detail))

    def close(self) -> None:
        os.close(self._file)

    def _new_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _begin(self, line: Begun) -> int:
        self._write(line)
        return line.id

    def _write(self, line: Line) -> None:
        os.write(self._file, _encode(line) + b"\n")

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _text(error: object) -> str | None:
    return None if error is None else str(error)


@dataclass
class History:
    """All recorded lines in order of time; the lines of one process stay in its order."""

    sends: list[SendOperation] = field(default_factory=list)
    inits: list[Init] = field(default_factory=list)
    begins: list[Begin] = field(default_factory=list)
    finishes: list[Finish] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    deletes: list[Delete] = field(default_factory=list)
    reading: list[Poll | Assign | Revoke] = field(default_factory=list)
    committed: list[Committed] = field(default_factory=list)
    states: list[MetadataState] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    ends: dict[tuple[str, int], End] = field(default_factory=dict)

    def end_of(self, begun: Begun) -> End | None:
        return self.ends.get((begun.by, begun.id))

    def fate_of(self, begun: Begun) -> Fate:
        end = self.end_of(begun)
        return "unknown" if end is None else end.fate

    def ended_ok(self, begun: Iterable[_AnyBegun]) -> list[tuple[_AnyBegun, End]]:
        found = ((one, self.end_of(one)) for one in begun)
        return [(one, end) for one, end in found if end is not None and end.fate == "ok"]

    @property
    def polls(self) -> list[Poll]:
        return [line for line in self.reading if isinstance(line, Poll)]

    @classmethod
    def of(cls, lines: Iterable[AnyLine]) -> "History":
        self = cls()
        for line in sorted(lines, key=lambda line: line.at):
            match line:
                case End():
                    self.ends[line.by, line.id] = line
                case SendOperation():
                    self.sends.append(line)
                case Init():
                    self.inits.append(line)
                case Begin():
                    self.begins.append(line)
                case Finish():
                    self.finishes.append(line)
                case Commit():
                    self.commits.append(line)
                case Delete():
                    self.deletes.append(line)
                case Poll() | Assign() | Revoke():
                    self.reading.append(line)
                case Committed():
                    self.committed.append(line)
                case MetadataState():
                    self.states.append(line)
                case Note():
                    self.notes.append(line)
        return self

    @classmethod
    def read(cls, *paths: Path) -> "History":
        """Merge the histories in these files, and in all `*.jsonl` files of these folders."""
        files = [one for path in paths for one in (sorted(path.glob("*.jsonl")) if path.is_dir() else [path])]
        return cls.of(line for file in files for line in read_lines(file))


def read_lines(path: Path) -> list[AnyLine]:
    """The lines of one file, without an incomplete last line, which its process was writing when it was killed."""
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    return [_decoder.decode(line) for line in whole.split(b"\n") if line]
