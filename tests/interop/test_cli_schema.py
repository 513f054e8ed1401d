"""`headrace schema` against a real broker."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.testing import Broker

from .command_line import headrace

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture(scope="module")
def served() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def _run(broker: Broker, *arguments: str, text: str = "") -> tuple[int, str, str]:
    done = headrace("schema", *arguments, "--http", broker.http_url, text=text)
    return done.returncode, done.stdout, done.stderr


def test_a_schemas_life(served: Broker, tmp_path: Path) -> None:
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(ORDER))
    assert _run(served, "check", "orders-value", str(file))[0] == 0
    assert _run(served, "register", "orders-value", str(file)) == (0, "orders-value version 1 has the id 1\n", "")
    wider = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": ""}]}
    file.write_text(json.dumps(wider))
    code, out, _ = _run(served, "register", "orders-value", str(file), "--json")
    assert (code, json.loads(out)) == (0, {"subject": "orders-value", "version": 2, "id": 2})
    code, out, _ = _run(served, "diff", "orders-value", "1", "2")
    assert '+      "name": "note",' in out
    code, out, _ = _run(served, "list")
    assert "orders-value" in out
    assert "AVRO" in out
    assert json.loads(_run(served, "show", "1")[1]) == ORDER
    broken = {**ORDER, "fields": [{"name": "number", "type": "long"}]}
    code, out, _ = _run(served, "check", "orders-value", "-", "--type", "avro", text=json.dumps(broken))
    assert code == 1
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in out
    file.write_text(json.dumps(broken))
    code, _, error = _run(served, "register", "orders-value", str(file))
    assert code == 1
    assert "incompatible with an earlier schema" in error
    assert _run(served, "config", "orders-value", "--set", "none")[1] == "NONE\n"
    assert _run(served, "register", "orders-value", str(file))[0] == 0
    assert _run(served, "config", "orders-value", "--unset")[1] == "BACKWARD\n"
    assert _run(served, "mode", "orders-value", "--set", "readonly")[1] == "READONLY\n"
    code, _, error = _run(served, "delete", "orders-value")
    assert (code, error) == (1, "headrace: Subject orders-value is in read-only mode\n")
    assert _run(served, "mode", "orders-value", "--unset")[1] == "READWRITE\n"
    assert _run(served, "delete", "orders-value")[0] == 0
    assert _run(served, "delete", "orders-value", "--permanent", "--yes")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("register", "s", "missing.avsc"), "missing.avsc cannot be read: No such file or directory"),
        (("register", "s", "order.txt"), "the type of order.txt is not clear: give --type AVRO, JSON or PROTOBUF"),
        (("register", "s", "x.avsc", "--type", "xml"), "--type xml is none of AVRO, JSON, PROTOBUF"),
        (("show", "nothing"), "Subject 'nothing' not found."),
        (("show", "4711"), "Schema 4711 not found"),
    ],
)
def test_errors_say_what_to_do(
    served: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "order.txt").write_text("{}")
    (tmp_path / "x.avsc").write_text("{}")
    code, out, error = _run(served, *arguments)
    assert code in (1, 2)
    assert error.strip() == f"headrace: {reason}"
    assert not out
