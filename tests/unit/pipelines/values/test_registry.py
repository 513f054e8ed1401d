"""Requests to a registry, which may be slow, wrong or gone; and the decisions about schemas that a pipeline makes."""

import base64
import json
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from headrace.config.credentials import Credentials
from headrace.pipelines.avro.values import AvroValues
from headrace.pipelines.values.registry import RegistryUnavailable, SchemaRegistry
from headrace.pipelines.values.schemas import WriterSchema
from headrace.pipelines.values.types import SchemaError

TEXT = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]})


class FakeRegistry:
    """Answers paths with what it was told; anything else is not found. Remembers what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.failures = 0
        self.moved: dict[str, str] = {}
        self.asked: list[str] = []
        self.authorization: str | None = None
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append(self.path)
                registry.authorization = self.headers.get("Authorization")
                answer = registry.answers.get(self.path)
                if self.path in registry.moved:
                    self.send_response(302)
                    self.send_header("Location", registry.moved[self.path])
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                if registry.failures:
                    registry.failures -= 1
                    status, body = 500, b"out of order"
                elif answer is None:
                    status, body = 404, b'{"error_code": 40403, "message": "Schema not found"}'
                else:
                    status, body = 200, answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(60)


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    fake = FakeRegistry()
    yield fake
    fake.close()


def test_references_come_with_a_schema(registry: FakeRegistry) -> None:
    inner = json.dumps({"type": "enum", "name": "Kind", "symbols": ["A"]})
    middle = json.dumps({"type": "record", "name": "Middle", "fields": [{"name": "kind", "type": "Kind"}]})
    outer = json.dumps({"type": "record", "name": "Outer", "fields": [{"name": "m", "type": "Middle"}]})
    registry.answers = {
        "/subjects/orders-value/versions/latest": {
            "schema": outer, "id": 3, "references": [{"name": "Middle", "subject": "a/b", "version": 2}],
        },
        "/subjects/a%2Fb/versions/2": {
            "schema": middle, "references": [{"name": "Kind", "subject": "kind", "version": 1}],
        },
        "/subjects/kind/versions/1": {"schema": inner},
    }  # fmt: skip
    found = SchemaRegistry(registry.url).latest("orders-value")
    assert found.schema == WriterSchema(outer, (("Kind", inner), ("Middle", middle)))
    assert AvroValues(outer, references=found.schema.references).ddl == "`m` STRUCT<`kind`: STRING>"


def test_a_failure_that_passes_is_waited_for(registry: FakeRegistry) -> None:
    registry.answers["/schemas/ids/7"] = {"schema": TEXT}
    registry.failures = 2
    assert SchemaRegistry(registry.url).by_id(7) is not None


@pytest.mark.parametrize("answer", [b"<html>", b"[1]", b'{"x": 1}'])
def test_answers_that_make_no_sense_say_so(registry: FakeRegistry, answer: bytes) -> None:
    registry.answers["/schemas/ids/7"] = answer
    with pytest.raises(RegistryUnavailable, match="registry at"):
        SchemaRegistry(registry.url).by_id(7)


def test_nobody_answers(registry: FakeRegistry) -> None:
    url = registry.url
    registry.close()
    with pytest.raises(RegistryUnavailable, match=str(registry.port)):
        SchemaRegistry(url, timeout_s=1).by_id(7)


def test_name_and_password_are_sent_and_not_shown(registry: FakeRegistry) -> None:
    registry.answers["/schemas/ids/7"] = {"schema": TEXT}
    url = registry.url.replace("http://", "http://me:s%40crat@")
    assert SchemaRegistry(url).by_id(7) is not None
    assert registry.authorization == "Basic " + base64.b64encode(b"me:s@crat").decode()
    registry.failures = 100
    with pytest.raises(RegistryUnavailable) as caught:
        SchemaRegistry(url).by_id(8)
    assert "crat" not in str(caught.value)


@pytest.mark.parametrize("password", ["s3c/ret", "s3c?ret", "s3c#ret", "s3c@x/ret"])
def test_a_password_with_a_character_of_addresses_is_not_shown(password: str, registry: FakeRegistry) -> None:
    with pytest.raises(SchemaError, match="write %2F") as caught:
        SchemaRegistry(f"http://me:{password}@registry:8081")
    assert "s3c" not in str(caught.value)
    registry.answers["/schemas/ids/7"] = {"schema": TEXT}
    quoted = urllib.parse.quote(password, safe="")
    assert SchemaRegistry(registry.url.replace("//", f"//me:{quoted}@")).by_id(7) is not None
    assert registry.authorization == "Basic " + base64.b64encode(f"me:{password}".encode()).decode()


@pytest.mark.parametrize("url", ["me:s3cret@registry:8081", "htp://me:s3cret@registry", "http://me:s3cret@[registry"])
def test_what_is_no_address_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(SchemaError, match="not an address") as caught:
        SchemaRegistry(url)
    assert "s3cret" not in str(caught.value)


def test_a_password_does_not_follow_to_another_host(registry: FakeRegistry) -> None:
    other = FakeRegistry()
    other.answers["/schemas/ids/7"] = registry.answers["/there"] = {"schema": TEXT}
    registry.moved = {"/schemas/ids/7": f"{other.url}/schemas/ids/7", "/schemas/ids/8": f"{registry.url}/there"}
    found = SchemaRegistry(registry.url.replace("http://", "http://me:s3cret@"))
    try:
        with pytest.raises(RegistryUnavailable, match="302 and redirects to 127"):
            found.by_id(7)
        assert not other.asked
        assert found.by_id(8) == WriterSchema(TEXT)
    finally:
        other.close()


def test_references_in_a_circle_are_refused(registry: FakeRegistry) -> None:
    one, two = ({"name": name, "subject": name, "version": 1} for name in ("one", "two"))
    registry.answers = {
        "/schemas/ids/7": {"schema": TEXT, "references": [one]},
        "/subjects/one/versions/1": {"schema": TEXT, "references": [two]},
        "/subjects/two/versions/1": {"schema": TEXT, "references": [one]},
    }
    with pytest.raises(SchemaError, match="version 1 of two refers to version 1 of one, which refers to it"):
        SchemaRegistry(registry.url).by_id(7)


def test_a_subject_that_is_not_there(registry: FakeRegistry) -> None:
    with pytest.raises(SchemaError, match="no subject nothing"):
        SchemaRegistry(registry.url).latest("nothing")


def test_another_address_is_asked_if_one_does_not_answer(registry: FakeRegistry) -> None:
    registry.answers["/schemas/ids/7"] = {"schema": TEXT}
    assert SchemaRegistry(["http://127.0.0.1:1", registry.url]).by_id(7) == WriterSchema(TEXT)


def test_a_password_is_sent_to_this_machine_or_over_tls(registry: FakeRegistry) -> None:
    login = Credentials(user="ada", password="p:w")
    registry.answers["/schemas/ids/7"] = {"schema": TEXT}
    assert SchemaRegistry(registry.url, credentials=login).by_id(7) is not None
    assert registry.authorization == "Basic " + base64.b64encode(b"ada:p:w").decode()
    with pytest.raises(RegistryUnavailable, match="over https only"):
        SchemaRegistry("http://registry.example:8081", credentials=login)
