"""The two-phase commit of a batch: its steps in order, and why a crash between any two of them is safe.

The tasks write the rows of a batch in transactions that they leave open; the driver commits them:

    take over   before the tasks: claim the ledger, which fences older drivers; commit the transactions that its entry
                names, abort all others
    stage       each task: write the rows, leave the transaction open
    prepare     the driver takes each transaction over from its task; from here on it does not expire
    decide      write the ledger entry that names the transactions: the commit point
    end         commit each transaction
    settle      mark the ledger entry as settled
    sweep       abort transactions that failed or speculative task attempts left open

After a crash before the commit point, the next take-over finds open transactions that the ledger does not name and
aborts them; Spark repeats the batch. After a crash behind the commit point, the take-over commits the transactions that
the ledger names (committing twice changes nothing), and the repeated batch is skipped.

Possible interference, and why it does no harm:
- An older driver that is still alive: its entries are refused, since its epoch is fenced.
- An older driver that cleans up: it aborts, by producer and epoch, what was open *before* its own claim. Transactions
  of a newer driver's tasks have another epoch.
- A second attempt at a task, or a task of an older driver: it has its own transactional id. Ids are reused several
  claims later, so a task checks that its claim is still valid before it uses one. A transaction that it leaves open is
  aborted by the next take-over, or expires.
- Timeouts: `prepare` detects an expired transaction before the commit point, and the batch is repeated. A prepared
  transaction does not expire. On brokers without two-phase commit, `prepare` requires enough remaining time instead; a
  transaction that is lost after the commit point raises `RowsLost` and is never ignored.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from headrace.model.errors import HeadraceError
from headrace.pipelines.sink.ledger import LedgerEntry, OpenTransaction, decide, has_decided, settle


class SinkError(HeadraceError):
    """A failure of the topic sink."""


class SinkFenced(SinkError):
    """A newer driver has claimed the sink."""


class TransactionExpired(SinkError):
    """A transaction ended before the commit point; the batch has to be repeated."""


class RowsLost(SinkError):
    """A transaction was aborted or expired after the commit point; its rows are lost."""


class Claim(NamedTuple):
    """The right to write the sink's next ledger entry, valid until a newer driver claims the sink."""

    producer_id: int
    epoch: int
    sequence: int = 0
    """Sequence number of the next entry."""


class TransactionalBroker(Protocol):
    """The broker operations of the protocol, for one sink. Each is complete when it returns, and may be repeated."""

    def open_transactions(self) -> Sequence[OpenTransaction]:
        """The open transactions of the sink's tasks, prepared or not."""
        ...

    def claim(self, held: Claim | None) -> Claim:
        """Claim the ledger: fence every other driver, and abort an entry that one is writing.

        With `held`, only if that claim is still the newest; otherwise raise `SinkFenced`.
        """
        ...

    def holds(self, claim: Claim) -> bool:
        """Whether this claim is still the newest."""
        ...

    def read(self) -> LedgerEntry | None:
        """The sink's entry. To be called with a claim: only its holder can change the entry from then on."""
        ...

    def write(self, claim: Claim, entry: LedgerEntry) -> Claim:
        """Write the entry, or raise `SinkFenced`; returns the claim for the next entry."""
        ...

    def prepare(self, transactions: Sequence[OpenTransaction]) -> Sequence[OpenTransaction]:
        """Take them over from their tasks, fenced and without a timeout; `TransactionExpired` if one has ended.

        Returns them with the producers that can end them from now on.
        """
        ...

    def commit(self, transactions: Sequence[OpenTransaction]) -> None:
        """Commit each. One that is already committed is fine; one that was aborted raises `RowsLost`."""
        ...

    def abort(self, transactions: Sequence[OpenTransaction]) -> None:
        """Abort each, unless it has ended or has a newer epoch."""
        ...


class HeldClaim(NamedTuple):
    """A claim, and the sink's ledger entry at that time."""

    claim: Claim
    entry: LedgerEntry | None


def take_over(broker: TransactionalBroker, held: Claim | None = None) -> HeldClaim:
    """Claim a sink, and end everything that earlier drivers left open.

    Open transactions are listed before the claim: each of them belongs to a driver that the claim fences, or is named
    by the entry that is read after it.
    """
    left_open = broker.open_transactions()
    claim = broker.claim(held)
    entry = broker.read()
    if entry is not None and not entry.settled:
        claim, entry = _finish(broker, claim, entry)
    if left_open:
        broker.abort(left_open)
    return HeldClaim(claim, entry)


def commit(
    broker: TransactionalBroker, held: HeldClaim, query: str, batch: int, staged: Iterable[OpenTransaction]
) -> None:
    """Make the rows of a batch visible atomically, and once."""
    transactions = tuple(staged)
    if not transactions or has_decided(held.entry, query, batch):
        return
    prepared = tuple(broker.prepare(transactions))
    entry = decide(held.entry, query, batch, prepared)
    claim = broker.write(held.claim, entry)
    _sweep(broker, _finish(broker, claim, entry).claim)


def abandon(broker: TransactionalBroker, claim: Claim) -> None:
    """After a failure of a task or of `commit`: finish a batch past its commit point, abort any other."""
    try:
        take_over(broker, held=claim)
    except SinkFenced:
        return  # The newer driver has done it.


def _sweep(broker: TransactionalBroker, claim: Claim) -> None:
    """Abort what is open. With the claim still valid after the listing, no newer driver can have opened any of it."""
    left_open = broker.open_transactions()
    if left_open and broker.holds(claim):
        broker.abort(left_open)


def _finish(broker: TransactionalBroker, claim: Claim, entry: LedgerEntry) -> HeldClaim:
    broker.commit(entry.transactions)
    done = settle(entry)
    return HeldClaim(broker.write(claim, done), done)
