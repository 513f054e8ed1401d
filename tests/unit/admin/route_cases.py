"""A valid request for every route of the HTTP API, and the topics, groups and queues that the requests are about."""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.testing import Broker

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


def new_topic(broker: Broker) -> dict[str, str]:
    name = f"topic-{next(_numbers)}"
    done(broker, "POST", "/topics", {"name": name})
    return {"topic": name}


def new_key(broker: Broker) -> dict[str, str]:
    for key in done(broker, "GET", f"/users/{EVE[0]}/keys")["keys"]:
        done(broker, "DELETE", f"/users/{EVE[0]}/keys/{key['id']}")
    return {"id": done(broker, "POST", f"/users/{EVE[0]}/keys")["id"]}


def fewer_keys(broker: Broker) -> None:
    new_key(broker)


ORDERS = {"topic": "orders"}
OWNER = {"name": EVE[0], "id": "none"}

CASES: dict[str, RouteCase] = {
    "GET /health": RouteCase(),
    "GET /session": RouteCase(),
    "POST /session": RouteCase(body={"user": EVE[0], "password": EVE[1]}),
    "DELETE /session": RouteCase(),
    "GET /users": RouteCase(),
    "GET /users/{name}/keys": RouteCase(OWNER),
    "POST /users/{name}/keys": RouteCase(OWNER, before=fewer_keys),
    "DELETE /users/{name}/keys/{id}": RouteCase(OWNER, before=new_key),
    "GET /topics": RouteCase(),
    "POST /topics": RouteCase(body={"name": "another", "dry_run": True}),
    "GET /topics/{topic}": RouteCase(ORDERS),
    "DELETE /topics/{topic}": RouteCase({"topic": ""}, before=new_topic),
    "POST /topics/{topic}/partitions": RouteCase(ORDERS, body={"count": 3, "dry_run": True}),
    "GET /topics/{topic}/settings": RouteCase(ORDERS),
    "PATCH /topics/{topic}/settings": RouteCase(ORDERS, body={"set": {"retention.ms": "60000"}}),
    "GET /topics/{topic}/messages": RouteCase(ORDERS, query="?from=earliest&limit=2"),
    "POST /topics/{topic}/messages": RouteCase(ORDERS, body={"value": "tea"}),
}
