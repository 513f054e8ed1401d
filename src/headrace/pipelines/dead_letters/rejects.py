"""Records that fail in the steps of a query: excluded from the batch that they failed, and written as dead letters.

A failed batch is not committed, so it can be repeated without the records that made it fail. These are stored in
`rejected.json` beside the query's checkpoint. The steps are:

    record   write and sync the file, with batch, records and reasons
    letters  write the dead letters, exactly once: their batch id is derived from that of the failed batch
    redo     restart the query without the records in the file

After a crash between any two steps, the next start reads the file and repeats them: dead letters that are already
written are recognised by their batch id. The file describes one batch. When a later batch fails, the earlier one is
committed, and this checkpoint never reads its records again; a reset moves the file away with the checkpoint.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from headrace.pipelines.control.folder import replace_text
from headrace.pipelines.errors import PipelineError

FORMAT = 1
_ROUNDS = 1024
"""The maximum number of failures of a batch, each because of other records."""


class RejectedRecord(msgspec.Struct, frozen=True):
    """A record that fails in a step, and the reason."""

    topic: str
    partition: int
    offset: int
    reason: str

    @property
    def place(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


class Rejects(msgspec.Struct, frozen=True):
    """The excluded records of one batch of a query, in rounds: one round per failure of the batch."""

    query_id: str = ""
    batch: int = -1
    rounds: tuple[tuple[RejectedRecord, ...], ...] = ()
    format: int = FORMAT
    written: int = 0
    """The number of rounds whose dead letters are written."""

    @property
    def records(self) -> list[RejectedRecord]:
        return [each for found in self.rounds for each in found]

    def with_found(self, query_id: str, batch: int, found: Iterable[RejectedRecord]) -> "Rejects":
        """Add the records that a failure of `batch` has found; those of an earlier batch are dropped."""
        rounds = self.rounds if (self.query_id, self.batch) == (query_id, batch) else ()
        known = {each.place for records in rounds for each in records}
        fresh = tuple(each for each in found if each.place not in known)
        if not fresh or len(rounds) == _ROUNDS:
            return self
        return Rejects(query_id, batch, (*rounds, fresh), written=self.written if rounds else 0)

    def all_written(self) -> "Rejects":
        return msgspec.structs.replace(self, written=len(self.rounds))

    def number_of(self, round_: int) -> int:
        """The batch id for writing the dead letters of a round; it increases with batches and rounds."""
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
