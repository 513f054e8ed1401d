"""The two-phase commit of a sink against a real broker, without Spark: stopped at every step, with a broker that is
killed at every step, with zombies, and with transactions that expire."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from headrace.cli.errors import CommandFailed
from headrace.cli.pipeline.background import _end_what_is_open, stop_pipeline
from headrace.model.ids import ProducerIdAndEpoch
from headrace.pipelines.control.folder import StateFolder
from headrace.pipelines.control.topic_sinks import clean_up
from headrace.pipelines.sink.broker import WireBroker
from headrace.pipelines.sink.ledger import (
    LEDGER_TOPIC,
    LedgerEntry,
    OpenTransaction,
    has_decided,
    task_transactional_id,
)
from headrace.pipelines.sink.two_phase import (
    Claim,
    RowsLost,
    SinkFenced,
    TransactionExpired,
    abandon,
    commit,
    take_over,
)
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.wire import Cluster
from tests.interop import subject
from tests.interop.subject import IS_HEADRACE, Subject
from tests.pipelines.committed import read_committed
from tests.pipelines.crashing import DECIDING, CrashingCluster
from tests.waiting import until

TOPIC = "out"
PARTITIONS = 2
QUERY = "query"
TIMEOUT_MS = 60_000
_numbers = count()


class Killed(BaseException):
    """The driver is gone."""


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    """A broker that the tests of this module may kill."""
    if not subject.CAN_CONTROL:
        pytest.skip("needs a broker of its own, and the broker under test is not our process")
    process = subject.make(tmp_path_factory.mktemp("broker"))
    process.start()
    yield process
    process.close()


needs_two_phase = pytest.mark.skipif(not IS_HEADRACE, reason="Apache Kafka 4.1 does not offer two-phase commit")


def kill_and_start(process: Subject) -> None:
    process.kill()
    process.start()


class Hooked(CrashingCluster):
    """Does something at one step, the first time."""

    def __init__(self, sink_id: str, bootstrap: str, step: str = "", act: Callable[[], None] = lambda: None) -> None:
        super().__init__(sink_id, bootstrap)
        self._step = step
        self._act = act

    def _reach(self, step: str) -> None:
        if step == self._step:
            self._step = ""
            self._act()


class Sink:
    """A sink of its own, which writes the numbers 0 to 3 in batch 0, and so on, half of them in each partition."""

    def __init__(self, bootstrap: str, *, timeout_ms: int = TIMEOUT_MS) -> None:
        self.sink_id = f"sink-{next(_numbers)}"
        self.topic = f"{TOPIC}-{self.sink_id}"
        self.timeout_ms = timeout_ms
        self.cluster = Cluster(bootstrap)
        self.cluster.create_topic(self.topic, partitions=PARTITIONS)

    def broker(self, cluster: Cluster | None = None, *, skips_lost: bool = False) -> WireBroker:
        return WireBroker(cluster or self.cluster, self.sink_id, timeout_ms=self.timeout_ms, skips_lost=skips_lost)

    def stage(self, claim: Claim, batch: int, attempt: int = 0) -> list[OpenTransaction]:
        return [self.write(claim, batch, partition, attempt) for partition in range(PARTITIONS)]

    def write(self, claim: Claim, batch: int, partition: int, attempt: int = 0) -> OpenTransaction:
        name = task_transactional_id(self.sink_id, claim.epoch, partition, attempt)
        producer = self.cluster.init_producer_id(name, timeout_ms=self.timeout_ms)
        values = [b"%d" % (batch * 4 + partition * 2 + at) for at in range(2)]
        self.cluster.produce({(self.topic, partition): _batch(producer, values)}, transactional_id=name)
        return OpenTransaction(name, *producer)

    def run(self, batch: int, cluster: Cluster | None = None) -> None:
        """A batch, as a driver does it."""
        broker = self.broker(cluster)
        held = take_over(broker)
        staged = [] if has_decided(held.entry, QUERY, batch) else self.stage(held.claim, batch)
        commit(broker, held, QUERY, batch, staged)

    def check(self, batches: int) -> None:
        until(lambda: not self.open_ids("PrepareCommit", "PrepareAbort"))
        found = [
            int(value)
            for rows in read_committed(self.cluster, self.topic)
            for value in rows.column("value").to_pylist()
        ]
        assert sorted(found) == list(range(4 * batches))
        assert not self.open_ids("Ongoing")

    def open_ids(self, *states: str) -> set[str]:
        return {name for name in self.cluster.list_transactions(states) if f"/{self.sink_id}" in name}


def _batch(producer: ProducerIdAndEpoch, values: list[bytes]) -> bytes:
    return build_batch(
        [Record(0, 1, None, value) for value in values],
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=0,
        transactional=True,
    )


@pytest.fixture
def new_sink() -> Iterator[Callable[..., Sink]]:
    made: list[Sink] = []

    def make(process: Subject, **settings: int) -> Sink:
        made.append(Sink(process.bootstrap, **settings))
        return made[-1]

    yield make
    for sink in made:
        sink.cluster.close()


@pytest.fixture
def sink(process: Subject, new_sink: Callable[..., Sink]) -> Sink:
    return new_sink(process)


def die() -> None:
    raise Killed


@pytest.mark.parametrize("step", [step for step in DECIDING if IS_HEADRACE or step != "prepare:after"])
def test_a_driver_that_is_gone_at_a_step(process: Subject, sink: Sink, step: str) -> None:
    sink.run(0)
    with Hooked(sink.sink_id, process.bootstrap, step, die) as cluster, pytest.raises(Killed):
        sink.run(1, cluster)
    sink.run(1)
    sink.run(2)
    sink.check(3)


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(("prepare:after", "decide:written", "end:before"), id="some"),
        pytest.param(DECIDING, id="all", marks=[pytest.mark.slow, pytest.mark.timeout(300)]),
    ],
)
def test_a_broker_that_is_killed_at_steps(process: Subject, sink: Sink, steps: tuple[str, ...]) -> None:
    for batch, step in enumerate(steps):
        with Hooked(sink.sink_id, process.bootstrap, step, lambda: kill_and_start(process)) as cluster:
            sink.run(batch, cluster)
    sink.check(len(steps))


def test_a_newer_driver_fences_the_older(sink: Sink) -> None:
    broker = sink.broker()
    old = take_over(broker)
    staged = sink.stage(old.claim, 0)
    new = take_over(broker)
    assert not broker.holds(old.claim)
    assert broker.holds(new.claim)
    with pytest.raises(TransactionExpired):
        commit(broker, old, QUERY, 0, staged)
    with pytest.raises(SinkFenced):
        broker.write(old.claim, LedgerEntry(QUERY, 0, ()))
    abandon(broker, old.claim)
    assert broker.holds(new.claim), "a zombie cleans up nothing"
    commit(broker, new, QUERY, 0, sink.stage(new.claim, 0))
    sink.check(1)


def test_a_failed_batch_is_abandoned(sink: Sink) -> None:
    broker = sink.broker()
    held = take_over(broker)
    sink.stage(held.claim, 0)
    abandon(broker, held.claim)
    sink.check(0)


def test_a_query_that_was_killed_for_good_is_cleaned_up(process: Subject, sink: Sink) -> None:
    options = {"kafka.bootstrap.servers": process.bootstrap, "sinkId": sink.sink_id, "delivery": "exactly-once"}
    sink.stage(take_over(sink.broker()).claim, 7)
    clean_up(options)
    sink.check(0)
    with Hooked(sink.sink_id, process.bootstrap, "decide:after", die) as cluster, suppress(Killed):
        sink.run(0, cluster)
    clean_up(options)
    sink.check(1)


def test_stopping_a_pipeline_ends_what_it_left_open(process: Subject, sink: Sink, tmp_path: Path) -> None:
    folder = StateFolder.of(tmp_path, "revenue")
    folder.make()
    options = {"kafka.bootstrap.servers": process.bootstrap, "sinkId": sink.sink_id, "delivery": "exactly-once"}
    folder.write_sinks({"sink": {**options, "topic": sink.topic}, "other": {**options, "delivery": "at-least-once"}})
    sink.stage(take_over(sink.broker()).claim, 7)
    assert sink.open_ids("Ongoing")
    stop_pipeline("revenue", tmp_path)
    sink.check(0)
    with Hooked(sink.sink_id, process.bootstrap, "decide:after", die) as cluster, suppress(Killed):
        sink.run(0, cluster)
    with folder.run_lock.take("the pipeline"):
        _end_what_is_open(folder)
    assert sink.open_ids("Ongoing"), "it runs, and does so itself"
    stop_pipeline("revenue", tmp_path)
    sink.check(1)
    folder.write_sinks({"sink": {**options, "kafka.bootstrap.servers": "nowhere"}})
    with pytest.raises(CommandFailed, match="`headrace pipeline stop revenue` ends them once that is fixed"):
        stop_pipeline("revenue", tmp_path)


def test_a_commit_that_fails_after_the_decision_is_not_taken_back(process: Subject, sink: Sink) -> None:
    for step in ("decide:written", "decide:after", "end:after"):
        with Hooked(sink.sink_id, process.bootstrap, step, die) as cluster:
            broker = sink.broker(cluster)
            held = take_over(broker)
            with suppress(Killed):
                commit(broker, held, QUERY, 0, sink.stage(held.claim, 0))
        abandon(sink.broker(), held.claim)
        sink.run(0)
        sink.check(1)


def test_many_transactions_in_one_batch(sink: Sink) -> None:
    broker = sink.broker()
    held = take_over(broker)
    staged = [transaction for attempt in range(10) for transaction in sink.stage(held.claim, attempt, attempt)]
    commit(broker, held, QUERY, 0, staged)
    sink.check(10)


def test_an_entry_is_found_however_far_back_it_is(sink: Sink) -> None:
    broker = sink.broker()
    assert broker.read() is None
    sink.run(0)
    place = (LEDGER_TOPIC, broker._ledger_partition())
    noise = build_batch([Record(0, 1, b"somebody else %d" % number, b"{}") for number in range(3_000)])
    sink.cluster.produce({place: noise})
    entry = broker.read()
    assert entry is not None
    assert (entry.query, entry.batch, entry.settled) == (QUERY, 0, True)


def test_an_entry_that_somebody_is_writing_does_not_count_and_hides_nothing(sink: Sink) -> None:
    sink.run(0)
    broker = sink.broker()
    place = (LEDGER_TOPIC, broker._ledger_partition())
    other = sink.cluster.init_producer_id(f"other-{sink.sink_id}")
    entry = build_batch(
        [Record(0, 1, sink.sink_id.encode(), b'{"query":"query","batch":9,"transactions":[]}')],
        producer_id=other.producer_id,
        producer_epoch=other.epoch,
        base_sequence=0,
        transactional=True,
    )
    sink.cluster.produce({place: entry}, transactional_id=f"other-{sink.sink_id}")
    found = broker.read()
    assert found is not None
    assert found.batch == 0
    sink.run(1)
    assert sink.broker().read().batch == 1  # type: ignore[union-attr]
    sink.cluster.end_txn(f"other-{sink.sink_id}", other, committed=False)


def until_expired(sink: Sink, transactions: list[OpenTransaction]) -> None:
    names = {transaction.transactional_id for transaction in transactions}
    until(lambda: not names & sink.open_ids("Ongoing", "PrepareAbort"))


def test_a_transaction_that_expires_before_the_decision(process: Subject, new_sink: Callable[..., Sink]) -> None:
    sink = new_sink(process, timeout_ms=1_000)
    broker = sink.broker()
    held = take_over(broker)
    staged = sink.stage(held.claim, 0)
    until_expired(sink, staged)
    with pytest.raises(TransactionExpired, match="transactionTimeout"):
        commit(broker, held, QUERY, 0, staged)
    abandon(broker, held.claim)
    sink.timeout_ms = TIMEOUT_MS
    sink.run(0)
    sink.check(1)


@needs_two_phase
def test_a_decided_transaction_does_not_expire_while_the_driver_is_down(
    process: Subject, new_sink: Callable[..., Sink]
) -> None:
    sink = new_sink(process, timeout_ms=5_000)
    with Hooked(sink.sink_id, process.bootstrap, "decide:after", die) as cluster, pytest.raises(Killed):
        sink.run(0, cluster)
    time.sleep(6)  # Longer than the transactions would have been open.
    kill_and_start(process)
    sink.run(0)
    sink.check(1)


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Subject]:
    """A broker as others are: without two-phase commit."""
    off = {"transaction.two.phase.commit.enable": "false"}
    often = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
    process = subject.make(tmp_path, off if IS_HEADRACE else often)
    process.start()
    yield process
    process.close()


def test_without_two_phase_commit_a_loss_is_told_until_somebody_acts(
    plain: Subject, new_sink: Callable[..., Sink]
) -> None:
    sink = new_sink(plain, timeout_ms=9_000)
    sink.run(0)
    sink.check(1)
    with Hooked(sink.sink_id, plain.bootstrap, "decide:after", die) as cluster:
        broker = sink.broker(cluster)
        held = take_over(broker)
        staged = sink.stage(held.claim, 1)
        with pytest.raises(Killed):
            commit(broker, held, QUERY, 1, staged)
    until_expired(sink, staged)
    for _ in range(2):
        with pytest.raises(RowsLost, match="lostTransactions"):
            take_over(sink.broker())
    take_over(sink.broker(skips_lost=True))
    sink.check(1)
    broker = sink.broker()
    held = take_over(broker)
    staged = sink.stage(held.claim, 2)
    time.sleep(6.5)  # More than two thirds of the time are over.
    with pytest.raises(TransactionExpired, match="too little"):
        commit(broker, held, QUERY, 2, staged)
