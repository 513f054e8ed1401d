"""Each check can fail: given what it rules out, it says so. `test_planted.py` shows that they find real bugs."""

from collections.abc import Iterable
from uuid import UUID

import pytest

from headrace.cluster import layout
from headrace.cluster.store import Change, Revision
from headrace.model.ids import BrokerId, LeaderEpoch, PartitionIndex, TopicId, TopicName
from headrace.model.image import PartitionState, TopicImage
from headrace.records.batch import read_header
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.replication.partition import Partition
from headrace.testing.logs import LogBench
from headrace.testing.sim.checks import Checks, Violation
from headrace.testing.sim.clients import ACKS_ALL, Place, SimRead, SimSend

PLACE: Place = ("orders", 0)


class Broker:
    """A broker with one partition, led or followed."""

    def __init__(self, broker_id: int, values: Iterable[bytes] = (), *, epoch: int = 1, leads: bool = False) -> None:
        self.broker_id = BrokerId(broker_id)
        self.is_up = True
        self.lease_epoch = 7
        self.bench = LogBench()
        for value in values:
            self.write(value)
        self.partition = Partition(
            TopicName("orders"),
            PartitionIndex(0),
            TopicId(UUID(int=7)),
            self.bench.log,
            LeaderEpoch(epoch),
            appended=lambda log: None,
            broker_id=self.broker_id,
            high_watermark=0,
        )
        self.partition.replica.is_leader = leads

    def write(self, value: bytes) -> None:
        batch = build_batch([Record(0, 1_700_000_000_000, None, value)])
        self.bench.log.append(batch, read_header(batch), 0)
        self.bench.flush()

    def hosted(self) -> Iterable[Partition]:
        return (self.partition,)


def _state(isr: tuple[int, ...], leader: int, epoch: int, partition_epoch: int) -> PartitionState:
    return PartitionState(
        BrokerId(leader),
        LeaderEpoch(epoch),
        tuple(map(BrokerId, isr)),
        (BrokerId(1), BrokerId(2), BrokerId(3)),
        partition_epoch,
    )


def _put(checks: Checks, state: PartitionState) -> None:
    topic = TopicImage(TopicName("orders"), TopicId(UUID(int=7)), (state,))
    revision = Revision(checks.image.revision + 1)
    change = Change(layout.topic_key("orders"), layout.encode_topic(topic), revision)
    checks.committed_in_store(revision, (change,))


def _checks(*brokers: Broker) -> Checks:
    checks = Checks(["orders"])
    checks.brokers = {broker.broker_id: broker for broker in brokers}
    return checks


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        (_state((1, 2), 1, 0, 0), _state((1, 4), 1, 0, 1), "not a replica"),
        (_state((1, 2), 1, 0, 0), _state((2,), 1, 0, 1), "10: the leader is not in sync"),
        (_state((1, 2), 1, 0, 0), _state((), -1, 1, 1), "the ISR is empty"),
        (_state((1, 2), 1, 0, 0), _state((2, 3), 3, 1, 1), "10: a leader was elected from outside"),
        (_state((1, 2), 1, 1, 0), _state((1, 2), 2, 1, 1), "11: a new leader in the same epoch"),
        (_state((1, 2), 1, 1, 0), _state((1, 2), 2, 0, 1), "epoch went back"),
    ],
)
def test_states_that_may_not_follow_each_other(before: PartitionState, after: PartitionState, what: str) -> None:
    checks = _checks()
    _put(checks, before)
    with pytest.raises(Violation, match=what):
        _put(checks, after)


def test_a_state_is_written_over_a_newer_one() -> None:
    checks = _checks()
    _put(checks, _state((1, 2, 3), 1, 0, 0))
    key = layout.partition_key(UUID(int=7), 0)

    def write(state: PartitionState) -> None:
        revision = Revision(checks.image.revision + 1)
        checks.committed_in_store(revision, (Change(key, layout.encode_partition(state), revision),))

    write(_state((1, 2), 1, 0, 1))
    write(_state((2,), 2, 1, 2))
    with pytest.raises(Violation, match=r"11: .* is at partition epoch 2, and was overwritten"):
        write(_state((1, 3), 1, 0, 2))


def test_a_clean_election_and_a_change_of_who_is_in_sync_are_fine() -> None:
    checks = _checks()
    _put(checks, _state((1, 2, 3), 1, 0, 0))
    _put(checks, _state((2, 3), 2, 1, 1))
    _put(checks, _state((2, 3), -1, 2, 2))
    _put(checks, _state((1, 2, 3), 2, 3, 3))
    assert checks.counts["elections"] == 2
    assert checks.counts["isr changes"] == 2


def test_somebody_joins_without_having_everything() -> None:
    leader, late = Broker(1, [b"p/0", b"p/1"], leads=True), Broker(2, [b"p/0"])
    checks = _checks(leader, late)
    _put(checks, _state((1,), 1, 1, 1))
    leader.partition.log.restore_high_watermark(2)
    checks.stepped(leader)
    with pytest.raises(Violation, match="1: broker 2 is in sync with 1"):
        _put(checks, _state((1, 2), 1, 1, 2))


def test_the_high_watermark_passes_somebody_who_is_in_sync() -> None:
    leader, other = Broker(1, [b"p/0", b"p/1"], leads=True), Broker(2, [b"p/0"])
    checks = _checks(leader, other)
    _put(checks, _state((1, 2), 1, 1, 1))
    leader.partition.log.restore_high_watermark(1)
    checks.stepped(leader)
    leader.partition.log.restore_high_watermark(2)
    with pytest.raises(Violation, match="1: broker 2 is in sync with 1"):
        checks.stepped(leader)


def test_the_high_watermark_of_a_leader_goes_back() -> None:
    leader = Broker(1, [b"p/0", b"p/1"], leads=True)
    checks = _checks(leader)
    leader.partition.log.restore_high_watermark(2)
    checks.stepped(leader)
    leader.partition.log.restore_high_watermark(1)
    with pytest.raises(Violation, match="went back from 2 to 1"):
        checks.stepped(leader)


def test_two_brokers_lead_one_epoch() -> None:
    one, other = Broker(1, leads=True), Broker(2, leads=True)
    checks = _checks(one, other)
    checks.stepped(one)
    with pytest.raises(Violation, match="11: broker 1 has led this epoch"):
        checks.stepped(other)


def test_a_leader_begins_without_what_is_committed() -> None:
    one, other = Broker(1, [b"p/0", b"p/1"], leads=True), Broker(2, [b"p/0"], epoch=2, leads=True)
    checks = _checks(one, other)
    one.partition.log.restore_high_watermark(2)
    checks.stepped(one)
    with pytest.raises(Violation, match="1: a leader begins with a log up to 1, 2 is committed"):
        checks.stepped(other)


def test_a_leader_begins_with_something_else_than_what_is_committed() -> None:
    one, other = Broker(1, [b"p/0"], leads=True), Broker(2, [b"q/0"], epoch=2, leads=True)
    checks = _checks(one, other)
    one.partition.log.restore_high_watermark(1)
    checks.stepped(one)
    with pytest.raises(Violation, match="5, 14: the batch at 0"):
        checks.stepped(other)


def test_a_follower_takes_for_committed_what_no_leader_has() -> None:
    follower = Broker(2, [b"p/0"])
    checks = _checks(follower)
    follower.partition.log.restore_high_watermark(1)
    with pytest.raises(Violation, match="5: a follower's high watermark is 1"):
        checks.stepped(follower)


def test_a_value_is_committed_twice() -> None:
    leader = Broker(1, [b"p/0", b"p/0"], leads=True)
    checks = _checks(leader)
    leader.partition.log.restore_high_watermark(2)
    with pytest.raises(Violation, match="4: b'p/0' was committed at 0 and again at 1"):
        checks.stepped(leader)


def _committed(*values: bytes) -> Checks:
    leader = Broker(1, values, leads=True)
    checks = _checks(leader)
    _put(checks, _state((1,), 1, 1, 1))
    leader.partition.log.restore_high_watermark(len(values))
    checks.stepped(leader)
    return checks


def test_an_acknowledgement_of_what_is_not_committed() -> None:
    checks = _committed(b"p/0")
    with pytest.raises(Violation, match="11: broker 1 acknowledged"):
        checks.acked(SimSend(PLACE, "p", 1, (b"p/1",), ACKS_ALL, offset=1), 1)
    with pytest.raises(Violation, match="11: broker 1 acknowledged"):
        checks.acked(SimSend(PLACE, "q", 1, (b"q/1",), ACKS_ALL, offset=0), 1)


def test_a_reader_skips_goes_back_or_reads_something_else() -> None:
    checks = _committed(b"p/0", b"p/1", b"p/2")
    checks.read(SimRead(PLACE, 0, b"p/0", "c"))
    with pytest.raises(Violation, match="6: c read offset 2"):
        checks.read(SimRead(PLACE, 2, b"p/2", "c"))
    with pytest.raises(Violation, match="6: c read offset 0"):
        checks.read(SimRead(PLACE, 0, b"p/0", "c"))
    with pytest.raises(Violation, match="5: c read"):
        checks.read(SimRead(PLACE, 1, b"x/1", "c"))


def test_acknowledged_batches_are_forgotten() -> None:
    with pytest.raises(Violation, match="4: broker 1 does not know"):
        _committed(b"p/0").forgotten(SimSend(PLACE, "p", 1, (b"p/1",), ACKS_ALL), 1)


def test_a_broker_without_a_lease_acknowledges_what_only_it_has() -> None:
    broker = Broker(1, [b"p/0"], leads=True)
    checks = _checks(broker)
    _put(checks, _state((2, 3), 2, 2, 2))
    with pytest.raises(Violation, match="11: broker 1 acknowledged offset 0"):
        checks.answered_alone(broker, PLACE, 0)


def test_at_the_end_everything_is_everywhere_and_in_order() -> None:
    brokers = [Broker(number, [b"p/0", b"p/1"]) for number in (1, 2, 3)]
    brokers[0].partition.replica.is_leader = True
    checks = _checks(*brokers)
    _put(checks, _state((1, 2, 3), 1, 1, 1))
    for broker in brokers:
        broker.partition.log.restore_high_watermark(2)
        checks.stepped(broker)
    checks.check_end(checks.brokers)
    brokers[0].partition.log.restore_high_watermark(1)
    with pytest.raises(Violation, match="2: 2 records are committed"):
        checks.check_end(checks.brokers)


def test_a_producers_order_is_not_kept() -> None:
    checks = _committed(b"p/1", b"p/0")
    with pytest.raises(Violation, match="7: b'p/0'"):
        checks.check_end(checks.brokers)
