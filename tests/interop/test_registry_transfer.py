"""Schemas move between registries in the records of `_schemas`, which Kafka's tools and other registries read."""

import json
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.cli.schema.transfer import read_records
from headrace.testing import Broker
from tests.interop.registry_client import ORDER, WITH_NOTE, Refusal, RegistryClient
from tests.waiting import until

FIELDS = {
    "SCHEMA": ["keytype", "subject", "version", "magic"],
    "CONFIG": ["keytype", "subject", "magic"],
    "MODE": ["keytype", "subject", "magic"],
    "DELETE_SUBJECT": ["keytype", "subject", "magic"],
    "NOOP": ["keytype", "magic"],
}
"""The fields of each kind of key, in the order in which Confluent's registry writes them."""
MAGIC = {"SCHEMA": 1, "CONFIG": 0, "MODE": 0, "DELETE_SUBJECT": 0, "NOOP": 0}

FOREIGN = [
    ('{"keytype":"NOOP","magic":0}', "null"),
    ('{"keytype":"CONFIG","subject":null,"magic":0}', '{"compatibilityLevel":"FULL"}'),
    (
        '{"keytype":"SCHEMA","subject":"whole-value","version":3,"magic":1}',
        json.dumps(
            {
                "subject": "whole-value",
                "version": 3,
                "id": 41,
                "md5": "x",
                "schema": '{"type":"record","name":"W","fields":[{"name":"p","type":"P"}]}',
                "schemaTags": None,
                "deleted": False,
                "references": [{"name": "P", "subject": "part-value", "version": 1}],
            }
        ),
    ),
    (
        '{"keytype":"SCHEMA","subject":"part-value","version":1,"magic":1}',
        '{"subject":"part-value","version":1,"id":42,"schema":"{\\"type\\":\\"fixed\\",\\"name\\":\\"P\\",\\"size\\":1}"}',
    ),
    (
        '{"keytype":"SCHEMA","subject":"old-value","version":1,"magic":1}',
        '{"subject":"old-value","version":1,"id":7,"schema":"\\"string\\"","deleted":false}',
    ),
    ('{"keytype":"DELETE_SUBJECT","subject":"old-value","magic":0}', '{"subject":"old-value","version":1}'),
    (
        '{"keytype":"SCHEMA","subject":"gone-value","version":1,"magic":1}',
        '{"subject":"gone-value","version":1,"id":9,"schema":"\\"int\\""}',
    ),
    ('{"keytype":"SCHEMA","subject":"gone-value","version":1,"magic":1}', "null"),
]
"""Records as another registry writes them; a schema comes before the one that it refers to."""


def _records(broker: Broker, count: int) -> list[tuple[str, str]]:
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "tool", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    found: list[tuple[str, str]] = []

    def has_all() -> bool:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            value = message.value()
            found.append((message.key().decode(), "null" if value is None else value.decode()))
        return len(found) >= count

    try:
        consumer.subscribe(["_schemas"])
        until(has_all, what="the records of _schemas")
    finally:
        consumer.close()
    return found


def _run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["schema", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_kafka_tools_read_the_records_of_confluents_format_and_they_move_to_another_registry(tmp_path: Path) -> None:
    with Broker() as first, Broker() as second:
        registry = RegistryClient(f"{first.http_url}/registry")
        ids = [registry.register("orders-value", ORDER), registry.register("orders-value", WITH_NOTE)]
        registry.register("gone-value", '"int"')
        registry.call("DELETE", "/subjects/gone-value")
        registry.call("DELETE", "/subjects/orders-value/versions/1")
        registry.call("PUT", "/config/orders-value", {"compatibility": "FULL"})
        registry.call("PUT", "/mode/gone-value", {"mode": "READONLY"})

        records = _records(first, 7)
        for key, value in records:
            parsed = json.loads(key)
            assert [*parsed] == FIELDS[parsed["keytype"]]
            assert parsed["magic"] == MAGIC[parsed["keytype"]]
            if parsed["keytype"] == "SCHEMA":
                stored = json.loads(value)
                assert {"subject", "version", "id", "schema"} <= stored.keys()
                assert (stored["subject"], stored["version"]) == (parsed["subject"], parsed["version"])

        dump, export = tmp_path / "dump.txt", tmp_path / "export.txt"
        dump.write_text("".join(f"{key}\t{value}\n" for key, value in records))
        _run("export", str(export), "--http", first.http_url)
        other = RegistryClient(f"{second.http_url}/registry")
        for file in (dump, export):
            assert "3 versions imported" in _run("import", str(file), "--force", "--http", second.http_url)
            assert other.call("GET", "/subjects/orders-value/versions?deleted=true&deletedAsNegative=true") == [-1, 2]
            assert other.call("GET", "/subjects/orders-value/versions/2")["id"] == ids[1]
            assert other.call("GET", "/subjects?deletedOnly=true") == ["gone-value"]
            assert other.call("GET", "/config/orders-value") == {"compatibilityLevel": "FULL"}
            assert other.call("GET", "/mode/gone-value") == {"mode": "READONLY"}
        with pytest.raises(Refusal):
            other.call("GET", "/mode/orders-value")
        assert other.register("new-value", '"long"') > max(ids)


def test_kcat_reads_the_topic_as_the_documentation_says(tmp_path: Path) -> None:
    with Broker() as broker:
        registry = RegistryClient(f"{broker.http_url}/registry")
        number = registry.register("orders-value", ORDER)
        registry.register("gone-value", '"int"')
        registry.call("DELETE", "/subjects/gone-value")
        registry.call("DELETE", "/subjects/gone-value?permanent=true")
        command = ["kcat", "-b", broker.bootstrap, "-t", "_schemas", "-C", "-e", "-q", "-Z", "-K", "\t"]
        printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    machine = read_records(printed.splitlines(keepends=True))
    assert machine.subjects() == ["orders-value"]
    assert (machine.version("orders-value", 1).id, machine.highest_id(".")) == (number, number + 1)


def test_a_topic_of_another_registry_is_taken_over(tmp_path: Path) -> None:
    file = tmp_path / "records.txt"
    file.write_text("".join(f"{key}\t{value}\n" for key, value in FOREIGN))
    with Broker() as broker:
        assert "3 versions imported" in _run("import", str(file), "--http", broker.http_url)
        registry = RegistryClient(f"{broker.http_url}/registry")
        assert registry.call("GET", "/subjects") == ["part-value", "whole-value"]
        whole = registry.call("GET", "/subjects/whole-value/versions/3")
        assert (whole["id"], whole["references"][0]["subject"]) == (41, "part-value")
        assert registry.call("GET", "/subjects/old-value/versions/1?deleted=true")["id"] == 7
        assert registry.call("GET", "/config") == {"compatibilityLevel": "FULL"}
        assert registry.register("next-value", '"bytes"') == 43


def test_settings_without_versions_and_the_highest_ids_are_exported(tmp_path: Path) -> None:
    file = tmp_path / "export.txt"
    with Broker() as first, Broker() as second:
        registry = RegistryClient(f"{first.http_url}/registry")
        registry.register(":.shop:orders-value", ORDER)
        registry.register("gone-value", '"int"')
        gone = registry.register("gone-value", '["int", "null"]')
        registry.call("DELETE", "/subjects/gone-value")
        registry.call("DELETE", "/subjects/gone-value?permanent=true")
        registry.call("PUT", "/config/:.shop:", {"compatibility": "FULL"})
        registry.call("PUT", "/mode/:.shop:", {"mode": "READONLY"})
        registry.call("PUT", "/config/short-value", {"alias": "orders-value"})

        _run("export", str(file), "--http", first.http_url)
        assert "1 versions imported" in _run("import", str(file), "--http", second.http_url)
        other = RegistryClient(f"{second.http_url}/registry")
        assert other.call("GET", "/config/:.shop:") == {"compatibilityLevel": "FULL"}
        assert other.call("GET", "/mode/:.shop:") == {"mode": "READONLY"}
        assert other.call("GET", "/config/short-value") == {"alias": "orders-value"}
        assert other.register("next-value", '"bytes"') == gone + 1


def test_a_failed_import_sets_the_modes_back(tmp_path: Path) -> None:
    file = tmp_path / "records.txt"
    with file.open("w") as lines:
        for number, subject, text in ((3, "a-value", '"int"'), (4, "b-value", "no schema")):
            key = {"keytype": "SCHEMA", "subject": subject, "version": 1, "magic": 1}
            value = {"subject": subject, "version": 1, "id": number, "schema": text}
            lines.write(f"{json.dumps(key)}\t{json.dumps(value)}\n")
    with Broker() as broker:
        registry = RegistryClient(f"{broker.http_url}/registry")
        registry.call("PUT", "/mode/b-value", {"mode": "READONLY"})
        result = CliRunner().invoke(app, ["schema", "import", str(file), "--http", broker.http_url])
        assert "b-value with the id 4" in str(result.exception)
        assert registry.call("GET", "/mode/b-value") == {"mode": "READONLY"}
        assert registry.register("a-value", '"int"') == 3, "a registration is not refused: the mode is READWRITE"
