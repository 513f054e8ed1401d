"""A broker for one sink: the real decisions of the transaction coordinator over lists instead of logs.

Every call of the protocol is one step, or several where a broker would be asked several times; a `Plan` may stop the
caller before or after a step takes effect, or let somebody else run in between.
"""

from collections.abc import Callable, Sequence
from typing import Any

from headrace.coordinator.machine import Outcome
from headrace.model.errors import HeadraceError
from headrace.model.ids import NO_PRODUCER, ProducerIdAndEpoch
from headrace.pipelines.sink.ledger import (
    LedgerEntry,
    OpenTransaction,
    from_bytes,
    ledger_transactional_id,
    task_prefix,
    to_bytes,
)
from headrace.pipelines.sink.two_phase import Claim, RowsLost, SinkFenced, TransactionExpired
from headrace.transactions.machine import TransactionMachine
from headrace.transactions.states import DECIDED, TransactionState

SINK = "out"
TIMEOUT_MS = 900_000
LEDGER = ledger_transactional_id(SINK)


class Killed(BaseException):
    """The process is gone: nothing of it runs any more."""


class Cluster:
    """What outlives every process."""

    def __init__(self, *, bumps_epoch: bool, has_two_phase: bool) -> None:
        self.machine = TransactionMachine(TIMEOUT_MS)
        self.bumps_epoch = bumps_epoch
        self.has_two_phase = has_two_phase
        self.now_ms = 1_000
        self.visible: list[Any] = []
        self.ledger: list[bytes] = []
        self._written: dict[str, list[Any]] = {}
        self._next_id = 100

    def run(self, outcome: Outcome[Any, Any]) -> Any:
        for record in outcome.records:
            self.machine.apply(record, -1)
        for name, transaction in tuple(self.machine.transactions.items()):
            if transaction.state in DECIDED:
                rows = self._written.pop(name, [])
                if transaction.state is TransactionState.PREPARE_COMMIT:
                    (self.ledger if name == LEDGER else self.visible).extend(rows)
                self.run(self.machine.complete(name, self.now_ms))
        return outcome.answer

    def fresh_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def init(self, name: str, claimed: ProducerIdAndEpoch = NO_PRODUCER) -> ProducerIdAndEpoch:
        for _ in range(2):
            answer = self.run(self.machine.init(name, TIMEOUT_MS, claimed, self.fresh_id(), self.now_ms))
            if isinstance(answer, ProducerIdAndEpoch):
                return answer
        raise AssertionError("an aborted transaction was not completed")

    def write(self, name: str, producer: ProducerIdAndEpoch, row: Any) -> None:
        self.run(self.machine.add(name, producer, [("t", 0)], self.now_ms))
        self._written.setdefault(name, []).append(row)

    def end(self, name: str, producer: ProducerIdAndEpoch, *, committed: bool) -> ProducerIdAndEpoch:
        return self.run(
            self.machine.end(
                name,
                producer,
                committed=committed,
                bumps_epoch=self.bumps_epoch,
                fresh_producer_id=self.fresh_id(),
                now_ms=self.now_ms,
            )
        )

    def pass_time(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        for name in tuple(self.machine.transactions):
            self.run(self.machine.abort_overdue(name, self.now_ms))

    def open_ids(self) -> list[str]:
        return [name for name, each in self.machine.transactions.items() if each.state is TransactionState.ONGOING]


class Process:
    """The broker as one process sees it: `Broker` of `two_phase.py`, and what a task does."""

    def __init__(self, cluster: Cluster, at_step: Callable[[int, str], None] = lambda step, when: None) -> None:
        self.cluster = cluster
        self.at_step = at_step
        self.steps = 0

    def _step(self, effect: Callable[[], Any]) -> Any:
        number = self.steps
        self.steps += 1
        self.at_step(number, "before")
        answer = effect()
        self.at_step(number, "after")
        return answer

    # -- the driver

    def open_transactions(self) -> Sequence[OpenTransaction]:
        known = self.cluster.machine.transactions

        def look() -> list[OpenTransaction]:
            return [
                OpenTransaction(name, known[name].producer_id, known[name].producer_epoch)
                for name in self.cluster.open_ids()
                if name.startswith(task_prefix(SINK))
            ]

        return self._step(look)

    def claim(self, held: Claim | None) -> Claim:
        claimed = NO_PRODUCER if held is None else ProducerIdAndEpoch(held.producer_id, held.epoch)
        try:
            return Claim(*self._step(lambda: self.cluster.init(LEDGER, claimed)))
        except HeadraceError as error:
            raise SinkFenced(str(error)) from error

    def holds(self, claim: Claim) -> bool:
        def look() -> bool:
            known = self.cluster.machine.transactions[LEDGER]
            return (known.producer_id, known.producer_epoch) == (claim.producer_id, claim.epoch)

        return self._step(look)

    def read(self) -> LedgerEntry | None:
        return self._step(lambda: from_bytes(self.cluster.ledger[-1]) if self.cluster.ledger else None)

    def write(self, claim: Claim, entry: LedgerEntry) -> Claim:
        producer = ProducerIdAndEpoch(claim.producer_id, claim.epoch)
        try:
            self._step(lambda: self.cluster.write(LEDGER, producer, to_bytes(entry)))
            return Claim(*self._step(lambda: self.cluster.end(LEDGER, producer, committed=True)))
        except HeadraceError as error:
            raise SinkFenced(str(error)) from error

    def prepare(self, transactions: Sequence[OpenTransaction]) -> Sequence[OpenTransaction]:
        return [self._step(lambda each=each: self._prepare(each)) for each in transactions]  # type: ignore[misc]

    def _prepare(self, transaction: OpenTransaction) -> OpenTransaction:
        name, *who = transaction.transactional_id, transaction.producer_id, transaction.epoch
        known = self.cluster.machine.transactions[name]
        if not self.cluster.has_two_phase:
            is_ours = known.state is TransactionState.ONGOING and [known.producer_id, known.producer_epoch] == who
            if not is_ours or known.started_ms + TIMEOUT_MS - self.cluster.now_ms < TIMEOUT_MS // 3:
                raise TransactionExpired(name)
            return transaction
        try:
            resumed = self.cluster.run(
                self.cluster.machine.resume(name, 1, ProducerIdAndEpoch(*who), 0, self.cluster.now_ms, two_phase=True)
            )
        except HeadraceError as error:
            raise TransactionExpired(str(error)) from error
        if resumed.ongoing != tuple(who):
            raise TransactionExpired(name)
        return OpenTransaction(name, *resumed.producer)

    def commit(self, transactions: Sequence[OpenTransaction]) -> None:
        for each in transactions:
            try:
                self._end(each, committed=True)
            except HeadraceError as error:
                raise RowsLost(str(error)) from error

    def abort(self, transactions: Sequence[OpenTransaction]) -> None:
        for each in transactions:
            try:
                self._end(each, committed=False)
            except HeadraceError:
                continue

    def _end(self, transaction: OpenTransaction, *, committed: bool) -> None:
        producer = ProducerIdAndEpoch(transaction.producer_id, transaction.epoch)
        self._step(lambda: self.cluster.end(transaction.transactional_id, producer, committed=committed))

    # -- a task

    def begin(self, name: str) -> OpenTransaction:
        return OpenTransaction(name, *self._step(lambda: self.cluster.init(name)))

    def put(self, transaction: OpenTransaction, row: Any) -> None:
        producer = ProducerIdAndEpoch(transaction.producer_id, transaction.epoch)
        try:
            self._step(lambda: self.cluster.write(transaction.transactional_id, producer, row))
        except HeadraceError as error:
            raise SinkFenced(str(error)) from error
