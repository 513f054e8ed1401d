"""The transaction coordinator's decisions, one by one."""

from collections.abc import Callable
from typing import Any

import pytest

from headrace.coordinator.formats import Format
from headrace.coordinator.machine import InternalRecord, Outcome
from headrace.model.errors import (
    ConcurrentTransactions,
    CorruptBatch,
    HeadraceError,
    InvalidProducerMapping,
    InvalidTransaction,
    InvalidTransactionTimeout,
    SupersededProducer,
    TransactionAbortable,
)
from headrace.model.ids import NO_PRODUCER, ProducerIdAndEpoch
from headrace.transactions.kafka_records import KafkaTransactionFormat
from headrace.transactions.machine import LAST_EPOCH, NO_TIMEOUT_MS, TransactionMachine
from headrace.transactions.records import MsgpackTransactionFormat, TransactionEntry
from headrace.transactions.states import TRANSITIONS, TransactionState

NOW = 1_700_000_000_000
PLACES = (("a", 0), ("b", 1))
ID = "billing"


class Bench:
    """A machine whose records are replayed at once."""

    def __init__(self) -> None:
        self.machine = TransactionMachine(max_timeout_ms=900_000)
        self.fresh = 100
        self.written: list[InternalRecord] = []

    def run(self, outcome: Outcome[Any, Any]) -> Any:
        for record in outcome.records:
            self.written += self.machine.encode(record)
            self.machine.apply(record, -1)
        return outcome.answer

    @property
    def now(self) -> TransactionEntry:
        return self.machine.transactions[ID]

    def init(self, claimed: ProducerIdAndEpoch = NO_PRODUCER, timeout_ms: int = 60_000) -> Any:
        self.fresh += 1
        return self.run(self.machine.init(ID, timeout_ms, claimed, self.fresh, NOW))

    def resume(self, claimed: ProducerIdAndEpoch = NO_PRODUCER, *, two_phase: bool = True) -> Any:
        self.fresh += 1
        return self.run(self.machine.resume(ID, 60_000, claimed, self.fresh, NOW, two_phase=two_phase))

    def add(self, producer: ProducerIdAndEpoch) -> None:
        self.run(self.machine.add(ID, producer, PLACES, NOW))

    def end(self, producer: ProducerIdAndEpoch, *, committed: bool = True, bumps: bool = False) -> Any:
        self.fresh += 1
        return self.run(
            self.machine.end(
                ID, producer, committed=committed, bumps_epoch=bumps, fresh_producer_id=self.fresh, now_ms=NOW
            )
        )

    def complete(self) -> None:
        self.run(self.machine.complete(ID, NOW))

    def put(self, **fields: Any) -> None:
        """Make up a state."""
        base = {
            "producer_id": 7,
            "producer_epoch": 3,
            "state": TransactionState.EMPTY,
            "timeout_ms": 1000,
            "updated_ms": NOW,
        }
        self.machine.apply((ID, TransactionEntry(**{**base, **fields})), -1)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def refused(error: type[HeadraceError], ask: Callable[[], Any], bench: Bench) -> None:
    before = len(bench.written)
    with pytest.raises(error):
        ask()
    assert len(bench.written) == before


@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_of_an_older_client_keeps_its_epoch(bench: Bench, committed: bool) -> None:
    producer = bench.init()
    assert producer == (101, 0)
    bench.add(producer)
    assert bench.now.state is TransactionState.ONGOING
    assert bench.end(producer, committed=committed) == producer
    assert bench.now.state is (TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT)
    assert bench.now.partitions == set(PLACES)
    bench.complete()
    assert bench.now.state is (TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT)
    assert (bench.now.partitions, bench.now.started_ms) == (frozenset(), -1)
    assert bench.end(producer, committed=committed) == producer, "a retry"
    refused(InvalidTransaction, lambda: bench.end(producer, committed=not committed), bench)
    bench.add(producer)
    assert bench.now.state is TransactionState.ONGOING


@pytest.mark.parametrize("committed", [True, False])
def test_transaction_version_2_moves_the_epoch_with_each_end(bench: Bench, committed: bool) -> None:
    producer = bench.init()
    bench.add(producer)
    after = bench.end(producer, committed=committed, bumps=True)
    assert after == (101, 1)
    assert bench.now.producer_epoch == 1, "markers carry the new epoch, and fence the old one"
    refused(ConcurrentTransactions, lambda: bench.end(producer, committed=committed, bumps=True), bench)
    refused(InvalidTransaction, lambda: bench.end(producer, committed=not committed, bumps=True), bench)
    bench.complete()
    assert bench.end(producer, committed=committed, bumps=True) == after, "a retry with the old epoch"
    refused(InvalidTransaction, lambda: bench.end(producer, committed=not committed, bumps=True), bench)
    refused(SupersededProducer, lambda: bench.add(producer), bench)
    bench.add(after)
    refused(SupersededProducer, lambda: bench.end(producer, committed=committed, bumps=True), bench)


def test_an_abort_of_nothing_moves_the_epoch_in_version_2_only(bench: Bench) -> None:
    producer = bench.init()
    refused(InvalidTransaction, lambda: bench.end(producer, committed=False), bench)
    refused(InvalidTransaction, lambda: bench.end(producer, committed=True, bumps=True), bench)
    assert bench.end(producer, committed=False, bumps=True) == (101, 1)
    bench.complete()
    assert bench.now.state is TransactionState.COMPLETE_ABORT


def test_when_epochs_run_out_version_2_goes_on_with_a_new_id(bench: Bench) -> None:
    last = ProducerIdAndEpoch(7, LAST_EPOCH - 1)
    bench.put(producer_epoch=last.epoch)
    bench.add(last)
    fresh = bench.end(last, bumps=True)
    assert fresh == (bench.fresh, 0)
    assert (bench.now.producer_id, bench.now.producer_epoch) == (7, LAST_EPOCH), "for the markers"
    bench.complete()
    assert (bench.now.producer_id, bench.now.producer_epoch) == fresh
    assert bench.end(last, bumps=True) == fresh, "a retry with the old id"
    assert bench.init(claimed=last) == fresh, "that is how a client may ask again, too"
    bench.add(fresh)
    refused(InvalidProducerMapping, lambda: bench.end(last, bumps=True), bench)


def test_a_new_instance_fences_its_predecessor(bench: Bench) -> None:
    old = bench.init()
    new = bench.init()
    assert new == (101, 1)
    for ask in (lambda: bench.add(old), lambda: bench.end(old), lambda: bench.init(claimed=old)):
        refused(SupersededProducer, ask, bench)
    bench.add(new)


def test_a_new_instance_aborts_what_its_predecessor_left_open(bench: Bench) -> None:
    old = bench.init()
    bench.add(old)
    assert bench.init() is None
    assert (bench.now.state, bench.now.producer_epoch) == (TransactionState.PREPARE_ABORT, 1)
    refused(ConcurrentTransactions, bench.init, bench)
    refused(SupersededProducer, lambda: bench.end(old), bench)
    bench.complete()
    assert bench.init() == (101, 2)


def test_a_producer_that_names_itself_gets_the_next_epoch_once(bench: Bench) -> None:
    first = bench.init()
    second = bench.init(claimed=first)
    assert second == (101, 1)
    assert bench.init(claimed=first) == second, "the answer was lost, and it asks again"
    assert bench.init(claimed=second) == (101, 2)
    refused(SupersededProducer, lambda: bench.init(claimed=first), bench)
    refused(SupersededProducer, lambda: bench.init(claimed=ProducerIdAndEpoch(99, 0)), bench)


def test_a_stale_producer_does_not_abort_what_a_newer_one_has_open(bench: Bench) -> None:
    old = bench.init()
    new = bench.init()
    bench.add(new)
    refused(SupersededProducer, lambda: bench.init(claimed=old), bench)
    assert bench.init(claimed=new) is None, "but it may do so itself"
    bench.complete()
    assert bench.init(claimed=new) == (101, 2)


def test_epochs_that_run_out_by_new_instances_give_a_new_id(bench: Bench) -> None:
    bench.put(producer_epoch=LAST_EPOCH - 1)
    assert bench.init(claimed=ProducerIdAndEpoch(7, LAST_EPOCH - 1)) == (bench.fresh, 0)
    assert bench.init(claimed=ProducerIdAndEpoch(7, LAST_EPOCH - 1)).epoch == 0, "a retry"
    bench.put(producer_epoch=LAST_EPOCH - 1, state=TransactionState.ONGOING, started_ms=NOW)
    assert bench.init() is None
    bench.complete()
    assert bench.init() == (bench.fresh, 0)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_timeouts_have_a_limit(bench: Bench, timeout_ms: int) -> None:
    refused(InvalidTransactionTimeout, lambda: bench.init(timeout_ms=timeout_ms), bench)


def test_a_transaction_is_aborted_when_its_time_is_up(bench: Bench) -> None:
    producer = bench.init(timeout_ms=1000)
    bench.add(producer)
    assert bench.run(bench.machine.abort_overdue(ID, NOW + 999)) is False
    assert bench.run(bench.machine.abort_overdue(ID, NOW + 1000)) is True
    assert (bench.now.state, bench.now.producer_epoch) == (TransactionState.PREPARE_ABORT, 1)
    refused(SupersededProducer, lambda: bench.end(producer), bench)
    bench.complete()
    refused(SupersededProducer, lambda: bench.init(claimed=producer), bench)
    assert bench.run(bench.machine.abort_overdue(ID, NOW + 5000)) is False


def test_in_two_phase_commit_a_transaction_has_no_time_limit(bench: Bench) -> None:
    producer = bench.run(bench.machine.init(ID, 10**9, NO_PRODUCER, 101, NOW, two_phase=True))
    bench.add(producer)
    assert bench.run(bench.machine.abort_overdue(ID, NOW + 10 * NO_TIMEOUT_MS)) is False
    assert bench.now.state is TransactionState.ONGOING
    assert bench.init() is None, "an instance that does not ask to keep it aborts it"
    bench.complete()
    bench.init(timeout_ms=1000)
    assert bench.now.timeout_ms == 1000, "asked for by each instance anew"


@pytest.mark.parametrize("bumps", [True, False])
@pytest.mark.parametrize("committed", [True, False])
def test_a_newer_instance_takes_over_an_open_transaction_as_it_is(bench: Bench, committed: bool, bumps: bool) -> None:
    producer = bench.init(timeout_ms=1000)
    bench.add(producer)
    resumed = bench.resume()
    assert resumed == (ProducerIdAndEpoch(101, 1), producer)
    assert (bench.now.state, bench.now.partitions) == (TransactionState.ONGOING, set(PLACES))
    assert bench.run(bench.machine.abort_overdue(ID, NOW + 10**6)) is False, "it has no time limit any more"
    refused(SupersededProducer, lambda: bench.end(producer), bench)
    refused(SupersededProducer, lambda: bench.add(producer), bench)
    refused(SupersededProducer, lambda: bench.resume(producer), bench)
    again = bench.resume(resumed.producer, two_phase=False)
    assert again == (ProducerIdAndEpoch(101, 2), producer), "who began it is told however often it is taken over"
    assert bench.now.timeout_ms == 60_000
    after = bench.end(again.producer, committed=committed, bumps=bumps)
    bench.complete()
    assert bench.now.state is (TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT)
    assert bench.end(again.producer, committed=committed, bumps=bumps) == after, "a retry"
    assert bench.resume().ongoing == NO_PRODUCER


def test_taking_over_may_be_asked_for_again(bench: Bench) -> None:
    producer = bench.init()
    bench.add(producer)
    resumed = bench.resume(producer)
    before = len(bench.written)
    assert bench.resume(producer) == resumed
    assert len(bench.written) == before
    bench.add(resumed.producer)
    bench.end(resumed.producer)
    bench.complete()
    refused(SupersededProducer, lambda: bench.init(producer), bench)


def test_there_may_be_nothing_to_take_over(bench: Bench) -> None:
    assert bench.resume() == (ProducerIdAndEpoch(101, 0), NO_PRODUCER)
    assert bench.resume() == (ProducerIdAndEpoch(101, 1), NO_PRODUCER)
    producer = bench.init()
    bench.add(producer)
    bench.end(producer)
    refused(ConcurrentTransactions, bench.resume, bench)


def test_a_transaction_can_be_taken_over_where_epochs_have_run_out(bench: Bench) -> None:
    bench.put(
        producer_epoch=LAST_EPOCH - 1, state=TransactionState.ONGOING, started_ms=NOW, partitions=frozenset(PLACES)
    )
    last = ProducerIdAndEpoch(7, LAST_EPOCH - 1)
    assert bench.resume() == (last, last)
    assert bench.end(last, bumps=True) == (bench.fresh, 0)


def test_only_partitions_of_an_open_transaction_are_verified(bench: Bench) -> None:
    producer = bench.init()
    with pytest.raises(TransactionAbortable):
        bench.machine.verify(ID, producer, PLACES[0])
    bench.add(producer)
    bench.machine.verify(ID, producer, PLACES[0])
    with pytest.raises(TransactionAbortable):
        bench.machine.verify(ID, producer, ("c", 0))
    with pytest.raises(SupersededProducer):
        bench.machine.verify(ID, ProducerIdAndEpoch(101, 1), PLACES[0])
    with pytest.raises(InvalidProducerMapping):
        bench.machine.verify(ID, ProducerIdAndEpoch(5, 0), PLACES[0])
    with pytest.raises(InvalidProducerMapping):
        bench.machine.verify("other", producer, PLACES[0])
    bench.end(producer)
    with pytest.raises(ConcurrentTransactions):
        bench.machine.verify(ID, producer, PLACES[0])
    bench.complete()
    with pytest.raises(TransactionAbortable):
        bench.machine.verify(ID, producer, PLACES[0])


def test_adding_the_same_again_writes_nothing(bench: Bench) -> None:
    producer = bench.init()
    bench.add(producer)
    before = len(bench.written)
    bench.add(producer)
    assert len(bench.written) == before


def test_ids_that_nobody_uses_are_forgotten_unless_something_is_open(bench: Bench) -> None:
    producer = bench.init()
    assert list(bench.machine.expired(NOW)) == []
    assert list(bench.machine.expired(NOW + 1)) == [ID]
    bench.add(producer)
    assert list(bench.machine.expired(NOW + 1)) == []
    assert bench.machine.forget(ID, NOW + 1).records == ()
    bench.end(producer)
    bench.complete()
    bench.run(bench.machine.forget(ID, NOW + 1))
    assert ID not in bench.machine.transactions
    refused(InvalidProducerMapping, lambda: bench.add(producer), bench)


@pytest.mark.parametrize("form", [MsgpackTransactionFormat(), KafkaTransactionFormat()])
def test_records_read_back_and_unknown_ones_are_refused(form: Format[str, TransactionEntry]) -> None:
    transaction = TransactionEntry(1, 2, TransactionState.ONGOING, 3, 4, 5, frozenset(PLACES), 6, 7, 8, True, 9)
    for value in (transaction, TransactionEntry(1, 2, TransactionState.EMPTY, 3, 4), None):
        (written,) = form.write(ID, value)
        assert form.read(written) == (ID, value)
    (written,) = form.write(ID, transaction)
    for newer in (b"\x92\xa5txn-2\x01", b"\x00\x02" + bytes(40)):
        with pytest.raises(CorruptBatch):
            form.read(written._replace(value=newer))


def test_a_decided_transaction_can_only_complete() -> None:
    assert TRANSITIONS[TransactionState.PREPARE_COMMIT] == {TransactionState.COMPLETE_COMMIT}
    assert TRANSITIONS[TransactionState.PREPARE_ABORT] == {TransactionState.COMPLETE_ABORT}
    assert set(TRANSITIONS) == set(TransactionState)
