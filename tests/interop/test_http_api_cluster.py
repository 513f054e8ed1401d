"""The HTTP API of a cluster of three brokers: any broker answers for all of them, also when one is down."""

import json
from collections.abc import Iterator
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headrace.testing.cluster import ClusterProcesses
from headrace.wire import Cluster, ConfigResource
from tests.waiting import until

from . import raw_client
from .batches import batch
from .quota_requests import alter, described


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    folder: Path = tmp_path_factory.mktemp("api")
    with ClusterProcesses(folder, brokers=3) as made:
        yield made


def ask(cluster: ClusterProcesses, broker: int, method: str, path: str, value: Any = None) -> tuple[int, Any]:
    connection = HTTPConnection(urlsplit(cluster.brokers[broker].http_url).netloc, timeout=60)
    try:
        body = None if method == "GET" else json.dumps(value).encode()
        connection.request(method, f"/api/v1{path}", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None
    finally:
        connection.close()


def done(cluster: ClusterProcesses, broker: int, method: str, path: str, value: Any = None) -> Any:
    status, answer = ask(cluster, broker, method, path, value)
    assert status < 300, answer
    return answer


def test_messages_of_partitions_that_other_brokers_lead(cluster: ClusterProcesses) -> None:
    done(cluster, 1, "POST", "/topics", {"name": "spread", "partitions": 6, "replicas": 1})
    for number in range(12):
        partition = number % 6
        sent = done(
            cluster, 1 + number % 3, "POST", "/topics/spread/messages", {"value": f"{number}", "partition": partition}
        )
        assert sent["partition"] == partition
    detail = until(lambda: _when_known(cluster, "spread"), "figures of all partitions")
    assert len({each["leader"] for each in detail["partitions"]}) == 3
    for broker in (1, 2, 3):
        page = done(cluster, broker, "GET", "/topics/spread/messages?from=earliest&limit=50")
        assert sorted(int(each["value"]) for each in page["items"]) == list(range(12))
        newest = done(cluster, broker, "GET", "/topics/spread/messages?limit=3&value_contains=1")
        assert [each["value"] for each in newest["items"]] == ["11", "10", "1"]


def _when_known(cluster: ClusterProcesses, topic: str) -> Any:
    detail = done(cluster, 1, "GET", f"/topics/{topic}")
    return detail if all(each["end_offset"] is not None for each in detail["partitions"]) else None


def test_metrics_that_clients_push_to_another_broker(cluster: ClusterProcesses) -> None:
    with Cluster(cluster.bootstrap) as admin:
        admin.alter_settings(ConfigResource.CLIENT_METRICS, "all", {"metrics": "*", "interval.ms": "200"})
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "client.id": "pushing"})
    producer.list_topics(timeout=60)

    def seen_by(broker: int) -> Any:
        items = done(cluster, broker, "GET", "/client-metrics?search=pushing")["items"]
        return next((each for each in items if each["values"]), None)

    found = [until(partial(seen_by, broker)) for broker in (1, 2, 3)]
    assert len({(each["client_instance_id"], each["broker_id"]) for each in found}) == 1
    for broker in (1, 2, 3):
        detail = done(cluster, broker, "GET", f"/client-metrics/{found[0]['client_instance_id']}")
        assert detail["client"]["client_id"] == "pushing"
        assert detail["metrics"]
    status, _ = ask(cluster, 1, "GET", "/client-metrics/none")
    assert status == 404


def test_clients_that_are_connected_to_any_broker(cluster: ClusterProcesses) -> None:
    done(cluster, 1, "POST", "/topics", {"name": "visited", "partitions": 3, "replicas": 1})
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "client.id": "everywhere"})
    for partition in range(3):
        producer.produce("visited", b"x" * 1000, partition=partition)
    assert producer.flush(60) == 0
    leaders = {each["leader"] for each in done(cluster, 1, "GET", "/topics/visited")["partitions"]}

    def seen_by(broker: int) -> Any:
        (found,) = done(cluster, broker, "GET", "/clients?search=everywhere")["items"] or (None,)
        return found if found and leaders <= {*found["brokers"]} else None

    found = [until(partial(seen_by, broker)) for broker in (1, 2, 3)]
    assert all(each["connections"] >= len(leaders) and each["received_bytes"] > 3000 for each in found)
    names = {each["software"].partition(" ")[0] for each in done(cluster, 2, "GET", "/clients?per_page=500")["items"]}
    assert "headrace-broker" not in names


def test_groups_that_other_brokers_coordinate(cluster: ClusterProcesses) -> None:
    done(cluster, 1, "POST", "/topics", {"name": "consumed", "partitions": 3, "replicas": 3})
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(30):
        producer.produce("consumed", b"x", partition=number % 3)
    assert producer.flush(60) == 0
    names = [f"group-{number}" for number in range(6)]
    for name in names:
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": name})
        consumer.commit(offsets=[TopicPartition("consumed", index, 4) for index in range(3)], asynchronous=False)
        consumer.close()
    for broker in (1, 2, 3):
        listed = until(lambda: _groups(cluster, broker, names), "all groups with their lag")  # noqa: B023
        assert [each["lag_messages"] for each in listed] == [18] * 6
    assert len({each["coordinator"] for each in listed}) > 1
    for number, name in enumerate(names):
        broker = 1 + number % 3
        preview = done(cluster, broker, "POST", f"/groups/{name}/reset", {"to": "shift:-2", "dry_run": True})
        assert [(each["before"], each["after"]) for each in preview] == [(4, 2)] * 3
        done(cluster, broker, "POST", f"/groups/{name}/reset", {"to": "latest"})
        changed = done(
            cluster, 1 + (number + 1) % 3, "POST", f"/groups/{name}/reset", {"to": "earliest", "dry_run": True}
        )
        assert [(each["before"], each["after"]) for each in changed] == [(10, 0)] * 3
        done(cluster, broker, "DELETE", f"/groups/{name}")


def _groups(cluster: ClusterProcesses, broker: int, names: list[str]) -> Any:
    found = done(cluster, broker, "GET", "/groups?search=group-")["items"]
    is_complete = [each["group"] for each in found] == names and all(each["lag_messages"] is not None for each in found)
    return found if is_complete else None


def test_queues_that_other_brokers_lead(cluster: ClusterProcesses) -> None:
    for number in range(3):
        done(cluster, 1, "POST", "/queues", {"name": f"queue-{number}"})
        for broker in (1, 2, 3):
            done(cluster, broker, "POST", f"/queues/queue-{number}/messages", {"body": f"from {broker}"})
        for broker in (1, 2, 3):
            peeked = done(cluster, broker, "GET", f"/queues/queue-{number}/messages")["items"]
            assert [each["body"] for each in peeked] == ["from 1", "from 2", "from 3"]
            assert {each["state"] for each in peeked} == {"available"}
    for broker in (1, 2, 3):
        found = until(lambda: _queues(cluster, broker), "counts of all queues")  # noqa: B023
        assert [each["visible"] for each in found] == [3, 3, 3]
    done(cluster, 2, "POST", "/queues/queue-0/purge")
    assert done(cluster, 3, "GET", "/queues/queue-0/messages")["items"] == []


def _queues(cluster: ClusterProcesses, broker: int) -> Any:
    found = done(cluster, broker, "GET", "/queues?search=queue-")["items"]
    return found if [each["visible"] for each in found] == [3, 3, 3] else None


def test_transactions_that_other_brokers_coordinate(cluster: ClusterProcesses) -> None:
    done(cluster, 1, "POST", "/topics", {"name": "transactional", "partitions": 3, "replicas": 3})
    for number in range(3):
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": f"tx-{number}"})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("transactional", b"open")
        producer.flush(60)
        aborted = done(cluster, 1 + number, "POST", f"/transactions/tx-{number}/abort")
        assert aborted["before"] == "Ongoing"
        assert ask(cluster, 1 + (number + 1) % 3, "POST", f"/transactions/tx-{number}/abort")[0] == 409
    for broker in (1, 2, 3):
        found = until(
            lambda: [each["state"] for each in done(cluster, broker, "GET", "/transactions")["items"]],  # noqa: B023
            "transactions",
        )
        assert len(found) == 3


def test_what_topics_with_a_prefix_store_is_limited_on_all_brokers_together(cluster: ClusterProcesses) -> None:
    entity: dict[str, str | None] = {"topic-prefix": "hoard-"}
    done(cluster, 1, "POST", "/topics", {"name": "hoard-1", "partitions": 3, "replicas": 1})
    # What followers have does not count.
    done(cluster, 1, "POST", "/topics", {"name": "hoard-2", "partitions": 1, "replicas": 3})

    leaders = {
        (topic, each["partition"]): each["leader"]
        for topic in ("hoard-1", "hoard-2")
        for each in done(cluster, 1, "GET", f"/topics/{topic}")["partitions"]
    }

    def produced(topic: str, partition: int, size: int) -> raw_client.Error:
        with raw_client.Connection(cluster.brokers[leaders[topic, partition]].bootstrap) as connection:
            answer = raw_client.produce(connection, topic, batch([b"x" * size]), partition=partition)
        code: raw_client.Error = answer.error_code
        return code

    def use() -> Any:
        return next(iter(done(cluster, 1, "GET", "/quotas/use?search=hoard-")["items"]), None)

    with raw_client.Connection(cluster.brokers[2].bootstrap) as asked:
        assert alter(asked, entity, {"stored_bytes": 100_000}).error_code == raw_client.Error.none
    filled = (("hoard-1", 0), ("hoard-1", 1), ("hoard-2", 0))
    for topic, partition in filled:
        assert produced(topic, partition, 25_000) is raw_client.Error.none
    known = until(lambda: (found := use()) and found["used"] > 75_000 and found, "the use of all brokers")
    assert known["used"] < 76_000
    assert known["share"] == known["used"] / 100_000
    # The third broker hears what is stored on the others, and has the rest.
    last = leaders["hoard-1", 2]
    elsewhere = 25_000 * sum(leaders[each] != last for each in filled)
    assert elsewhere >= 50_000
    until(lambda: use()["parts"][str(last)] < 100_000 - elsewhere, "the third broker knows what the others store")
    assert produced("hoard-1", 2, 30_000) is raw_client.Error.policy_violation
    done(cluster, 1, "DELETE", "/topics/hoard-2")
    until(lambda: produced("hoard-1", 2, 30_000) is raw_client.Error.none, "there is room again")
    with raw_client.Connection(cluster.brokers[2].bootstrap) as asked:
        assert alter(asked, entity, {"stored_bytes": None}).error_code == raw_client.Error.none


def test_quotas_are_in_force_on_every_broker_and_survive_the_one_that_was_asked(cluster: ClusterProcesses) -> None:
    def connection(broker: int, client_id: str = "limited") -> raw_client.Connection:
        return raw_client.Connection(cluster.brokers[broker].bootstrap, client_id=client_id)

    entity: dict[str, str | None] = {"user": "ANONYMOUS", "client-id": "limited"}
    done(cluster, 1, "POST", "/topics", {"name": "limits", "partitions": 3, "replicas": 1})
    with connection(3) as asked:
        assert alter(asked, entity, {"producer_byte_rate": 100_000}).error_code == raw_client.Error.none
    leaders = {each["leader"]: each["partition"] for each in done(cluster, 1, "GET", "/topics/limits")["partitions"]}
    for broker in (1, 2, 3):
        expected = {tuple(entity.items()): {"producer_byte_rate": 100_000.0}}
        with connection(broker) as other:
            until(partial(_describes, other, expected))
            body = raw_client.produce_body("limits", batch([b"x" * 1_020_000]), partition=leaders[broker])
            # Each broker has its own account: the client may use as much on each of them.
            assert 0.2 <= other.call(raw_client.PRODUCE, 9, body).throttle_time.total_seconds() <= 0.25
    used = until(lambda: _use_on_all(cluster), "use on all brokers")
    assert used["limit"] == 100_000
    assert used["throttled_count"] == 3
    cluster.kill(3)
    try:
        with connection(1) as other:
            assert described(other) == expected
            assert alter(other, entity, {"producer_byte_rate": None}).error_code == raw_client.Error.none
    finally:
        cluster.start_broker(3)
    with connection(3) as back:
        until(lambda: described(back) == {})


def test_brokers_share_the_quotas_of_the_cluster(cluster: ClusterProcesses) -> None:
    """Each broker begins with a third, and gets what the others do not use."""
    rate, connections = 100_000, dict[int, raw_client.Connection]()
    done(cluster, 1, "POST", "/topics", {"name": "divided", "partitions": 3, "replicas": 1})
    leaders = {each["leader"]: each["partition"] for each in done(cluster, 1, "GET", "/topics/divided")["partitions"]}

    def delay_s(broker: int, size: int) -> float:
        body = raw_client.produce_body("divided", batch([b"x" * size]), partition=leaders[broker])
        answer: Any = connections[broker].call(raw_client.PRODUCE, 9, body)
        return float(answer.throttle_time.total_seconds())

    with Cluster(cluster.bootstrap) as admin:
        admin.alter_settings(ConfigResource.BROKER, "", {"quota.scope": "cluster"})
        try:
            for broker in (1, 2, 3):
                connections[broker] = connection = raw_client.Connection(
                    cluster.brokers[broker].bootstrap, client_id="divided"
                )
                if broker == 1:
                    alter(connection, {"client-id": "divided"}, {"producer_byte_rate": rate})
                until(partial(_describes, connection, {(("client-id", "divided"),): {"producer_byte_rate": rate}}))
            # Ten seconds of a third are 333,333 bytes.
            assert delay_s(1, 350_000) > 0.3
            # The others use nothing: the first broker has all of it.
            alone = until(lambda: (delay_s(1, 40_000), _parts(cluster, {1: 1.0}))[-1], "all of the quota")
            assert (alone["limit"], alone["share"]) == (rate, alone["used"] / rate)
            # Two want more than there is: half of it for each.
            halves = {1: 0.5, 2: 0.5}
            until(lambda: (delay_s(1, 40_000), delay_s(2, 40_000), _parts(cluster, halves))[-1], "halves")
        finally:
            admin.alter_settings(ConfigResource.BROKER, "", {"quota.scope": None})
            alter(connections[1], {"client-id": "divided"}, {"producer_byte_rate": None})
            for connection in connections.values():
                connection.close()


def _parts(cluster: ClusterProcesses, wanted: dict[int, float]) -> Any:
    """The use of the quota, if brokers have about these parts of it."""
    for each in done(cluster, 1, "GET", "/quotas/use?search=divided")["items"]:
        if each["quota"] == "producer_byte_rate" and all(
            abs(each["parts"].get(str(broker), 0) - part) < 0.05 for broker, part in wanted.items()
        ):
            return each
    return None


def _describes(connection: raw_client.Connection, expected: Any) -> bool:
    return described(connection) == expected


def _use_on_all(cluster: ClusterProcesses) -> Any:
    items = done(cluster, 1, "GET", "/quotas/use?search=limited")["items"]
    return next((each for each in items if each["quota"] == "producer_byte_rate" and len(each["brokers"]) == 3), None)


def test_a_broker_that_is_down(cluster: ClusterProcesses) -> None:
    """The last test of the module: broker 3 is killed."""
    done(cluster, 1, "POST", "/topics", {"name": "single", "partitions": 6, "replicas": 1})
    lost = [
        each["partition"] for each in done(cluster, 1, "GET", "/topics/single")["partitions"] if each["leader"] == 3
    ]
    assert lost
    cluster.kill(3)
    until(lambda: _broker(cluster, 3)["state"] == "dead", "the death of broker 3")
    overview = done(cluster, 2, "GET", "/overview")
    assert (overview["without_data"], overview["offline"] > 0) == ([3], True)
    assert _broker(cluster, 3)["version"] is None
    status, refused = ask(cluster, 1, "GET", f"/topics/single/messages?partition={lost[0]}")
    assert (status, refused["error"]) == (503, "unavailable")
    assert "no leader" in refused["message"]
    # What has replicas goes on, and so do lists.
    assert len(done(cluster, 1, "GET", "/topics/consumed/messages")["items"]) == 30
    assert done(cluster, 1, "GET", "/topics")["total"] >= 3
    assert done(cluster, 2, "POST", "/topics/consumed/messages", {"value": "still"})["offset"] >= 10
    detail = done(cluster, 1, "GET", "/topics/single")
    assert detail["offline"] == len(lost)


def _broker(cluster: ClusterProcesses, broker_id: int) -> Any:
    return next(each for each in done(cluster, 1, "GET", "/cluster")["brokers"] if each["broker_id"] == broker_id)
