"""The HTTP API against a real broker: keys, transport and limits."""

import logging
import re
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from headrace.admin import login
from headrace.admin.users import MAX_KEYS
from headrace.security.tls.dev_certificates import make_dev_certificates
from headrace.testing import Broker
from headrace.wire import Cluster

from .api import ADMIN, BOB, EVE, administered, basic, call, secured


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with pytest.MonkeyPatch.context() as patch, secured(patch) as one:
        yield one


@pytest.fixture
def url(broker: Broker) -> str:
    return broker.http_url


def delete_keys(url: str, name: str) -> None:
    for key in call(url, "GET", f"/users/{name}/keys", ADMIN).value["keys"]:
        assert call(url, "DELETE", f"/users/{name}/keys/{key['id']}", ADMIN).status == 204


def test_a_secret_is_shown_once(url: str) -> None:
    made = call(url, "POST", "/users/bob/keys", BOB)
    assert made.status == 201
    assert re.fullmatch(r"HR[A-Z2-7]{18}", made.value["id"])
    assert re.fullmatch(r"[A-Za-z0-9_-]{40}", made.value["secret"])
    assert made.headers["cache-control"] == "no-store"
    listed = call(url, "GET", "/users/bob/keys", BOB)
    (key,) = listed.value["keys"]
    assert key == {"id": made.value["id"], "user": "bob", "created": made.value["created"]}
    assert call(url, "DELETE", f"/users/bob/keys/{key['id']}", BOB).status == 204
    assert call(url, "GET", "/users/bob/keys", BOB).value == {"keys": []}
    assert call(url, "DELETE", f"/users/bob/keys/{key['id']}", BOB).value["error"] == "unknown_access_key"


def test_a_key_of_another_user_is_not_deleted_through_ones_own_path(url: str) -> None:
    made = call(url, "POST", "/users/eve/keys", EVE).value
    assert call(url, "DELETE", f"/users/bob/keys/{made['id']}", BOB).status == 404
    assert [key["id"] for key in call(url, "GET", "/users/eve/keys", EVE).value["keys"]] == [made["id"]]
    delete_keys(url, "eve")


def test_users_are_listed(url: str) -> None:
    users = call(url, "GET", "/users", ADMIN).value["users"]
    assert [each["name"] for each in users] == ["admin", "bob", "eve"]
    assert users[0]["mechanisms"] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert users[1]["mechanisms"] == ["SCRAM-SHA-256"]


def test_the_number_of_keys_is_limited(url: str) -> None:
    for _ in range(MAX_KEYS):
        assert call(url, "POST", "/users/eve/keys", EVE).status == 201
    refused = call(url, "POST", "/users/eve/keys", EVE)
    assert (refused.status, refused.value["error"]) == (409, "too_many_keys")
    delete_keys(url, "eve")


@pytest.mark.parametrize(
    "header", ["Basic", "Basic %%%", "Bearer abc", "Basic " + "A" * 5000, basic(("bob", "")), basic(("", "x"))]
)
def test_malformed_credentials_are_refused_like_wrong_ones(url: str, header: str) -> None:
    answer = call(url, "GET", "/users/bob/keys", headers={"Authorization": header})
    wrong = call(url, "GET", "/users/bob/keys", ("bob", "wrong"))
    assert answer.status == 401
    assert answer.value == wrong.value


def test_a_failure_is_delayed(url: str) -> None:
    began_s = time.monotonic()
    assert call(url, "GET", "/users/bob/keys", ("bob", "wrong")).status == 401
    assert time.monotonic() - began_s >= 0.1


def test_unknown_paths_and_methods(url: str) -> None:
    assert call(url, "GET", "/nothing", ADMIN).value["error"] == "unknown_path"
    assert call(url, "GET", "", ADMIN).value["error"] == "unknown_path"
    wrong_method = call(url, "DELETE", "/users", ADMIN)
    assert (wrong_method.status, wrong_method.value["error"]) == (405, "method_not_allowed")


def test_bodies_are_bounded_and_must_be_json(url: str) -> None:
    large = call(url, "POST", "/topics", ADMIN, body=b"x" * 70_000)
    assert (large.status, large.value["error"]) == (413, "too_large")
    assert call(url, "POST", "/topics", ADMIN, body=b"{").value["message"] == "the body is not JSON"
    wrong = call(url, "POST", "/session", None, {"user": "admin", "password": 53})
    assert wrong.status == 400
    assert "53" not in wrong.value["message"]
    as_form = call(url, "POST", "/topics", ADMIN, {}, headers={"Content-Type": "text/plain"})
    assert as_form.status == 415


def test_queues_are_served_on_all_other_paths(url: str) -> None:
    with socket.create_connection((urlsplit(url).hostname, urlsplit(url).port)) as plain:
        plain.sendall(b"GET /api/v2/?Action=ListQueues HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: plain.recv(65536), b""))
    assert b"ListQueuesResponse" in answer or b"ErrorResponse" in answer


def test_a_web_page_or_a_proxy_is_not_this_machine() -> None:
    with Broker() as broker:
        url = broker.http_url
        for name, value in (
            ("Host", "evil.example.org"),
            ("Origin", "https://evil.example.org"),
            ("Sec-Fetch-Site", "cross-site"),
            ("X-Forwarded-For", "203.0.113.5"),
        ):
            headers = {name: value}
            assert call(url, "GET", "/users", headers=headers).status == 403, name
            assert call(url, "POST", "/topics", None, {"name": "planted"}, headers=headers).status == 403, name
        assert call(url, "GET", "/users").value == {"users": []}


def test_without_authorization_this_machine_may_do_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    with administered(monkeypatch) as broker:
        url = broker.http_url
        assert call(url, "GET", "/users").status == 200
        assert call(url, "POST", "/users/bob/keys").status == 201
        monkeypatch.setattr(login, "is_loopback", lambda host: False)
        assert call(url, "GET", "/users").status == 403
        refused = call(url, "GET", "/users", ADMIN)
        assert (refused.status, refused.value["error"]) == (403, "forbidden")
        assert "TLS" in refused.value["message"]


def test_over_tls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = make_dev_certificates(tmp_path)
    settings = {
        "http.listen": "https://127.0.0.1:0",
        "tls.cert.file": made.broker.cert_file,
        "tls.key.file": made.broker.key_file,
    }
    trusts = ssl.create_default_context(cafile=str(made.ca.cert_file))
    monkeypatch.setenv("HEADRACE_INITIAL_ADMIN", ":".join(ADMIN))
    with Broker(settings={**settings, "authorization.enable": True}) as broker:
        monkeypatch.setattr(login, "is_loopback", lambda host: False)
        assert call(broker.http_url, "GET", "/users", tls=trusts).status == 401
        assert call(broker.http_url, "GET", "/users", ADMIN, tls=trusts).status == 200


def test_deleting_a_user_deletes_its_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    with administered(monkeypatch) as broker, Cluster(broker.bootstrap) as cluster:
        url = broker.http_url
        assert call(url, "POST", "/users/bob/keys").status == 201
        cluster.delete_credential("bob", "SCRAM-SHA-256")
        assert call(url, "GET", "/users/bob/keys").status == 404
        cluster.set_password("bob", "another", "SCRAM-SHA-512")
        assert call(url, "GET", "/users/bob/keys").value == {"keys": []}


def test_no_secret_is_logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with administered(monkeypatch) as broker:
        url = broker.http_url
        call(url, "POST", "/session", None, {"user": "bob", "password": "planted-1"})
        call(url, "POST", "/session", None, {"user": "bob", "password": ["planted-2"]})
        call(url, "GET", "/users", ("admin", "planted-3"))
        secret = call(url, "POST", "/users/bob/keys", BOB).value["secret"]
    text = caplog.text
    assert "failed to authenticate over HTTP" in text
    assert "planted" not in text
    assert secret not in text
    assert ADMIN[1] not in text
