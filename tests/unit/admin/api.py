"""A client of the HTTP API, and a broker with an administrator and two users."""

import json
import ssl
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPSConnection
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from headrace.testing import Broker
from headrace.wire import Cluster, ConfigResource

ADMIN, BOB, EVE = ("admin", "secret of admin"), ("bob", "secret of bob"), ("eve", "secret of eve")
Account = tuple[str, str]


class ApiAnswer(NamedTuple):
    status: int
    value: Any
    headers: Mapping[str, str]


def basic(account: Account) -> str:
    return "Basic " + b64encode(":".join(account).encode()).decode()


def call(
    url: str,
    method: str,
    path: str,
    account: Account | None = None,
    value: Any = None,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    tls: ssl.SSLContext | None = None,
    max_bytes: int | None = None,
) -> ApiAnswer:
    """A request and its answer; of a stream, the first `max_bytes` as text."""
    where = urlsplit(url)
    made: HTTPConnection = (
        HTTPSConnection(where.netloc, timeout=30, context=tls) if tls else HTTPConnection(where.netloc, timeout=30)
    )
    has_body = method in ("POST", "PATCH", "PUT")
    given = {"Content-Type": "application/json"} if has_body else {}
    if account is not None:
        given["Authorization"] = basic(account)
    content = body if body is not None else json.dumps(value).encode() if has_body or value is not None else None
    try:
        made.request(method, f"/api/v1{path}", content, {**given, **(headers or {})})
        answer = made.getresponse()
        found = {name.lower(): text for name, text in answer.getheaders()}
        is_json = found.get("content-type", "").startswith("application/json")
        text = answer.read() if is_json or max_bytes is None else answer.read(max_bytes)
        return ApiAnswer(answer.status, json.loads(text) if text and is_json else text.decode() or None, found)
    finally:
        made.close()


@contextmanager
def administered(monkeypatch: pytest.MonkeyPatch, **settings: object) -> Iterator[Broker]:
    """A broker with users; authorization is off."""
    with monkeypatch.context() as during_start:
        during_start.setenv("HEADRACE_INITIAL_ADMIN", ":".join(ADMIN))
        broker = Broker(settings=settings).start()
    with broker:
        with Cluster(broker.bootstrap) as cluster:
            for name, password in (BOB, EVE):
                cluster.set_password(name, password, "SCRAM-SHA-256")
        yield broker


@contextmanager
def secured(
    monkeypatch: pytest.MonkeyPatch, *prepare: Callable[[Broker], None], **settings: object
) -> Iterator[Broker]:
    """The same with authorization on; `prepare` is called before."""
    with administered(monkeypatch, **settings) as broker:
        for each in prepare:
            each(broker)
        with Cluster(broker.bootstrap) as cluster:
            cluster.alter_settings(ConfigResource.BROKER, "", {"authorization.enable": "true"})
        yield broker
