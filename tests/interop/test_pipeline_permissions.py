"""Who may report, see and control a pipeline on a broker with TLS, users and ACLs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.client.json_api import ApiRefused, JsonApi
from headrace.config.client_connection import resolve_credentials
from headrace.config.credentials import Credentials
from headrace.model.acls import Acl, AclOperation, PatternType, Permission, ResourceType
from headrace.model.errors import HeadraceError
from headrace.model.pipeline_report import PipelineReport
from headrace.pipelines.report.reporter import BrokerSite
from headrace.pipelines.spec.file import SpecFile
from headrace.pipelines.spec.model import Spec
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.testing import Broker
from headrace.wire import Cluster

REPORT = PipelineReport(
    instance="a", state="running", source_topics=["orders"], dead_letter_topics=["orders.dlq"], is_supervised=True
)
PIPELINE = """
name = "revenue"
bootstrap = "{bootstrap}"
[connection]
user = "{user}"
password = "${{SECRET}}"
ca_file = "{ca_file}"
[source]
topic = "orders"
format = "raw"
[sink]
topic = "out"
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    users = {"admin": "a-secret", "spark": "s-secret", "carol": "c-secret"}
    settings = {"authorization.enable": True, "super.users": "User:admin"}
    with Broker(tls=True, users=users, settings=settings) as running:
        with cluster_of(running) as cluster:
            cluster.create_topic("orders", partitions=1)
            cluster.create_topic("orders.dlq", partitions=1)
            letter = Record(0, 1, None, b"bad", (("headrace-reason", b"no"),))
            cluster.produce({("orders.dlq", 0): build_batch([letter])})
        yield running


def credentials(broker: Broker, user: str) -> Credentials:
    return resolve_credentials({"user": user, "password": f"{user[0]}-secret", "ca_file": str(broker.ca_file)})


def cluster_of(broker: Broker) -> Cluster:
    return Cluster(broker.bootstrap, credentials=credentials(broker, "admin"))


def allow(broker: Broker, user: str, operation: str, kind: str, name: str) -> None:
    rule = Acl(
        ResourceType[kind], PatternType.LITERAL, name, f"User:{user}", "*", AclOperation[operation], Permission.ALLOW
    )
    with cluster_of(broker) as cluster:
        cluster.create_acls([rule])


def spec_of(broker: Broker, folder: Path, user: str) -> Spec:
    file = folder / "revenue.toml"
    file.write_text(PIPELINE.format(bootstrap=broker.bootstrap, user=user, ca_file=broker.ca_file))
    return SpecFile(file).spec


def test_a_pipeline_reports_with_the_permissions_that_it_needs_anyway(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "s-secret")
    spec = spec_of(broker, tmp_path, "spark")
    with pytest.raises(ApiRefused, match="lacks the permission read on the group"):
        BrokerSite(spec).send(REPORT)
    allow(broker, "spark", "READ", "GROUP", "pipeline-revenue")
    assert BrokerSite(spec).send(REPORT).desired == "running"
    monkeypatch.setenv("HEADRACE_HTTP", broker.http_url)
    assert BrokerSite(spec).send(REPORT).desired == "running"
    monkeypatch.setenv("SECRET", "wrong")
    with pytest.raises(HeadraceError, match="password"):
        BrokerSite(spec).send(REPORT)


def test_each_thing_that_can_be_done_needs_its_own_permission(broker: Broker) -> None:
    admin, carol = (JsonApi(broker.http_url, credentials(broker, user)) for user in ("admin", "carol"))
    report: dict[str, Any] = {"instance": "a", "state": "running", "is_supervised": True}
    report |= {"source_topics": ["orders"], "dead_letter_topics": ["orders.dlq"]}
    admin.call("POST", "/pipelines/revenue/report", report)

    def is_refused(method: str, path: str) -> bool:
        try:
            carol.call(method, path, {} if method == "POST" else None)
        except ApiRefused as error:
            return error.status == 403
        return False

    assert carol.call("GET", "/pipelines")["total"] == 0
    assert is_refused("GET", "/pipelines/revenue")
    allow(broker, "carol", "DESCRIBE", "GROUP", "pipeline-revenue")
    assert carol.call("GET", "/pipelines")["total"] == 1
    assert carol.call("GET", "/pipelines/revenue")["state"] == "running"
    assert carol.call("GET", "/overview")["pipelines"][0]["name"] == "revenue"

    assert carol.call("GET", "/pipelines/revenue/dead-letters")["topics"][0]["is_readable"] is False
    allow(broker, "carol", "READ", "TOPIC", "orders.dlq")
    letters = carol.call("GET", "/pipelines/revenue/dead-letters")
    assert [(each["reason"], each["letters"]) for each in letters["reasons"]] == [("no", 1)]

    for path in ("stop", "start", "replay"):
        assert is_refused("POST", f"/pipelines/revenue/{path}")
    allow(broker, "carol", "ALTER_CONFIGS", "GROUP", "pipeline-revenue")
    assert not is_refused("POST", "/pipelines/revenue/stop")
    assert not is_refused("POST", "/pipelines/revenue/start")
    assert is_refused("POST", "/pipelines/revenue/replay")
    allow(broker, "carol", "WRITE", "TOPIC", "orders")
    assert not is_refused("POST", "/pipelines/revenue/replay")
    assert is_refused("POST", "/pipelines/revenue/report")
    assert is_refused("DELETE", "/pipelines/revenue")
