"""The operations of one queue: `local.LocalQueue` does them on its leader, `remote.RemoteQueue` calls the leader."""

from collections.abc import Awaitable, Sequence
from typing import Protocol

from headrace.model.queue_wire import Counts, Filter, Move, OutgoingMessage, Peeked, Received, Sent
from headrace.queues.api import Failures, ReceiveOptions
from headrace.records.reader import Record


class QueueOperations(Protocol):
    """As in `api.Queues`. `NotLeader` or `NotCoordinator` means that nothing was done."""

    def send(self, messages: Sequence[OutgoingMessage]) -> Awaitable[list[Sent]]: ...

    async def send_records(self, records: Sequence[Record]) -> None:
        """A page of messages from another queue. It has no effect when it is sent again."""
        ...

    def receive(self, options: ReceiveOptions) -> Awaitable[list[Received]]: ...

    def acknowledge(self, receipts: Sequence[str], *, any_receipt: bool) -> Awaitable[Failures]: ...

    async def extend(self, wanted: Sequence[tuple[str, int]], *, any_receipt: bool) -> Failures: ...

    async def nack(self, wanted: Sequence[tuple[str, int | None, str]]) -> Failures: ...

    async def peek(self, wanted: Filter, after_offset: int) -> list[Peeked]: ...

    async def purge(self, purge_id: str) -> None:
        """`purge_id` is new for each purge, and the same when a purge is repeated."""
        ...

    async def counts(self) -> Counts: ...

    async def start_move(self, destination: str | None, wanted: Filter, per_second: int | None) -> Move: ...

    async def cancel_move(self, move_id: str) -> Move: ...

    async def moves(self) -> list[Move]: ...
