"""The two-phase commit of a batch: which steps, in which order, and why a stop between any two of them is safe.

A batch of a query is written by tasks, each in a transaction that it leaves open, and then by the driver:

    take over   before the tasks: claim the ledger, which fences every older driver; finish what it says; abort the rest
    stage       each task: write the rows, leave the transaction open
    prepare     each transaction is taken from its task as it is, and has no time limit from here on
    decide      write the entry that names them: the commit point
    end         commit each of them
    settle      write that it is done
    sweep       abort what attempts at tasks left open that were not taken

Stopped before the commit point, the next take-over finds open transactions that the ledger does not name, and aborts
them; the batch is redone. Stopped after it, the take-over commits each of those that the ledger names (asking again for
what was done changes nothing), and the batch is skipped when it is redone.

Who may do harm, and why it cannot:
- An older driver that is still alive: its entries are refused, because it does not have the ledger's epoch any more.
- An older driver that cleans up: it aborts by producer and epoch what was open *before* its own claim. What tasks of a
  newer driver opened since has another epoch.
- A second attempt at a task, or a task of an older driver: it has a transactional id of its own. These are used again
  several claims later, so a task asks whether its claim still holds before it touches one. What it leaves open is
  aborted by the next take-over, or when its time is up.
- Time: a transaction that expired is found by `prepare`, before the decision, and the batch is redone. Prepared, it
  does not expire. On brokers without two-phase commit, `prepare` asks for enough time left instead; then a transaction
  that is gone after the decision is told as `RowsLost`, never passed over.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from headrace.model.errors import HeadraceError
from headrace.pipelines.sink.ledger import LedgerEntry, OpenTransaction, decide, has_decided, settle


class SinkError(HeadraceError):
    """A sentence for whoever runs the pipeline."""


class Superseded(SinkError):
    """A newer driver has the sink."""


class Expired(SinkError):
    """A transaction was gone before the decision; the batch has to be done again."""


class RowsLost(SinkError):
    """A transaction was gone after the decision; the rows in it are missing."""


class Claim(NamedTuple):
    """The right to write the ledger's next entry, for as long as nobody newer claims it."""

    producer_id: int
    epoch: int
    sequence: int = 0
    """Of the next entry."""


class TransactionalBroker(Protocol):
    """What the protocol needs of a broker, for one sink. Each call is done when it returns, and may be asked again."""

    def open_transactions(self) -> Sequence[OpenTransaction]:
        """Those of the sink's tasks that are open now, prepared or not."""
        ...

    def claim(self, held: Claim | None) -> Claim:
        """Fence whoever else has the ledger, and abort an entry that it is writing.

        With `held`, only if that claim is still the newest: `Superseded` if not.
        """
        ...

    def holds(self, claim: Claim) -> bool:
        """Whether nobody has claimed the ledger since."""
        ...

    def read(self) -> LedgerEntry | None:
        """The sink's entry. To be asked with a claim: what is there cannot change any more but by its holder."""
        ...

    def write(self, claim: Claim, entry: LedgerEntry) -> Claim:
        """Write the entry, or raise `Superseded`; the claim to write the next one with."""
        ...

    def prepare(self, transactions: Sequence[OpenTransaction]) -> Sequence[OpenTransaction]:
        """Take them over as they are, so that they neither expire nor listen to their tasks; `Expired` if one is gone.

        Who can end them from now on.
        """
        ...

    def commit(self, transactions: Sequence[OpenTransaction]) -> None:
        """Commit each; one that is committed already is fine, one that was aborted is `RowsLost`."""
        ...

    def abort(self, transactions: Sequence[OpenTransaction]) -> None:
        """Abort each, unless it has ended or has gone on with another epoch."""
        ...


class HeldClaim(NamedTuple):
    """A claim with the entry as it is."""

    claim: Claim
    entry: LedgerEntry | None


def take_over(broker: TransactionalBroker, held: Claim | None = None) -> HeldClaim:
    """Become the one who decides for a sink: everything that was left is finished or aborted when this returns.

    What is open is looked at before the claim: everything seen then belongs to a driver that is fenced by the claim, or
    is named by the entry that is read after it.
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
    """Make the rows of a batch visible, all of them or none, once."""
    transactions = tuple(staged)
    if not transactions or has_decided(held.entry, query, batch):
        return
    prepared = tuple(broker.prepare(transactions))
    entry = decide(held.entry, query, batch, prepared)
    claim = broker.write(held.claim, entry)
    _sweep(broker, _finish(broker, claim, entry).claim)


def abandon(broker: TransactionalBroker, claim: Claim) -> None:
    """After a failure of a task or of `commit`: abort what is not decided, finish what is."""
    try:
        take_over(broker, held=claim)
    except Superseded:
        return  # Whoever has the sink now has done it.


def _sweep(broker: TransactionalBroker, claim: Claim) -> None:
    """Abort what is open, unless somebody newer may have opened it: who claims the ledger after this look did not."""
    left_open = broker.open_transactions()
    if left_open and broker.holds(claim):
        broker.abort(left_open)


def _finish(broker: TransactionalBroker, claim: Claim, entry: LedgerEntry) -> HeldClaim:
    broker.commit(entry.transactions)
    done = settle(entry)
    return HeldClaim(broker.write(claim, done), done)
