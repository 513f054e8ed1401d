"""A client of the HTTP API, and a broker with an administrator and two users."""

import json
import ssl
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPSConnection
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from headrace.testing import Broker
from headrace.wire import Cluster

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
) -> ApiAnswer:
    where = urlsplit(url)
    made: HTTPConnection = (
        HTTPSConnection(where.netloc, timeout=30, context=tls) if tls else HTTPConnection(where.netloc, timeout=30)
    )
    given = {"Content-Type": "application/json"} if method == "POST" else {}
    if account is not None:
        given["Authorization"] = basic(account)
    content = body if body is not None else json.dumps(value).encode() if method == "POST" else None
    try:
        made.request(method, f"/api/v1{path}", content, {**given, **(headers or {})})
        answer = made.getresponse()
        text = answer.read()
        found = {name.lower(): text for name, text in answer.getheaders()}
        return ApiAnswer(answer.status, json.loads(text) if text else None, found)
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
def secured(monkeypatch: pytest.MonkeyPatch, **settings: object) -> Iterator[Broker]:
    """The same with authorization on."""
    with administered(monkeypatch, **settings) as broker:
        assert call(broker.http_url, "POST", "/secure", ADMIN, {"admin": ADMIN[0], "password": "x"}).status == 200
        yield broker
