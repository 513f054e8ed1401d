"""Schemas from files and from a registry, which may be slow, wrong or gone."""

import base64
import json
import pickle
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.pipelines.avro.registry import RegistryUnavailable, SchemaFiles, SchemaRegistry, avro_values
from headrace.pipelines.avro.schema import SchemaError

TEXT = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]})
VALUE = b"\x02a"


class FakeRegistry:
    """Answers paths with what it was told; anything else is not found. Remembers what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.failures = 0
        self.asked: list[str] = []
        self.authorization: str | None = None
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append(self.path)
                registry.authorization = self.headers.get("Authorization")
                answer = registry.answers.get(self.path)
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


def framed(schema_id: int) -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + VALUE


def test_a_schema_is_asked_for_once(registry: FakeRegistry) -> None:
    registry.answers["/schemas/ids/7"] = {"schema": TEXT}
    source = SchemaRegistry(registry.url + "/")
    for _ in range(3):
        found = source.by_id(7)
        assert found is not None
        assert found.text == TEXT
    assert registry.asked == ["/schemas/ids/7"]


def test_an_unknown_id_is_not_asked_for_every_time(registry: FakeRegistry) -> None:
    source = SchemaRegistry(registry.url)
    assert source.by_id(8) is source.by_id(8) is None
    assert registry.asked == ["/schemas/ids/8"]


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
    values = avro_values(registry=registry.url, subject="orders-value")
    assert values.ddl == "`m` STRUCT<`kind`: STRING>"


def test_values_are_read_by_the_registrys_ids_also_in_another_process(registry: FakeRegistry) -> None:
    registry.answers = {
        "/subjects/orders-value/versions/latest": {"schema": TEXT, "id": 7},
        "/schemas/ids/7": {"schema": TEXT},
        "/schemas/ids/9": {"schema": "message M {}", "schemaType": "PROTOBUF"},
    }
    sent = pickle.dumps(avro_values(registry=registry.url, subject="orders-value"))
    values = pickle.loads(sent)
    found = values.decode(pa.array([framed(7), framed(8), framed(9)]))
    assert found.columns.to_pylist() == [{"id": "a"}, None, None]
    assert found.reasons.to_pylist()[:2] == [None, "there is no schema of id 8"]
    assert "PROTOBUF" in found.reasons.to_pylist()[2]
    asked = list(registry.asked)
    assert pickle.loads(sent).decode(pa.array([framed(7)])).columns.to_pylist() == [{"id": "a"}]
    assert registry.asked == asked, "another task of the same worker asks again"


def test_a_failure_that_passes_is_waited_for(registry: FakeRegistry) -> None:
    registry.answers["/schemas/ids/7"] = {"schema": TEXT}
    registry.failures = 2
    assert SchemaRegistry(registry.url).by_id(7) is not None


def test_a_registry_that_fails_is_no_fault_of_a_value(registry: FakeRegistry) -> None:
    registry.failures = 100
    values = avro_values(registry=registry.url, schema=TEXT)
    with pytest.raises(RegistryUnavailable, match="500"):
        values.decode(pa.array([framed(7)]))
    registry.failures = 0
    registry.answers["/schemas/ids/7"] = {"schema": TEXT}
    assert values.decode(pa.array([framed(7)])).columns.to_pylist() == [{"id": "a"}]


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


def test_files_by_id(tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(TEXT)
    sent = pickle.dumps(avro_values(schemas={"7": "order.avsc"}, folder=tmp_path))
    values = pickle.loads(sent)
    assert pickle.loads(sent) is values
    found = values.decode(pa.array([framed(7), framed(8)]))
    assert found.columns.to_pylist() == [{"id": "a"}, None]
    assert found.reasons.to_pylist() == [None, "there is no schema of id 8"]
    assert SchemaFiles({}).by_id(1) is None


def test_one_file_for_values_without_ids(tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(TEXT)
    assert avro_values(schema="order.avsc", folder=tmp_path).decode(pa.array([VALUE])).columns.to_pylist() == [
        {"id": "a"}
    ]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "needs a schema"),
        ({"schema": "missing.avsc"}, "missing.avsc cannot be read: No such file"),
        ({"schemas": {"one": "order.avsc"}}, "'one' is not the id"),
        ({"registry": "registry:8081", "subject": "x"}, "not the address"),
        ({"registry": "http://127.0.0.1:1"}, "needs a subject"),
    ],
)
def test_what_is_wrong_with_a_pipelines_file_is_said(options: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=reason):
        avro_values(**options, folder=tmp_path)


def test_a_subject_that_is_not_there(registry: FakeRegistry) -> None:
    with pytest.raises(SchemaError, match="no subject nothing"):
        avro_values(registry=registry.url, subject="nothing")
