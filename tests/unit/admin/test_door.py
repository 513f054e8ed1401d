"""The HTTP API against a real broker: keys, transport, limits, and turning authorization on."""

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
    large = call(url, "POST", "/secure", ADMIN, body=b"x" * 70_000)
    assert (large.status, large.value["error"]) == (413, "too_large")
    assert call(url, "POST", "/secure", ADMIN, body=b"{").value["message"] == "the body is not JSON"
    wrong = call(url, "POST", "/secure", ADMIN, {"admin": "admin", "password": 53})
    assert wrong.status == 400
    assert "53" not in wrong.value["message"]
    as_form = call(url, "POST", "/secure", ADMIN, {}, headers={"Content-Type": "text/plain"})
    assert as_form.status == 415


def test_securing_again_changes_nothing(url: str) -> None:
    again = call(url, "POST", "/secure", ADMIN, {"admin": "admin", "password": "another"})
    assert again.value == {"admin": "admin", "created": False, "authorization": True, "was_secured": True}
    assert call(url, "GET", "/users", ADMIN).status == 200
    assert call(url, "GET", "/users", ("admin", "another")).status == 401


def test_a_user_who_exists_does_not_become_administrator(url: str) -> None:
    refused = call(url, "POST", "/secure", ADMIN, {"admin": "bob", "password": BOB[1]})
    assert (refused.status, refused.value["error"]) == (409, "not_an_administrator")
    assert call(url, "GET", "/users", BOB).status == 403


def test_queues_are_served_on_all_other_paths(url: str) -> None:
    with socket.create_connection((urlsplit(url).hostname, urlsplit(url).port)) as plain:
        plain.sendall(b"GET /api/v2/?Action=ListQueues HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: plain.recv(65536), b""))
    assert b"ListQueuesResponse" in answer or b"ErrorResponse" in answer


def test_the_first_administrator_is_made_without_credentials_and_then_no_other() -> None:
    with Broker() as broker:
        url = broker.http_url
        empty = call(url, "POST", "/secure", None, {"admin": "root", "password": ""})
        assert (empty.status, empty.value["error"]) == (400, "invalid_request")
        made = call(url, "POST", "/secure", None, {"admin": "root", "password": "planted"})
        assert made.value == {"admin": "root", "created": True, "authorization": True, "was_secured": False}
        assert call(url, "POST", "/secure", None, {"admin": "mallory", "password": "x"}).status == 401
        listed = call(url, "GET", "/users", ("root", "planted"))
        assert [each["name"] for each in listed.value["users"]] == ["root"]
        broker.restart()
        assert call(broker.http_url, "GET", "/users").status == 401
        assert call(broker.http_url, "GET", "/users", ("root", "planted")).status == 200


def test_the_user_of_brokers_does_not_count() -> None:
    settings = {
        "listeners": "sasl_plain://127.0.0.1:0",
        "inter.broker.user": "broker",
        "inter.broker.password": "planted",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    }
    with Broker(settings=settings) as broker:
        made = call(broker.http_url, "POST", "/secure", None, {"admin": "root", "password": "secret"})
        assert made.value["created"] is True
        assert [each["name"] for each in call(broker.http_url, "GET", "/users", ("root", "secret")).value["users"]] == [
            "broker",
            "root",
        ]


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
            refused = call(url, "POST", "/secure", None, {"admin": "mallory", "password": "x"}, headers=headers)
            assert refused.status == 401, name
        assert call(url, "GET", "/users").value == {"users": []}


def test_without_authorization_this_machine_may_do_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    with administered(monkeypatch) as broker:
        url = broker.http_url
        assert call(url, "GET", "/users").status == 200
        assert call(url, "POST", "/users/bob/keys").status == 201
        # Authorization can be turned on by an administrator only, since there are users.
        for account in (None, BOB):
            answer = call(url, "POST", "/secure", account, {"admin": "mallory", "password": "x"})
            assert answer.status == (401 if account is None else 403)
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
        call(url, "POST", "/secure", ADMIN, {"admin": "new", "password": "planted-1"})
        call(url, "POST", "/secure", ADMIN, {"admin": "newer", "password": ["planted-2"]})
        call(url, "GET", "/users", ("admin", "planted-3"))
        secret = call(url, "POST", "/users/bob/keys", BOB).value["secret"]
    text = caplog.text
    assert "failed to authenticate over HTTP" in text
    assert "planted" not in text
    assert secret not in text
    assert ADMIN[1] not in text
