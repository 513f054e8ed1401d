"""Transactions to the letter: every version of every API of theirs, and what real clients do not do."""

import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import pytest

from . import batches, raw_client, subject
from .subject import Subject

Error = raw_client.Error
T = TypeVar("T")
TRANSACTIONAL = 0x10
TIMEOUT_MS = 60_000


def patiently(ask: Callable[[], T], is_early: Callable[[T], bool]) -> T:
    """What is answered. Apache Kafka completes a transaction behind the answer to EndTxn: ask again meanwhile."""
    end = time.monotonic() + (0 if subject.IS_HEADRACE else 10)
    while is_early(answer := ask()) and time.monotonic() < end:
        time.sleep(0.02)
    return answer


def is_concurrent(code: Error) -> bool:
    """Whether Apache Kafka means "not yet"."""
    return code in (Error.concurrent_transactions, Error.not_coordinator, Error.coordinator_load_in_progress)


class Producer:
    """A transactional producer that says exactly what the test wants it to."""

    def __init__(self, connection: raw_client.Connection, topic: str, name: str | None = None) -> None:
        self.connection = connection
        self.topic = topic
        self.name = name or f"txn-{uuid.uuid4().hex[:8]}"
        self.id = self.epoch = -1
        self.sequence = 0
        connection.call(raw_client.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=[self.name])
        connection.call(raw_client.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["group"])

    @property
    def who(self) -> dict[str, Any]:
        return {"transactional_id": self.name, "producer_id": self.id, "producer_epoch": self.epoch}

    def init(self, *args: Any, **fields: Any) -> Error:
        return patiently(lambda: self._init(*args, **fields), is_concurrent)

    def _init(
        self,
        version: int = 5,
        *,
        timeout_ms: int = TIMEOUT_MS,
        claimed: tuple[int, int] = (-1, -1),
        **fields: bool,
    ) -> Error:
        answer = self.connection.call(
            raw_client.INIT_PRODUCER_ID,
            version,
            transactional_id=self.name,
            transaction_timeout=timeout_ms,
            producer_id=claimed[0],
            producer_epoch=claimed[1],
            **fields,
        )
        if answer.error_code == Error.none:
            self.id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        return answer.error_code

    def add(self, *args: Any, **fields: Any) -> Error:
        return patiently(lambda: self._add(*args, **fields), is_concurrent)

    def _add(self, version: int = 3, *, topic: str | None = None, index: int = 0, verify_only: bool = False) -> Error:
        topics = [{"name": topic or self.topic, "partitions": [index]}]
        if version >= 4:
            answer = self.connection.call(
                raw_client.ADD_PARTITIONS_TO_TXN,
                version,
                transactions=[{**self.who, "verify_only": verify_only, "topics": topics}],
            )
            results = answer.results_by_transaction[0].topic_results
        else:
            who = {f"v3_and_below_{name}": value for name, value in self.who.items()}
            answer = self.connection.call(
                raw_client.ADD_PARTITIONS_TO_TXN, version, {**who, "v3_and_below_topics": topics}
            )
            results = answer.results_by_topic_v3_and_below
        return results[0].results_by_partition[0].partition_error_code

    def produce(self, *args: Any, **fields: Any) -> Error:
        return patiently(lambda: self._produce(*args, **fields), is_concurrent)

    def _produce(self, value: bytes, version: int = 9) -> Error:
        batch = batches.batch(
            [value],
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            attributes=TRANSACTIONAL,
        )
        topic_id = raw_client.wait_topic(self.connection, self.topic, 1)
        body = raw_client.produce_body(self.topic, batch, topic_id=topic_id)
        answer = self.connection.call(raw_client.PRODUCE, version, {**body, "transactional_id": self.name})
        code: Error = answer.responses[0].partition_responses[0].error_code
        if code == Error.none:
            self.sequence += 1
        return code

    def end(self, *args: Any, **fields: Any) -> Error:
        return patiently(lambda: self._end(*args, **fields), is_concurrent)

    def _end(self, version: int = 3, *, committed: bool = True) -> Error:
        answer = self.connection.call(raw_client.END_TXN, version, {**self.who, "committed": committed})
        if answer.error_code == Error.none and version >= 5:
            self.id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        return answer.error_code

    def add_offsets(self, *args: Any, **fields: Any) -> Error:
        return patiently(lambda: self._add_offsets(*args, **fields), is_concurrent)

    def _add_offsets(self, version: int = 3, group: str = "group") -> Error:
        answer = self.connection.call(raw_client.ADD_OFFSETS_TO_TXN, version, {**self.who, "group_id": group})
        return answer.error_code

    def commit_offset(self, *args: Any, **fields: Any) -> Error:
        return patiently(lambda: self._commit_offset(*args, **fields), is_concurrent)

    def _commit_offset(self, version: int = 3, *, offset: int = 1, group: str = "group") -> Error:
        place = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1}
        answer = self.connection.call(
            raw_client.TXN_OFFSET_COMMIT,
            version,
            {
                **self.who,
                "group_id": group,
                "generation_id": -1,
                "topics": [{"name": self.topic, "partitions": [{**place, "committed_metadata": "m"}]}],
            },
        )
        return answer.topics[0].partitions[0].error_code

    def committed_offset(self, group: str = "group") -> int:
        def ask() -> Any:
            return self.connection.call(
                raw_client.OFFSET_FETCH,
                7,
                group_id=group,
                topics=[{"name": self.topic, "partition_indexes": [0]}],
                require_stable=True,
            )

        answer = patiently(ask, lambda one: one.topics[0].partitions[0].error_code == Error.unstable_offset_commit)
        part = answer.topics[0].partitions[0]
        assert part.error_code == Error.none
        return part.committed_offset


def fetch_stable(connection: raw_client.Connection, topic: str) -> Any:
    """A read_committed fetch of everything, once nothing is open."""
    return patiently(
        lambda: raw_client.fetch(connection, topic, 0, isolation_level=1),
        lambda found: found.last_stable_offset < found.high_watermark,
    )


def visible(connection: raw_client.Connection, topic: str, *, is_open: bool = False) -> list[bytes | None]:
    """What a consumer of read_committed keeps: the broker's list of aborted transactions applied by hand."""
    found = raw_client.fetch(connection, topic, 0, isolation_level=1) if is_open else fetch_stable(connection, topic)
    waiting = sorted((one.first_offset, one.producer_id) for one in found.aborted_transactions or ())
    dropping: set[int] = set()
    values: list[bytes | None] = []
    for batch in batches.parse(found.records):
        while waiting and waiting[0][0] <= batch.base_offset:
            dropping.add(waiting.pop(0)[1])
        if batch.attributes & 0x20:
            dropping.discard(batch.producer_id)
        elif not (batch.attributes & TRANSACTIONAL and batch.producer_id in dropping):
            values += [record.value for record in batch.records]
    return values


@pytest.fixture
def producer(connection: raw_client.Connection, topic: str) -> Producer:
    one = Producer(connection, topic)
    assert one.init() == Error.none
    return one


@pytest.mark.parametrize("version", range(6))
def test_init_in_every_version(connection: raw_client.Connection, topic: str, version: int) -> None:
    producer = Producer(connection, topic)
    assert producer.init(version) == Error.none
    first = (producer.id, producer.epoch)
    assert producer.init(version) == Error.none
    assert (producer.id, producer.epoch) == (first[0], first[1] + 1)
    if version >= 3:
        fenced = Error.producer_fenced if version >= 4 else Error.invalid_producer_epoch
        assert producer.init(version, claimed=first) == fenced
    assert producer.init(version, timeout_ms=10**9) == Error.invalid_transaction_timeout


@pytest.mark.skipif(not subject.IS_HEADRACE, reason="Apache Kafka 4.1 does not offer two-phase commit")
@pytest.mark.parametrize("committed", [True, False])
def test_two_phase_commit(producer: Producer, committed: bool) -> None:
    assert producer.produce(b"staged", 12) == Error.none

    def resume(**fields: Any) -> Any:
        return producer.connection.call(
            raw_client.INIT_PRODUCER_ID,
            6,
            transactional_id=producer.name,
            transaction_timeout=TIMEOUT_MS,
            keep_prepared_txn=True,
            **fields,
        )

    taken = resume(enable2_pc=True)
    assert (taken.error_code, taken.producer_id, taken.producer_epoch) == (Error.none, producer.id, producer.epoch + 1)
    assert (taken.ongoing_txn_producer_id, taken.ongoing_txn_producer_epoch) == (producer.id, producer.epoch)
    assert producer.end(5) == Error.producer_fenced
    assert producer.produce(b"late", 12) == Error.invalid_producer_epoch
    (described,) = producer.connection.call(
        raw_client.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[producer.name]
    ).transaction_states
    assert described.transaction_state == "Ongoing"
    assert described.transaction_timeout == timedelta(milliseconds=2**31 - 1)
    producer.epoch = taken.producer_epoch
    assert producer.end(5, committed=committed) == Error.none
    assert visible(producer.connection, producer.topic) == ([b"staged"] if committed else [])
    taken = resume()
    assert (taken.ongoing_txn_producer_id, taken.ongoing_txn_producer_epoch) == (-1, -1)


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_in_every_version(producer: Producer, version: int, committed: bool) -> None:
    for number in range(3):
        value = b"%d" % number
        epoch = producer.epoch
        assert producer.add(version) == Error.none
        assert producer.produce(value, 9 if version < 5 else 13) == Error.none
        assert value not in visible(producer.connection, producer.topic, is_open=True), "still open"
        assert producer.end(version, committed=committed) == Error.none
        assert producer.epoch == (epoch + 1 if version >= 5 else epoch)
        assert (value in visible(producer.connection, producer.topic)) is committed


@pytest.mark.parametrize("version", [12, 13])
def test_transaction_version_2_adds_partitions_by_writing(producer: Producer, version: int) -> None:
    assert producer.produce(b"a", version) == Error.none
    assert producer.produce(b"b", version) == Error.none
    assert producer.end(5) == Error.none
    assert visible(producer.connection, producer.topic) == [b"a", b"b"]


def test_the_end_may_be_asked_for_again_with_the_old_epoch(producer: Producer) -> None:
    assert producer.produce(b"a", 12) == Error.none
    before = producer.epoch
    assert producer.end(5) == Error.none
    after, producer.epoch = producer.epoch, before
    assert producer.end(5) == Error.none
    assert producer.epoch == after
    producer.epoch = before
    assert producer.end(5, committed=False) == Error.invalid_txn_state
    assert producer.produce(b"late", 12) == Error.invalid_producer_epoch


def test_an_older_client_must_name_its_partitions(producer: Producer) -> None:
    assert producer.produce(b"a", 9) == Error.invalid_txn_state
    assert producer.produce(b"a", 11) == Error.transaction_abortable
    assert producer.add() == Error.none
    assert producer.produce(b"a", 9) == Error.none
    assert producer.end() == Error.none
    assert producer.produce(b"b", 9) == Error.invalid_txn_state, "the transaction is over"
    assert producer.add(topic="no-such-topic") == Error.unknown_topic_or_partition


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_may_ask_whether_a_partition_is_part_of_a_transaction(producer: Producer, version: int) -> None:
    assert producer.add(version, verify_only=True) == Error.transaction_abortable
    assert producer.add(version) == Error.none
    assert producer.add(version, verify_only=True) == Error.none
    producer.epoch += 1
    assert producer.add(version, verify_only=True) == Error.producer_fenced
    producer.id += 1
    assert producer.add(version, verify_only=True) == Error.invalid_producer_id_mapping


@pytest.mark.parametrize("version", range(6))
def test_a_fenced_producer_changes_nothing_in_any_version(producer: Producer, version: int) -> None:
    assert producer.add() == Error.none
    assert producer.produce(b"zombie") == Error.none
    assert Producer(producer.connection, producer.topic, producer.name).init() == Error.none
    fenced = Error.producer_fenced if version >= 2 else Error.invalid_producer_epoch
    assert producer.add(version) == fenced
    assert producer.end(version) == fenced
    assert producer.add_offsets(min(version, 4)) == fenced
    assert producer.commit_offset(version) == Error.invalid_producer_epoch
    for produce_version in (9, 11, 12):
        assert producer.produce(b"zombie", produce_version) == Error.invalid_producer_epoch
    assert visible(producer.connection, producer.topic) == []


@pytest.mark.parametrize("version", range(6))
def test_offsets_count_when_the_transaction_is_committed(producer: Producer, version: int) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    if version < 5:
        refused = Error.invalid_txn_state if version < 4 else Error.transaction_abortable
        assert producer.commit_offset(version, group=group) == refused
        assert producer.add_offsets(min(version, 4), group) == Error.none
    assert producer.commit_offset(version, offset=5, group=group) == Error.none
    answer = producer.connection.call(
        raw_client.OFFSET_FETCH,
        7,
        group_id=group,
        topics=[{"name": producer.topic, "partition_indexes": [0]}],
        require_stable=True,
    )
    assert answer.topics[0].partitions[0].error_code == Error.unstable_offset_commit
    assert producer.end(min(version, 4)) == Error.none
    assert producer.committed_offset(group) == 5
    assert producer.add_offsets(4, group) == Error.none
    assert producer.commit_offset(3, offset=9, group=group) == Error.none
    assert producer.end(committed=False) == Error.none
    assert producer.committed_offset(group) == 5


def test_wrong_ids_are_told_apart(producer: Producer) -> None:
    assert producer.end() == Error.invalid_txn_state
    stranger = Producer(producer.connection, producer.topic)
    stranger.id, stranger.epoch = producer.id, producer.epoch
    assert stranger.add() == Error.invalid_producer_id_mapping
    assert stranger.end() == Error.invalid_producer_id_mapping
    assert stranger.produce(b"x", 12) == Error.invalid_producer_id_mapping
    stranger.name = ""
    assert stranger.add() == Error.invalid_request
    assert stranger.end() == Error.invalid_request
    assert stranger.add_offsets() == Error.invalid_request


@pytest.mark.parametrize("version", [1, 2])
def test_an_administrator_ends_a_transaction_without_its_coordinator(
    broker: Subject, producer: Producer, version: int
) -> None:
    if version > raw_client.advertised(broker.bootstrap)[raw_client.WRITE_TXN_MARKERS][1]:
        pytest.skip("this version of Apache Kafka does not have it")
    assert producer.init() == Error.none
    assert producer.add() == Error.none
    assert producer.produce(b"hangs") == Error.none
    marker = {
        "producer_id": producer.id,
        "producer_epoch": producer.epoch,
        "transaction_result": False,
        "topics": [{"name": producer.topic, "partition_indexes": [0, 7]}],
        "coordinator_epoch": 0,
    }
    answer = producer.connection.call(raw_client.WRITE_TXN_MARKERS, version, markers=[marker])
    found = {part.partition_index: part.error_code for part in answer.markers[0].topics[0].partitions}
    assert found == {0: Error.none, 7: Error.unknown_topic_or_partition}
    assert fetch_stable(producer.connection, producer.topic).last_stable_offset == 2
    stale = {
        **marker,
        "producer_epoch": producer.epoch - 1,
        "topics": [{"name": producer.topic, "partition_indexes": [0]}],
    }
    answer = producer.connection.call(raw_client.WRITE_TXN_MARKERS, version, markers=[stale])
    assert answer.markers[0].topics[0].partitions[0].error_code == Error.invalid_producer_epoch


def test_producers_and_transactions_are_described(producer: Producer) -> None:
    assert producer.add() == Error.none
    assert producer.produce(b"v") == Error.none
    connection = producer.connection
    topics = [{"name": producer.topic, "partition_indexes": [0, 9]}]
    parts = connection.call(raw_client.DESCRIBE_PRODUCERS, 0, topics=topics).topics[0].partitions
    assert [part.error_code for part in parts] == [Error.none, Error.unknown_topic_or_partition]
    (state,) = parts[0].active_producers
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (producer.id, producer.epoch, 0)
    assert state.current_txn_start_offset == 0
    assert abs(state.last_timestamp - time.time() * 1000) < 60_000
    states = connection.call(raw_client.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[producer.name, "nobody"])
    known, unknown = states.transaction_states
    assert (known.error_code, known.transaction_state) == (Error.none, "Ongoing")
    assert [(topic.topic, topic.partitions) for topic in known.topics] == [(producer.topic, (0,))]
    assert abs(known.transaction_start_time.timestamp() - time.time()) < 60
    assert unknown.error_code == Error.transactional_id_not_found
    assert producer.end() == Error.none


@pytest.mark.parametrize("version", range(3))
def test_transactions_are_listed(producer: Producer, version: int) -> None:
    assert producer.add() == Error.none

    def listed(**filters: Any) -> list[str]:
        body = {"duration_filter": -1, **filters}
        answer = producer.connection.call(raw_client.LIST_TRANSACTIONS, version, body)
        assert answer.error_code == Error.none
        return [one.transactional_id for one in answer.transaction_states]

    assert producer.name in listed()
    assert producer.name in listed(state_filters=["Ongoing"], producer_id_filters=[producer.id])
    assert producer.name not in listed(state_filters=["Empty"])
    assert producer.name not in listed(producer_id_filters=[producer.id + 10_000])
    if version >= 1:
        assert producer.name not in listed(duration_filter=60_000)
        assert producer.name in listed(duration_filter=0)
    if version >= 2:
        assert listed(transactional_id_pattern=f"{producer.name[:-1]}.") == [producer.name]
        assert listed(transactional_id_pattern="txn") == [], "the whole id must match"
        answer = producer.connection.call(raw_client.LIST_TRANSACTIONS, version, transactional_id_pattern="(")
        assert answer.error_code == Error.invalid_regular_expression
    answer = producer.connection.call(
        raw_client.LIST_TRANSACTIONS, version, state_filters=["Sleeping"], duration_filter=-1
    )
    assert answer.unknown_state_filters == ("Sleeping",)
    assert producer.end(committed=False) == Error.none


def test_the_feature_is_announced(broker: Subject) -> None:
    with raw_client.Connection(broker.bootstrap) as connection:
        answer = connection.call(raw_client.API_VERSIONS, 4, client_software_name="wire", client_software_version="1")
        levels = {one.name: one.max_version_level for one in answer.finalized_features}
        assert levels["transaction.version"] == 2
        assert "transaction.version" in {one.name for one in answer.supported_features}
