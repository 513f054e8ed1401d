"""Rounds of work in which everything that is created is deleted again: topics, groups and queues."""

import http.client
import json
from typing import Any

from confluent_kafka import Consumer, Producer

from headrace import Client
from tests.interop import batches, raw_client, share_members
from tests.interop.classic_members import Member
from tests.interop.share_members import ACCEPT, acquired, configure, unset, until_acquired

GROUP_TOPICS = 20
"""The topics that one group consumes."""
QUEUES = 10


class Churn:
    """One client, whose names are never used twice."""

    def __init__(self, bootstrap: str, http_url: str, topics: int) -> None:
        self._bootstrap = bootstrap
        self._http_address = http_url.removeprefix("http://")
        self._topics = topics
        self._rounds = 0

    def leave_a_message(self) -> None:
        """A queue that stays, with a message."""
        connection = http.client.HTTPConnection(self._http_address, timeout=60)
        url = _ask(connection, "CreateQueue", QueueName="stays")["QueueUrl"]
        _ask(connection, "SendMessage", QueueUrl=url, MessageBody="x")
        connection.close()

    def round(self) -> None:
        self._rounds += 1
        topics = [f"churn-{self._rounds}-{number}" for number in range(self._topics)]
        with raw_client.Connection(self._bootstrap) as connection:
            create(connection, topics)
            for topic in topics:
                sent = raw_client.produce(connection, topic, batches.batch([b"x" * 100] * 10))
                assert sent.error_code == raw_client.Error.none
                assert raw_client.fetch(connection, topic).high_watermark == 10
            raw_client.until_coordinated(connection)
            groups = [self._consume(topics[at : at + GROUP_TOPICS]) for at in range(0, len(topics), GROUP_TOPICS)]
            self._use_queues()
            groups += [self._use_librdkafka(topics[0]), self._share(connection, topics[0])]
            self._use_sdk()
            for one in connection.call(raw_client.DELETE_GROUPS, 2, groups_names=groups).results:
                assert one.error_code == raw_client.Error.none
            delete(connection, topics)

    def _consume(self, topics: list[str]) -> str:
        """A group joins, commits all of these topics, and is left."""
        member = Member(self._bootstrap, f"of-{topics[0]}", 5)
        try:
            assert member.join().error_code == raw_client.Error.none
            assert member.sync().error_code == raw_client.Error.none
            for topic in topics:
                assert member.commit(topic, 10, 8) == raw_client.Error.none
            assert member.leave() == raw_client.Error.none
        finally:
            member.connection.close()
        return member.group

    def _use_librdkafka(self, topic: str) -> str:
        """An idempotent producer, a transaction, and a group that reads it and commits in it; the group."""
        servers, group = {"bootstrap.servers": self._bootstrap}, f"group-{topic}"
        producer = Producer(servers | {"enable.idempotence": True})
        producer.produce(topic, b"x")
        assert producer.flush(60) == 0
        consumer = Consumer(servers | {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False})
        consumer.subscribe([topic])
        (message,) = consumer.consume(1, 60)
        assert message.error() is None
        transactional = Producer(servers | {"transactional.id": f"id-{topic}"})
        transactional.init_transactions(60)
        transactional.begin_transaction()
        transactional.produce(topic, b"y")
        offsets = consumer.position(consumer.assignment())
        transactional.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 60)
        transactional.commit_transaction(60)
        consumer.close()
        return group

    def _share(self, connection: raw_client.Connection, topic: str) -> str:
        """A share group reads a topic, accepts a record, and is left; the group."""
        group = f"share-{topic}"
        configure(connection, group, "share.auto.offset.reset", "earliest")
        described = connection.call(raw_client.METADATA, 12, topics=[{"topic_id": None, "name": topic}])
        member = share_members.Member(self._bootstrap, group, described.topics[0].topic_id)
        try:
            assert member.beat(0, [topic]).error_code == raw_client.Error.none
            first, _, _ = acquired(until_acquired(member))[0]
            assert member.acknowledge((first, first, ACCEPT)).error_code == raw_client.Error.none
            assert member.beat(-1).error_code == raw_client.Error.none
        finally:
            member.close()
        unset(connection, group, "share.auto.offset.reset")
        return group

    def _use_sdk(self) -> None:
        """A queue and a topic of the SDK."""
        with Client(self._bootstrap) as client:
            queue = client.queue(f"sdk-{self._rounds}").create()
            queue.send("x")
            message = next(iter(queue.receive(wait=5)))
            message.ack().result(60)
            queue.delete()

    def _use_queues(self) -> None:
        connection = http.client.HTTPConnection(self._http_address, timeout=60)
        for number in range(QUEUES):
            fifo = {"FifoQueue": "true"} if number % 2 else {}
            name = f"churn-{self._rounds}-{number}" + (".fifo" if fifo else "")
            url = _ask(connection, "CreateQueue", QueueName=f"queue-{name}", Attributes=fifo)["QueueUrl"]
            ids = {"MessageGroupId": "g", "MessageDeduplicationId": "d"} if fifo else {}
            _ask(connection, "SendMessage", QueueUrl=url, MessageBody="x" * 100, **ids)
            (message,) = _ask(connection, "ReceiveMessage", QueueUrl=url, WaitTimeSeconds=5)["Messages"]
            _ask(connection, "DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            _ask(connection, "DeleteQueue", QueueUrl=url)
        connection.close()


def create(connection: raw_client.Connection, topics: list[str]) -> None:
    wanted = [{"name": topic, "num_partitions": 1, "replication_factor": 1, "configs": []} for topic in topics]
    for one in connection.call(raw_client.CREATE_TOPICS, 7, topics=wanted, timeout=60_000).topics:
        assert one.error_code == raw_client.Error.none, one
    for topic in topics:
        raw_client.wait_topic(connection, topic, 1)


def delete(connection: raw_client.Connection, topics: list[str]) -> None:
    wanted = [{"name": topic} for topic in topics]
    for one in connection.call(raw_client.DELETE_TOPICS, 6, topics=wanted, timeout=60_000).responses:
        assert one.error_code == raw_client.Error.none, one


def _ask(connection: http.client.HTTPConnection, action: str, **fields: Any) -> Any:
    """One request to the SQS API."""
    connection.request("POST", "/", json.dumps(fields).encode(), {"X-Amz-Target": f"AmazonSQS.{action}"})
    response = connection.getresponse()
    content = response.read()
    assert response.status == 200, content[:500]
    return json.loads(content or b"{}")
