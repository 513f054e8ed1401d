"""`headrace produce --schema` and `headrace consume --decode` against a real broker."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from headrace import Client
from headrace.testing import Broker

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "data", "type": "bytes"},
            {"name": "note", "type": ["null", "string"], "default": None},
        ],
    }
)
DOCUMENT = '{"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}'
PROTO = 'syntax = "proto3"; message Other { bool x = 1; } message Order { int64 id = 1; bytes data = 2; }'


@pytest.fixture(scope="module")
def served() -> Iterator[Broker]:
    with Broker(settings={"num.partitions": 1}) as broker:
        yield broker


@pytest.fixture
def client(served: Broker) -> Iterator[Client]:
    with Client(served.bootstrap) as one:
        yield one


def run(broker: Broker, *arguments: str, text: str = "") -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "HEADRACE_BOOTSTRAP": broker.bootstrap},
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("form", "schema", "line"),
    [
        ("avro", ORDER, '{"id":1,"at":"2026-11-18T01:02:03Z","data":"AAE=","note":null}'),
        ("protobuf", PROTO, '{"id":9007199254740993,"data":"AAE="}'),
    ],
)
def test_lines_of_json_come_back(served: Broker, client: Client, form: str, schema: str, line: str) -> None:
    topic, subject = f"lines.{form}", f"lines.{form}-value"
    client.schemas.register(subject, schema, format=form)
    message = ("--message", "Order") if form == "protobuf" else ()
    assert run(served, "produce", topic, "--schema", subject, *message, text=f"{line}\n")[0] == 0
    (stored,) = client.replay(topic)
    assert stored.payload is not None
    assert stored.payload[:5] == b"\x00" + client.schemas.latest(subject).id.to_bytes(4, "big")
    assert run(served, "consume", topic, "-a", "--decode") == (0, f"{line}\n", "")


def test_the_line_that_a_topic_refuses_and_why(served: Broker, client: Client) -> None:
    """librdkafka does not show the reason in the broker's answer."""
    own = client.schemas.register("checked-value", '"string"').id
    other = client.schemas.register("unchecked-value", '"long"').id
    assert run(served, "topic", "create", "checked", "--set", "value.schema.validation=payload")[0] == 0

    def refused(*lines: bytes) -> str:
        values = [{"base64": base64.b64encode(each).decode()} for each in lines]
        text = "".join(json.dumps({"value": each}) + "\n" for each in values)
        code, _, errors = run(served, "produce", "checked", "--json", "--quiet", text=text)
        assert code == 1
        return errors

    good, foreign = b"\0" + own.to_bytes(4) + b"\x02a", b"\0" + other.to_bytes(4) + b"\x02"
    assert "line 2: value: the value does not begin with the id of a schema" in refused(good, b"plain")
    assert "line 1: value: " in refused(good[:-1])
    assert f"value: the schema {other} does not belong to the subject checked-value" in refused(foreign)
    assert f"value: the message was written with the schema {2**30}" in refused(b"\0" + (2**30).to_bytes(4))
    assert all(each.payload == good for each in client.replay("checked"))
    client.schemas._schemas.calls.call("PUT", "/config/checked-value", {"alias": "unchecked-value"})
    assert "line 2: value: the value does not begin" in refused(foreign, b"plain"), "it is a subject of that name, too"


def test_a_compacted_topic_needs_keys(served: Broker) -> None:
    assert run(served, "topic", "create", "compacted", "--set", "cleanup.policy=compact")[0] == 0
    code, _, errors = run(served, "produce", "compacted", "--key-separator", ":", "--quiet", text="a:1\n2\n")
    assert (code, "a compacted topic needs a key in every message (INVALID_RECORD)" in errors) == (1, True), errors


def test_a_topic_is_copied_through_json(served: Broker, client: Client) -> None:
    client.schemas.register("copied-value", '["string", "long"]')
    for value in ("5", 5, "text", None):
        client.publish("copied", value, schema="copied-value", key="k")
    code, lines, _ = run(served, "consume", "copied", "-a", "--decode", "--format", "json")
    shown = [json.loads(line) for line in lines.splitlines()]
    assert (code, [each["value"] for each in shown]) == (0, ["5", 5, "text", None])
    assert {each["schema"] for each in shown[:3]} == {client.schemas.latest("copied-value").id}
    assert run(served, "produce", "copy", "--json", "--schema", "copied-value", text=lines)[0] == 0
    first, second = ([each.payload for each in client.replay(topic)] for topic in ("copied", "copy"))
    assert first == second


def test_a_line_that_does_not_fit_is_refused_with_its_number(served: Broker, client: Client) -> None:
    client.schemas.register("refused-value", DOCUMENT, format="json-schema")
    code, _, error = run(served, "produce", "refused", "-s", "refused-value", text='{"id":1}\n{"id":"x"}\n')
    assert code == 1
    assert "line 2: " in error
    assert "id: 'x' is not of type 'integer'" in error
    code, _, error = run(served, "produce", "refused", "-s", "nowhere-value", text="{}\n")
    assert code == 1
    assert "headrace schema register nowhere-value FILE" in error


def test_what_cannot_be_decoded_is_shown_with_the_reason(served: Broker, client: Client) -> None:
    topic = "mixed"
    client.schemas.register("mixed-value", '"long"')
    serializer = client.schemas.serializer("mixed-value", in_header=True)
    schema_id = client.schemas.latest("mixed-value").id.to_bytes(4, "big")
    unknown = b"\x00\x00\x00\x03\x09\x02"
    client.publish(topic, 5, schema="mixed-value", key=b"\x00" + schema_id + b"\x0c")
    client.publish(topic, 6, schema=serializer, key=b"\x00" * 8)
    client.publish(topic, b"\x00" + schema_id + b"\x80")
    client.publish(topic, unknown)
    client.publish(topic, "plain text")
    client.publish(topic, None, key="gone")
    code, out, _ = run(served, "consume", topic, "-a", "-d")
    lines = out.splitlines()
    assert code == 0
    assert lines[:2] == ["5", "6"]
    assert json.loads(lines[2]) == {
        "error": "the bytes end before the value does",
        "base64": base64.b64encode(b"\x00" + schema_id + b"\x80").decode(),
    }
    assert "the schema 777, which is not in the registry" in json.loads(lines[3])["error"]
    assert lines[4:] == ["plain text", ""]
    code, out, _ = run(served, "consume", topic, "-a", "-d", "--format", "json")
    shown = [json.loads(line) for line in out.splitlines()]
    assert [each["value"] for each in shown[:2]] == [5, 6]
    assert shown[0]["key"] == "6"
    assert shown[1]["schema"] == client.schemas.latest("mixed-value").guid
    assert (shown[3]["schema"], shown[3]["value"]) == (777, unknown.decode())
    assert [each["value"] for each in shown[4:]] == ["plain text", None]
    assert "error" not in shown[4]
