"""Brokers are killed while clients register schemas: ids are unique, none is lost, a schema has one id everywhere."""

import json
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

from headrace.testing.cluster import ClusterProcesses

CLIENTS = 10
SCHEMAS = 5_000
BETWEEN_KILLS_S = 1.0
PATIENCE_S = 120.0


def _post(url: str, body: object) -> object:
    request = Request(url, json.dumps(body).encode(), {"Content-Type": "application/vnd.schemaregistry.v1+json"})
    with urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def _get(url: str) -> object:
    with urlopen(url, timeout=60) as answer:
        return json.loads(answer.read())


def _schema(number: int) -> str:
    return f'{{"type":"fixed","name":"F{number}","size":{number + 1}}}'


class RegisteringClient:
    """Registers schemas through any broker, and asks the next one if it gets no answer."""

    def __init__(self, urls: Sequence[str], first: int) -> None:
        self._urls, self._at = urls, first

    def register(self, number: int) -> int:
        """The id. Every second schema is registered under two subjects, which share the id."""
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                path = f"/registry/subjects/s{number // 2}-{number % 2}/versions"
                found = _post(self._urls[self._at % len(self._urls)] + path, {"schema": _schema(number // 2)})
            except (URLError, OSError) as error:
                if time.monotonic() > deadline_s or (isinstance(error, HTTPError) and error.code < 500):
                    raise
                self._at += 1
                continue
            assert isinstance(found, dict)
            return int(found["id"])


def _kill_one_after_the_other(cluster: ClusterProcesses, is_done: threading.Event) -> int:
    kills = 0
    while not is_done.wait(BETWEEN_KILLS_S):
        victim = 1 + kills % len(cluster.brokers)
        cluster.kill(victim)
        cluster.start_broker(victim)
        cluster.await_in_sync()
        kills += 1
    return kills


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_ids_survive_kills_while_ten_clients_register(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, brokers=3) as cluster, ThreadPoolExecutor(CLIENTS + 1) as pool:
        urls = [broker.http_url for broker in cluster.brokers.values()]
        clients = [RegisteringClient(urls, place) for place in range(CLIENTS)]
        is_done = threading.Event()
        killing = pool.submit(_kill_one_after_the_other, cluster, is_done)

        def work(place: int) -> dict[int, int]:
            return {number: clients[place].register(number) for number in range(place, SCHEMAS, CLIENTS)}

        try:
            results = [*pool.map(work, range(CLIENTS))]
        finally:
            is_done.set()
        assert killing.result() >= 2
        ids = {number: given for each in results for number, given in each.items()}
        cluster.await_in_sync()
        check(urls, ids)


def check(urls: Sequence[str], ids: dict[int, int]) -> None:
    """Each schema has one id, no two share one, and every broker has all of them."""
    by_schema: dict[int, set[int]] = {}
    for number, given in ids.items():
        by_schema.setdefault(number // 2, set()).add(given)
    assert all(len(given) == 1 for given in by_schema.values())
    assert len(set(ids.values())) == len(by_schema)
    for url in urls:
        found = _get(f"{url}/registry/schemas?limit=10000")
        assert isinstance(found, list)
        stored = {(each["subject"], each["version"]): (each["id"], each["schema"]) for each in found}
        assert stored == {
            (f"s{number // 2}-{number % 2}", 1): (given, _schema(number // 2)) for number, given in ids.items()
        }
