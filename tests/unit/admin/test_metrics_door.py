"""`GET /metrics` of a real broker: formats, who may read it, and what it refuses."""

import ssl
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

from headrace.security.tls.dev_certificates import make_dev_certificates
from headrace.testing import Broker

from .api import ADMIN, BOB, Account, basic, secured


class Scraped(NamedTuple):
    status: int
    text: str
    headers: Mapping[str, str]


def scrape(
    url: str,
    account: Account | None = None,
    *,
    method: str = "GET",
    path: str = "/metrics",
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> Scraped:
    where = urlsplit(url)
    made: HTTPConnection = (
        HTTPSConnection(where.netloc, timeout=30, context=tls) if tls else HTTPConnection(where.netloc, timeout=30)
    )
    login = {"Authorization": basic(account)} if account else {}
    try:
        made.request(method, path, headers={**login, **(headers or {})})
        answer = made.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return Scraped(answer.status, answer.read().decode(), found)
    finally:
        made.close()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as one:
        yield one


@pytest.fixture(scope="module")
def guarded() -> Iterator[Broker]:
    with pytest.MonkeyPatch.context() as patch, secured(patch) as one:
        yield one


def test_prometheus_text_by_default(broker: Broker) -> None:
    answer = scrape(broker.http_url)
    assert (answer.status, answer.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    found = {sample.name: sample for family in parse_prometheus(answer.text) for sample in family.samples}
    assert found["process_resident_memory_bytes"].value > 1_000_000
    assert found["process_cpu_seconds_total"].value > 0
    assert found["headrace_broker_info"].labels["broker_id"] == "0"
    assert found["headrace_scrape_errors_total"].value == 0


def test_openmetrics_on_request(broker: Broker) -> None:
    answer = scrape(broker.http_url, headers={"Accept": "application/openmetrics-text;version=1.0.0"})
    assert answer.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    families = {family.name: family for family in parse_openmetrics(answer.text)}
    assert families["process_cpu_seconds"].type == "counter"
    assert families["headrace_build"].type == "info"
    assert families["headrace_event_loop_lag_seconds"].type == "histogram"


def test_other_methods_and_paths(broker: Broker) -> None:
    assert scrape(broker.http_url, method="HEAD").text == ""
    refused = scrape(broker.http_url, method="POST")
    assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")
    assert scrape(broker.http_url, path="/metrics/of").status == 404


def test_a_page_of_another_site_is_refused(broker: Broker) -> None:
    assert scrape(broker.http_url, headers={"Origin": "https://evil.example.org"}).status == 403
    assert scrape(broker.http_url, headers={"Host": "evil.example.org"}).status == 403


def test_with_authorization_it_needs_describe_on_the_cluster(guarded: Broker) -> None:
    url = guarded.http_url
    anonymous = scrape(url)
    assert (anonymous.status, "describe on the cluster" in anonymous.text) == (401, True)
    assert anonymous.headers["www-authenticate"].startswith("Basic ")
    assert scrape(url, (ADMIN[0], "wrong")).status == 401
    assert scrape(url, BOB).status == 403
    answer = scrape(url, ADMIN)
    assert (answer.status, "headrace_build_info" in answer.text) == (200, True)


def test_anonymous_scrapes_if_they_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    with secured(monkeypatch, **{"metrics.allow.anonymous": True}) as broker:
        assert scrape(broker.http_url).status == 200
        assert scrape(broker.http_url, headers={"X-Forwarded-For": "203.0.113.5"}).status == 200


def test_over_tls_with_the_expiry_of_the_certificate(tmp_path: Path) -> None:
    made = make_dev_certificates(tmp_path)
    settings = {
        "http.listen": "https://127.0.0.1:0",
        "tls.cert.file": made.broker.cert_file,
        "tls.key.file": made.broker.key_file,
    }
    with Broker(settings=settings) as broker:
        answer = scrape(broker.http_url, tls=ssl.create_default_context(cafile=str(made.ca.cert_file)))
        found = {sample.name: sample.value for family in parse_prometheus(answer.text) for sample in family.samples}
        assert found["headrace_certificate_expiry_seconds"] > 86_400


def test_logins_and_denials_are_counted(guarded: Broker) -> None:
    def counts() -> dict[tuple[str, ...], float]:
        families = {family.name: family for family in parse_prometheus(scrape(guarded.http_url, ADMIN).text)}
        found = families["headrace_logins"].samples + families["headrace_authorization_denied"].samples
        return {tuple(sample.labels.values()): sample.value for sample in found}

    scrape(guarded.http_url, BOB)
    before = counts()
    assert scrape(guarded.http_url, BOB).status == 403
    assert scrape(guarded.http_url, (ADMIN[0], "wrong")).status == 401
    now = counts()
    assert now["DESCRIBE", "CLUSTER"] == before["DESCRIBE", "CLUSTER"] + 1
    failed = {key: value for key, value in now.items() if key[1] == "failure"}
    assert sum(failed.values()) == 1 + sum(before.get(key, 0) for key in failed)
    assert sum(value for key, value in now.items() if key[1] == "success") > 1


def test_what_is_allowed_is_counted_when_it_is_checked(guarded: Broker) -> None:
    def allowed() -> float:
        found = {family.name: family for family in parse_prometheus(scrape(guarded.http_url, ADMIN).text)}
        samples = found["headrace_authorization_allowed"].samples
        return sum(each.value for each in samples if each.labels["operation"] == "DESCRIBE")

    before = allowed()
    assert scrape(guarded.http_url, BOB).status == 403
    assert allowed() == before + 1
