"""A valid request for every route of the HTTP API, and the topics, groups and queues that the requests are about."""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from headrace.testing import Broker
from tests.waiting import until

from .api import ADMIN, EVE, call

_numbers = itertools.count()


@dataclass(frozen=True)
class RouteCase:
    parameters: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    query: str = ""
    before: Callable[[Broker], dict[str, str] | None] | None = None
    """Prepares what the request changes or deletes; returns parameters."""
    count: Callable[[Any], int] = lambda value: int(value["total"])
    """For lists that leave out what a user may not see: how many are shown."""
    refusal: str = ""
    """The error on a single broker, where what it asks for is not possible."""
    max_bytes: int | None = None
    """For a stream, how much of it to read."""


def done(broker: Broker, method: str, path: str, value: Any = None) -> Any:
    answer = call(broker.http_url, method, path, ADMIN, value)
    assert answer.status < 300, answer
    return answer.value


def prepare(broker: Broker) -> None:
    done(broker, "POST", "/topics", {"name": "orders", "partitions": 2})
    for number in range(3):
        done(broker, "POST", "/topics/orders/messages", {"key": f"k{number}", "value": f'{{"number": {number}}}'})
    done(broker, "POST", "/queues", {"name": "dead"})
    done(broker, "POST", "/queues", {"name": "jobs", "settings": {"dead.letter": "dead", "max.receives": "3"}})
    done(broker, "POST", "/queues/jobs/messages", {"body": "tea"})
    new_group(broker, "billing")
    for fields in ("", '{"name": "sku", "type": "string", "default": ""}'):
        schema = f'{{"type": "record", "name": "Order", "fields": [{fields}]}}'
        done(broker, "POST", "/subjects/orders-value/versions", {"schema": schema})


def new_group(broker: Broker, name: str = "") -> dict[str, str]:
    name = name or f"group-{next(_numbers)}"
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": name})
    try:
        consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    finally:
        consumer.close()
    return {"group": name}


def new_client(broker: Broker) -> dict[str, str]:
    """A client that has asked which metrics to push."""
    name = f"client-{next(_numbers)}"
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": name})
    producer.list_topics(timeout=30)

    def found() -> list[str]:
        items = done(broker, "GET", f"/client-metrics?search={name}")["items"]
        return [each["client_instance_id"] for each in items if each["client_id"] == name]

    return {"client_instance_id": until(found)[0]}


def new_transaction(broker: Broker) -> dict[str, str]:
    """A transaction that stays open."""
    name = f"transaction-{next(_numbers)}"
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", b"open")
    producer.flush(30)
    return {"transactional_id": name}


def new_queue(broker: Broker) -> dict[str, str]:
    name = f"queue-{next(_numbers)}"
    done(broker, "POST", "/queues", {"name": name})
    return {"queue": name}


def new_dead_letters(broker: Broker) -> dict[str, str]:
    """The dead-letter queue of another queue, without a redrive."""
    name = new_queue(broker)["queue"]
    done(broker, "POST", "/queues", {"name": f"{name}-source", "settings": {"dead.letter": name, "max.receives": "3"}})
    return {"queue": name}


def new_redrive(broker: Broker) -> dict[str, str]:
    """A redrive that is slow enough to be cancelled."""
    name = new_dead_letters(broker)["queue"]
    for _ in range(20):
        done(broker, "POST", f"/queues/{name}/messages", {"body": "stuck"})
    done(broker, "POST", f"/queues/{name}/redrive", {"to": f"{name}-source", "rate": 1})
    return {"queue": name}


def new_topic(broker: Broker) -> dict[str, str]:
    name = f"topic-{next(_numbers)}"
    done(broker, "POST", "/topics", {"name": name})
    return {"topic": name}


def new_subject(broker: Broker) -> dict[str, str]:
    name = f"subject-{next(_numbers)}"
    done(broker, "POST", f"/subjects/{name}/versions", {"schema": '"string"'})
    return {"subject": name, "version": "1"}


def new_key(broker: Broker) -> dict[str, str]:
    for key in done(broker, "GET", f"/users/{EVE[0]}/keys")["keys"]:
        done(broker, "DELETE", f"/users/{EVE[0]}/keys/{key['id']}")
    return {"id": done(broker, "POST", f"/users/{EVE[0]}/keys")["id"]}


def new_user(broker: Broker) -> dict[str, str]:
    name = f"user-{next(_numbers)}"
    done(broker, "POST", "/users", {"name": name, "password": "secret"})
    return {"name": name}


def without_new_user(broker: Broker) -> None:
    if any(each["name"] == "new" for each in done(broker, "GET", "/users")["users"]):
        done(broker, "DELETE", "/users/new")


def fewer_keys(broker: Broker) -> None:
    new_key(broker)


def reporting(broker: Broker) -> None:
    """A pipeline that has just reported, and has done what it was asked."""
    report = {"instance": str(next(_numbers)), "state": "running", "is_supervised": True}
    answer = done(broker, "POST", "/pipelines/revenue/report", report)
    if (replay := answer["replay"]) is not None:
        done(broker, "POST", "/pipelines/revenue/report", {**report, "replay": {"id": replay["id"], "state": "done"}})


def gone(broker: Broker) -> None:
    report = {"instance": str(next(_numbers)), "state": "ended", "is_final": True}
    done(broker, "POST", "/pipelines/revenue/report", report)


REVENUE = {"pipeline": "revenue"}
ORDERS = {"topic": "orders"}
BROKER = {"broker_id": "0"}
RULE = {
    "principal": "User:carol",
    "permission": "allow",
    "operation": "read",
    "resource_type": "queue",
    "resource_name": "jobs",
}
RETRY_BYTES = 13
"""The first line of a stream of events."""
JOBS = {"queue": "jobs"}
SUBJECT = {"subject": "orders-value", "version": "1"}
OWNER = {"name": EVE[0], "id": "none"}

CASES: dict[str, RouteCase] = {
    "GET /session": RouteCase(),
    "POST /session": RouteCase(body={"user": EVE[0], "password": EVE[1]}),
    "DELETE /session": RouteCase(),
    "GET /users": RouteCase(),
    "GET /users/{name}/keys": RouteCase(OWNER),
    "POST /users/{name}/keys": RouteCase(OWNER, before=fewer_keys),
    "DELETE /users/{name}/keys/{id}": RouteCase(OWNER, before=new_key),
    "GET /health": RouteCase(),
    "GET /overview": RouteCase(count=lambda value: len(value["brokers"])),
    "GET /cluster": RouteCase(),
    "GET /cluster/settings": RouteCase(),
    "PATCH /cluster/settings": RouteCase(body={"set": {"log.retention.ms": "60000"}, "dry_run": True}),
    "GET /cluster/brokers/{broker_id}/drain": RouteCase(BROKER),
    "POST /cluster/brokers/{broker_id}/drain": RouteCase(BROKER, refusal="no_other_broker"),
    "DELETE /cluster/brokers/{broker_id}/drain": RouteCase(BROKER),
    "GET /cluster/reassignments": RouteCase(),
    "POST /cluster/reassignments": RouteCase(
        body={"partitions": [{"topic": "orders", "partition": 0, "replicas": None}]},
        refusal="no_reassignment_in_progress",
    ),
    "GET /acls": RouteCase(),
    "POST /acls": RouteCase(body={"rules": [RULE]}),
    "DELETE /acls": RouteCase(body={"rules": [RULE]}),
    "GET /acls/explain": RouteCase(query="?user=bob&operation=read&resource=topic&name=orders"),
    "GET /audit": RouteCase(query="?limit=5"),
    "POST /users": RouteCase(body={"name": "new", "password": "secret"}, before=without_new_user),
    "PUT /users/{name}/password": RouteCase(OWNER, body={"password": EVE[1]}),
    "DELETE /users/{name}": RouteCase({"name": ""}, before=new_user),
    "GET /topics": RouteCase(),
    "POST /topics": RouteCase(body={"name": "another", "dry_run": True}),
    "GET /topics/{topic}": RouteCase(ORDERS),
    "DELETE /topics/{topic}": RouteCase({"topic": ""}, before=new_topic),
    "POST /topics/{topic}/partitions": RouteCase(ORDERS, body={"count": 3, "dry_run": True}),
    "GET /topics/{topic}/settings": RouteCase(ORDERS),
    "PATCH /topics/{topic}/settings": RouteCase(ORDERS, body={"set": {"retention.ms": "60000"}}),
    "GET /groups": RouteCase(),
    "GET /groups/{group}": RouteCase({"group": "billing"}),
    "POST /groups/{group}/reset": RouteCase({"group": "billing"}, body={"to": "latest", "dry_run": True}),
    "DELETE /groups/{group}": RouteCase({"group": ""}, before=new_group),
    "GET /scale/group/{group}": RouteCase({"group": "billing"}, query="?max=3"),
    "GET /scale/queue/{queue}": RouteCase(JOBS, query="?min=1&target_seconds=5"),
    "GET /queues": RouteCase(),
    "POST /queues": RouteCase(body={"name": "jobs"}),
    "GET /queues/{queue}": RouteCase(JOBS),
    "PATCH /queues/{queue}/settings": RouteCase(JOBS, body={"set": {"visibility.timeout.ms": "5000"}}),
    "GET /queues/{queue}/messages": RouteCase(JOBS, query="?limit=3"),
    "POST /queues/{queue}/messages": RouteCase(JOBS, body={"body": "tea"}),
    "POST /queues/{queue}/purge": RouteCase({"queue": ""}, before=new_queue),
    "GET /queues/{queue}/redrive": RouteCase({"queue": "dead"}),
    "POST /queues/{queue}/redrive": RouteCase({"queue": ""}, body={}, before=new_dead_letters),
    "DELETE /queues/{queue}/redrive": RouteCase({"queue": ""}, before=new_redrive),
    "DELETE /queues/{queue}": RouteCase({"queue": ""}, before=new_queue),
    "GET /clients": RouteCase(before=new_client),
    "GET /client-metrics": RouteCase(before=new_client),
    "GET /client-metrics/{client_instance_id}": RouteCase({"client_instance_id": ""}, before=new_client),
    "GET /client-subscriptions": RouteCase(),
    "GET /links": RouteCase(),
    "POST /links": RouteCase(body={"name": "eu", "bootstrap": ["127.0.0.1:1"]}, refusal="source_unavailable"),
    "GET /links/{link}": RouteCase({"link": "eu"}, refusal="unknown_link"),
    "PATCH /links/{link}": RouteCase({"link": "eu"}, {"groups": False}, refusal="unknown_link"),
    "GET /link-figures": RouteCase(),
    "GET /links/{link}/figures": RouteCase({"link": "eu"}, refusal="unknown_link"),
    "GET /links/{link}/topics": RouteCase({"link": "eu"}, refusal="unknown_link"),
    "PUT /links/{link}/paused": RouteCase({"link": "eu"}, {"is_paused": True}, refusal="unknown_link"),
    "POST /links/{link}/reverse": RouteCase({"link": "eu"}, {"topic": "orders"}, refusal="unknown_link"),
    "DELETE /links/{link}": RouteCase({"link": "eu"}, refusal="unknown_link"),
    "POST /mirrors/{topic}/promote": RouteCase({"topic": "orders"}, {}, refusal="not_mirrored"),
    "POST /mirrors/{topic}/failover": RouteCase({"topic": "orders"}, {}, refusal="not_mirrored"),
    "GET /quotas": RouteCase(),
    "GET /quotas/use": RouteCase(),
    "GET /transactions": RouteCase(before=new_transaction),
    "POST /transactions/{transactional_id}/abort": RouteCase({"transactional_id": ""}, before=new_transaction),
    "GET /producers": RouteCase(query="?topic=orders"),
    "GET /topics/{topic}/tail": RouteCase(ORDERS, max_bytes=RETRY_BYTES),
    "GET /topics/{topic}/download": RouteCase(ORDERS, query="?limit=2"),
    "GET /openapi.json": RouteCase(),
    "GET /live/{view}": RouteCase({"view": "cluster"}, max_bytes=RETRY_BYTES),
    "GET /topics/{topic}/messages": RouteCase(ORDERS, query="?from=earliest&limit=2"),
    "POST /topics/{topic}/messages": RouteCase(ORDERS, body={"value": "tea"}),
    "GET /subjects": RouteCase(),
    "GET /subjects/{subject}": RouteCase(SUBJECT),
    "GET /subjects/{subject}/versions/{version}": RouteCase(SUBJECT),
    "GET /subjects/{subject}/diff": RouteCase(SUBJECT, query="?from=1&to=2"),
    "POST /subjects/{subject}/versions": RouteCase(SUBJECT, body={"schema": '"string"'}, before=new_subject),
    "POST /subjects/{subject}/check": RouteCase(SUBJECT, body={"schema": '"string"'}),
    "PUT /subjects/{subject}/compatibility": RouteCase(SUBJECT, body={"level": "FULL"}),
    "DELETE /subjects/{subject}/versions/{version}": RouteCase(SUBJECT, before=new_subject),
    "DELETE /subjects/{subject}": RouteCase(SUBJECT, before=new_subject),
    "GET /pipelines": RouteCase(before=reporting),
    "GET /pipelines/{pipeline}": RouteCase(REVENUE, before=reporting),
    "DELETE /pipelines/{pipeline}": RouteCase(REVENUE, before=gone),
    "POST /pipelines/{pipeline}/report": RouteCase(REVENUE, body={"instance": "a", "state": "running"}),
    "POST /pipelines/{pipeline}/start": RouteCase(REVENUE, body={}, before=reporting),
    "POST /pipelines/{pipeline}/stop": RouteCase(REVENUE, body={}, before=reporting),
    "POST /pipelines/{pipeline}/replay": RouteCase(REVENUE, body={}, before=reporting),
    "GET /pipelines/{pipeline}/dead-letters": RouteCase(REVENUE, before=reporting),
}
