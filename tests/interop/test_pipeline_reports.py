"""Reports of pipelines on a broker that restarts, and on a cluster: stored, shown by every broker, exported by one."""

import json
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from headrace.testing import Broker, etcd
from headrace.testing.cluster import ClusterProcesses
from headrace.wire import Cluster
from headrace.wire.http_addresses import http_addresses
from tests.waiting import until

REPORT = {"instance": "a", "state": "running", "is_supervised": True, "host": "far", "rows_in": 7, "log": ["a line"]}


def request(url: str, method: str, path: str, value: Any = None) -> tuple[int, Any]:
    connection = HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        body = None if method == "GET" else json.dumps(value or {})
        connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        is_json = (answer.getheader("content-type") or "").startswith("application/json")
        return answer.status, json.loads(text) if is_json else text.decode()
    finally:
        connection.close()


def done(url: str, method: str, path: str, value: Any = None) -> Any:
    status, answer = request(url, method, f"/api/v1/pipelines{path}", value)
    assert status < 300, answer
    return answer


def exported(url: str) -> list[str]:
    status, text = request(url, "GET", "/metrics")
    assert status == 200
    return [line for line in text.splitlines() if line.startswith("headrace_pipeline_rows_in_total{")]


def test_a_report_and_a_stop_survive_a_restart_of_the_broker(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        assert done(broker.http_url, "GET", "")["items"] == []
        assert request(broker.http_url, "GET", "/api/v1/pipelines/revenue")[0] == 404
        assert done(broker.http_url, "POST", "/revenue/report", REPORT)["desired"] == "running"
        done(broker.http_url, "POST", "/revenue/stop")
        assert exported(broker.http_url) == ['headrace_pipeline_rows_in_total{pipeline="revenue"} 7']
    with Broker(data_dir=tmp_path) as broker:
        found = done(broker.http_url, "GET", "/revenue")
        assert (found["state"], found["host"], found["rows_in"], found["log"]) == ("stopping", "far", 7, ["a line"])
        assert done(broker.http_url, "POST", "/revenue/report", REPORT)["desired"] == "stopped"
        with Cluster(broker.bootstrap) as cluster:
            assert "__pipelines" in cluster.metadata()


INVALID = {
    "no instance": {"state": "running"},
    "unknown state": {**REPORT, "state": "dancing"},
    "negative": {**REPORT, "rows_in": -1},
    "long error": {**REPORT, "last_error": "x" * 1001},
    "many lines": {**REPORT, "log": ["x"] * 101},
    "no object": "x",
}


def test_a_report_that_is_none_is_refused(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        for name, report in INVALID.items():
            status, answer = request(broker.http_url, "POST", "/api/v1/pipelines/revenue/report", report)
            assert (status, answer["error"]) == (400, "invalid_request"), name
        assert request(broker.http_url, "POST", "/api/v1/pipelines/a%20b/report", REPORT)[0] == 400
        assert done(broker.http_url, "GET", "")["items"] == []


@pytest.mark.timeout(300)
@pytest.mark.skipif(not etcd.is_installed(), reason="there is no etcd")
def test_every_broker_of_a_cluster_shows_and_controls_it(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, brokers=2) as cluster:
        with Cluster(cluster.bootstrap) as client:
            one, two = http_addresses(client)
        done(one, "POST", "/revenue/report", REPORT)
        assert [each["name"] for each in done(two, "GET", "")["items"]] == ["revenue"]
        assert done(two, "GET", "/revenue")["log"] == ["a line"]
        done(two, "POST", "/revenue/stop")
        assert done(one, "POST", "/revenue/report", REPORT)["desired"] == "stopped"
        assert sorted(len(exported(url)) for url in (one, two)) == [0, 1]
        until(lambda: len(_isr(cluster)) == 2, "a second replica")
        leader = _leader(cluster)
        survivor = two if leader == 1 else one
        cluster.kill(leader)
        until(lambda: request(survivor, "GET", "/api/v1/pipelines/revenue")[0] == 200, cluster.logs)
        assert done(survivor, "GET", "/revenue")["desired"] == "stopped"
        assert done(survivor, "POST", "/revenue/report", REPORT)["desired"] == "stopped"
        assert len(exported(survivor)) == 1


def _isr(cluster: ClusterProcesses) -> tuple[int, ...]:
    with Cluster(cluster.bootstrap) as client:
        return tuple(client.metadata()["__pipelines"].partitions[0].isr)


def _leader(cluster: ClusterProcesses) -> int:
    with Cluster(cluster.bootstrap) as client:
        return client.metadata()["__pipelines"].partitions[0].leader
