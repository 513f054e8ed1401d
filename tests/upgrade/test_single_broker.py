"""The data directory of a single broker that an earlier version has written: everything in it is there.

Each data set is opened by one broker, which the tests of it share in the order in which they stand: those that change
something come last.
"""

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from headrace import Client, QueueMessage
from headrace.testing.process import BrokerProcess
from headrace.wire import Cluster
from tests.interop import batches, raw_client, share_members
from tests.interop.share_members import acquired
from tests.upgrade.inventory import differences, sqs_client, stored_batches, take
from tests.upgrade.release import OPENING, unpack, versions
from tests.waiting import until

pytestmark = pytest.mark.xdist_group("upgrade")

DATA_SETS = [f"{version}/{name}" for version in versions() for name in ("single-stopped", "single-killed")]

KILLED = [name for name in DATA_SETS if name.endswith("killed")]


@dataclass(frozen=True)
class Opened:
    broker: BrokerProcess
    expected: dict[str, Any]

    @property
    def content(self) -> dict[str, Any]:
        found: dict[str, Any] = self.expected["content"]
        return found

    def take(self) -> dict[str, Any]:
        return take(self.broker.bootstrap, self.broker.http_url)

    def cluster(self) -> Cluster:
        return Cluster(self.broker.bootstrap)

    def client(self) -> Client:
        return Client(self.broker.bootstrap, http=self.broker.http_url)


@pytest.fixture(scope="module", params=DATA_SETS)
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    version, _, name = request.param.partition("/")
    folder = tmp_path_factory.mktemp(name)
    expected = unpack(version, name, folder / "data")
    with BrokerProcess(folder / "data", settings=OPENING) as broker:
        yield Opened(broker, expected)


def test_everything_is_there_and_still_is_after_a_restart(opened: Opened) -> None:
    assert differences(opened.content, opened.take()) == []
    opened.broker.restart()
    assert differences(opened.content, opened.take()) == []
    assert "Traceback" not in opened.broker.stderr


def test_what_was_deleted_stays_deleted(opened: Opened) -> None:
    found = opened.take()
    assert set(found["topics"]) == set(opened.content["topics"])
    assert set(found["queues"]) == set(opened.content["queues"])
    assert set(found["groups"]) == set(opened.content["groups"])


@pytest.mark.parametrize("opened", KILLED, indirect=True, scope="module")
def test_a_batch_that_is_sent_again_is_known(opened: Opened) -> None:
    """Where the log is read after a kill, its producers are as young as the read. What a clean stop has stored of them
    expires after 24 days at the latest: `test_stored_formats.py` reads that."""
    known = opened.expected["duplicate"]
    with raw_client.Connection(opened.broker.bootstrap) as connection:
        answer = raw_client.produce(connection, known["topic"], base64.b64decode(known["batch"]))
        assert (answer.error_code, answer.base_offset) == (raw_client.Error.none, known["offset"])
        assert raw_client.offset_at(connection, known["topic"], -1).offset == known["offset"] + 1


def test_no_producer_id_is_given_out_again(opened: Opened) -> None:
    given = {each["producer id"] for each in opened.content["transactions"].values()}
    given.add(opened.expected["duplicate"]["producer id"])
    with opened.cluster() as cluster:
        assert cluster.init_producer_id().producer_id > max(given)
        # A transactional id goes on with the id it had, and fences whoever had it.
        assert cluster.init_producer_id("open").producer_id == opened.content["transactions"]["open"]["producer id"]


def test_a_share_group_delivers_what_was_not_accepted(opened: Opened) -> None:
    share = opened.expected["share"]
    with opened.cluster() as cluster:
        topic_id = cluster.metadata([share["topic"]])[share["topic"]].topic_id
    assert topic_id is not None
    member = share_members.Member(opened.broker.bootstrap, share["group"], topic_id)
    try:
        assert member.beat(0, [share["topic"]]).error_code is raw_client.Error.none
        got: dict[str, int] = {}

        def fetch_all() -> bool:
            for first, last, count in acquired(member.fetch(max_wait=100)):
                got.update({str(offset): count for offset in range(first, last + 1)})
            return len(got) == len(share["left"])

        until(fetch_all, lambda: f"only {got} came", timeout_s=30)
        assert got == share["left"]
        assert acquired(member.fetch(max_wait=100)) == []
    finally:
        member.close()


def test_messages_are_received_by_priority(opened: Opened) -> None:
    messages = opened.content["queues"]["urgent"]["messages"]
    with opened.client() as client:
        got = client.queue("urgent").receive(max=100, wait=10)
        assert [each.text for each in got] == [
            each["body"] for each in sorted(messages, key=lambda each: (-each["priority"], each["offset"]))
        ]


def test_messages_of_a_group_are_received_in_order(opened: Opened) -> None:
    messages = opened.content["queues"]["orders.fifo"]["messages"]
    with opened.client() as client:
        queue = client.queue("orders.fifo")
        got: list[QueueMessage] = []
        while some := queue.receive(max=100, wait=0.2 if len(got) == len(messages) else 10):
            got += some
            for each in some:
                each.ack().result()
    for group in {each["group"] for each in messages}:
        expected = [(each["body"], each["attempt"] + 1) for each in messages if each["group"] == group]
        assert [(each.text, each.attempt) for each in got if each.group == group] == expected


def test_messages_are_received_once_more_than_they_were(opened: Opened) -> None:
    messages = [each for each in opened.content["queues"]["jobs"]["messages"] if each["state"] == "available"]
    with opened.client() as client:
        got = client.queue("jobs").receive(max=100, wait=10)
        assert {each.id: (each.text, each.attempt) for each in got} == {
            each["id"]: (each["body"], each["attempt"] + 1) for each in messages
        }
        for each in got:
            each.ack().result()
        assert [each.text for each in client.queue("jobs").peek(10)] == ["not in this century"]


def test_attributes_of_messages_come_over_the_sqs_api(opened: Opened) -> None:
    sqs = sqs_client(opened.broker.http_url)
    url = sqs.get_queue_url(QueueName="sqs-mail")["QueueUrl"]
    (message,) = sqs.receive_message(
        QueueUrl=url, MessageAttributeNames=["All"], MessageSystemAttributeNames=["All"], WaitTimeSeconds=10
    )["Messages"]
    assert message["MessageAttributes"]["Author"] == {"StringValue": "Zoë", "DataType": "String"}
    assert message["MessageAttributes"]["Raw"] == {"BinaryValue": b"\x00\xff", "DataType": "Binary"}
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
    assert message["MessageId"] == opened.content["queues"]["sqs-mail"]["messages"][0]["id"]


def test_dead_letters_go_back_to_where_they_came_from(opened: Opened) -> None:
    dead = opened.content["queues"]["mails-dead"]["messages"]
    chosen = [each for each in dead if "Timeout" in each["origin"]["reason"]]
    assert 0 < len(chosen) < len(dead)
    with opened.client() as client:
        move = client.queue("mails-dead").redrive(reason_contains="Timeout")
        move.wait(30)
        assert (move.status, move.moved) == ("COMPLETED", len(chosen))
        back = {each.id: each.text for each in client.queue("mails").peek(100)}
        assert {each["id"]: each["body"] for each in chosen}.items() <= back.items()
        assert len(client.queue("mails-dead").peek(100)) == len(dead) - len(chosen)


def test_compaction_goes_on(opened: Opened) -> None:
    (partition,) = opened.content["topics"]["compacted"]["partitions"]
    before = [record for batch in partition["batches"] for record in batch["records"]]
    latest = {record[2]: record[3] for record in before}
    with opened.cluster() as cluster:
        cluster.set_topic_settings("compacted", {"min.cleanable.dirty.ratio": "0.01"})

        def left() -> list[list[Any]]:
            stored = stored_batches(cluster, "compacted", 0, partition["start"], partition["end"])
            return [record for batch in stored for record in batch["records"]]

        # The active segment stays as it is.
        until(lambda: len(left()) <= len(latest) + 6, lambda: f"{len(left())} records are left", timeout_s=30)
        assert {record[2]: record[3] for record in left()} == latest


def test_committed_records_can_be_added(opened: Opened) -> None:
    """What comes now goes behind what is there, in a new transaction."""
    end = opened.content["topics"]["txn"]["partitions"][0]["end"]
    with opened.cluster() as cluster:
        producer = cluster.init_producer_id("ended")
        batch = batches.batch(
            [b"later"],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=0,
            attributes=0x10,
        )
        assert cluster.produce({("txn", 0): batch}, transactional_id="ended") == {("txn", 0): end}
        cluster.end_txn("ended", producer, committed=True)
        assert cluster.list_offsets([("txn", 0)], isolation=1)[("txn", 0)].offset == end + 2
