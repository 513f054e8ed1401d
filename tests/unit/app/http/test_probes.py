"""`/healthz` and `/readyz`: what they answer, in which form, and that each try of the disk serves many requests."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
import uvloop

from headrace.app import readiness as readiness_module
from headrace.app.http.probes import Probes
from headrace.app.http.server import HttpServer
from headrace.app.readiness import Readiness
from headrace.config.broker import BrokerSettings
from headrace.model.image import Endpoint
from headrace.testing import Broker


@dataclass
class FakeMembership:
    epoch: int = 7
    is_admitted: bool = True
    is_stopping: bool = False
    has_lease: bool = True

    def is_lease_live(self) -> bool:
        return self.has_lease


class ProbeAnswer(NamedTuple):
    status: int
    kind: str
    text: str


def ask(url: str, path: str, accept: str = "*/*", method: str = "GET") -> ProbeAnswer:
    connection = HTTPConnection(urlsplit(url).netloc, timeout=30)
    try:
        connection.request(method, path, headers={"Accept": accept})
        answer = connection.getresponse()
        return ProbeAnswer(answer.status, answer.getheader("content-type", ""), answer.read().decode())
    finally:
        connection.close()


def asked(readiness: Callable[[ThreadPoolExecutor], Readiness], *requests: tuple[str, str]) -> list[ProbeAnswer]:
    """What a server with these probes answers to requests, each a path and what is accepted."""

    async def body() -> list[ProbeAnswer]:
        with ThreadPoolExecutor(2) as workers:
            server = HttpServer(BrokerSettings(), Probes(readiness(workers)))
            bound = await server.start(Endpoint("127.0.0.1", 0), may_move=False)
            try:
                return [await asyncio.to_thread(ask, f"http://{bound}", *request) for request in requests]
            finally:
                await server.stop(10.0)

    return uvloop.run(body())


def ready_with(folder: Path, membership: Any = None, failure: BaseException | None = None) -> Any:
    return lambda workers: Readiness(folder, workers, membership=lambda: membership, failure=lambda: failure)


def test_a_broker_that_serves_is_alive_and_ready():
    with Broker() as broker:
        assert ask(broker.http_url, "/healthz") == (200, "text/plain; charset=utf-8", "alive\n")
        assert ask(broker.http_url, "/readyz") == (200, "text/plain; charset=utf-8", "ready\n")
        assert ask(broker.http_url, "/readyz", method="HEAD").status == 200
        assert ask(broker.http_url, "/readyz", method="POST").status == 405
        assert ask(broker.http_url, "/readyz/more").status == 404
        status, kind, text = ask(broker.http_url, "/readyz", "application/json")
        assert (status, kind) == (200, "application/json; charset=utf-8")
        assert json.loads(text) == {"status": "ready", "reasons": []}


@pytest.mark.parametrize(
    ("membership", "words"),
    [
        (FakeMembership(epoch=0, is_admitted=False), "is not registered"),
        (FakeMembership(is_admitted=False), "waits until the controller admits it"),
        (FakeMembership(has_lease=False), "lease may have ended"),
        (FakeMembership(is_stopping=True), "the broker is stopping"),
    ],
    ids=["unregistered", "waiting", "no lease", "stopping"],
)
def test_a_member_of_a_cluster_says_what_it_waits_for(tmp_path, membership, words):
    plain, coded, alive = asked(
        ready_with(tmp_path, membership), ("/readyz", "*/*"), ("/readyz", "application/json"), ("/healthz", "*/*")
    )
    assert (plain.status, coded.status, alive.status) == (503, 503, 200)
    assert plain.text.startswith("not ready: ")
    assert words in plain.text
    assert words in json.loads(coded.text)["reasons"][0]


def test_a_data_directory_that_failed_is_named_even_if_the_broker_resigned(tmp_path):
    membership = FakeMembership(is_stopping=True)
    (answer,) = asked(ready_with(tmp_path, membership, OSError(5, "Input/output error")), ("/readyz", "*/*"))
    assert answer.status == 503
    assert "takes no more writes since it failed: [Errno 5]" in answer.text
    assert "stopping" not in answer.text


def test_a_disk_that_takes_no_writes_is_named(tmp_path):
    gone = tmp_path / "gone"
    (answer,) = asked(ready_with(gone), ("/readyz", "*/*"))
    assert answer.status == 503
    assert answer.text == "not ready: the data directory is not writable: No such file or directory\n"


def test_the_trial_leaves_nothing_behind(tmp_path):
    assert [answer.status for answer in asked(ready_with(tmp_path), ("/readyz", "*/*"))] == [200]
    assert [*tmp_path.iterdir()] == []


def test_a_broker_that_stops_is_not_ready(tmp_path):
    def make(workers: ThreadPoolExecutor) -> Readiness:
        made: Readiness = ready_with(tmp_path)(workers)
        made.stop()
        return made

    (answer,) = asked(make, ("/readyz", "*/*"))
    assert answer.text == "not ready: the broker is stopping\n"


def test_many_requests_try_the_disk_once(tmp_path, monkeypatch):
    tries: list[Path] = []

    def count(folder: Path) -> str:
        tries.append(folder)
        return ""

    monkeypatch.setattr(readiness_module, "why_not_writable", count)

    async def body() -> None:
        with ThreadPoolExecutor(2) as workers:
            one: Readiness = ready_with(tmp_path)(workers)
            waits: list[Awaitable[list[str]]] = [one.obstacles() for _ in range(100)]
            assert not any(await asyncio.gather(*waits))

    uvloop.run(body())
    assert len(tries) == 1
