"""Records that fail in the steps of a query: set aside for the batch that they stopped, and written as dead letters.

A batch that fails is not committed, so it may be done again without the records that made it fail. What was set aside
is in `rejected.json` beside the query's checkpoint, in this order:

    record   the file names batch, records and reasons; it is synced before anything else happens
    letters  the dead letters of the file are written, exactly once: their number is derived from that of the batch
    redo     the query is started again, and leaves out the records that the file names

Stopped between any two of them, the next start finds the file and does the same again: letters that are written are
recognised by their number. The file is about one batch. When a later one fails, the earlier one is committed, and its
records are never read again by this checkpoint; a reset sets the file aside with the checkpoint.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from headrace.pipelines.control.folder import replace_text
from headrace.pipelines.errors import PipelineError

FORMAT = 1
_ROUNDS = 1024
"""A batch may fail more than once, each time by other records: so often at the most."""


class RejectedRecord(msgspec.Struct, frozen=True):
    """A record that fails, and why."""

    topic: str
    partition: int
    offset: int
    reason: str

    @property
    def place(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


class Rejects(msgspec.Struct, frozen=True):
    """What was set aside for one batch of a query. Each round is what one failure of the batch has found."""

    query_id: str = ""
    batch: int = -1
    rounds: tuple[tuple[RejectedRecord, ...], ...] = ()
    format: int = FORMAT
    written: int = 0
    """How many rounds are known to be dead letters already."""

    @property
    def records(self) -> list[RejectedRecord]:
        return [each for found in self.rounds for each in found]

    def with_found(self, query_id: str, batch: int, found: Iterable[RejectedRecord]) -> "Rejects":
        """With what a failure of `batch` has found. What belongs to an earlier batch is done with."""
        kept = self.rounds if (self.query_id, self.batch) == (query_id, batch) else ()
        known = {each.place for records in kept for each in records}
        fresh = tuple(each for each in found if each.place not in known)
        if not fresh or len(kept) == _ROUNDS:
            return self
        return Rejects(query_id, batch, (*kept, fresh), written=self.written if kept else 0)

    def all_written(self) -> "Rejects":
        return msgspec.structs.replace(self, written=len(self.rounds))

    def number_of(self, round_: int) -> int:
        """The number of a write of dead letters: it rises with the batches, and within one with its rounds."""
        return self.batch * _ROUNDS + round_


def read_rejects(file: Path) -> Rejects:
    try:
        found = msgspec.json.decode(file.read_bytes(), type=Rejects)
    except FileNotFoundError:
        return Rejects()
    if found.format > FORMAT:
        raise PipelineError(
            f"{file} was written by a newer Headrace (format {found.format}, this one reads {FORMAT}): use that one"
        )
    return found


def write_rejects(file: Path, rejects: Rejects) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_text(file, msgspec.json.encode(rejects).decode())
