"""`headrace pipeline dlq list --json`: letters as programs read them."""

import json

from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.model.failure_headers import REASON
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.wire import Cluster


def test_keys_and_values_are_json_where_they_are_objects_or_arrays(headrace_session_broker):
    address = headrace_session_broker.bootstrap
    letters: list[tuple[bytes | None, bytes | None]] = [
        (b'{"id": 7}', b'{"amount": "lots", "tags": ["a"]}'),
        (b"user", b'{"cut'),
        (None, b"42"),
        (b"\xff", None),
    ]
    headers = ((REASON, b"amount is not DOUBLE"),)
    with Cluster(address) as cluster:
        cluster.create_topic("list.dlq", partitions=1)
        records = [Record(0, 1_700_000_000_000, key, value, headers) for key, value in letters]
        cluster.produce({("list.dlq", 0): build_batch(records)})
    arguments = ["pipeline", "dlq", "list", "list.dlq", "--samples", "9", "--json", "--bootstrap", address]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    ((reason,),) = [each["reasons"] for each in json.loads(result.stdout)]
    assert reason["count"] == 4
    assert [(each["key"], each["value"]) for each in reason["samples"]] == [
        ({"id": 7}, {"amount": "lots", "tags": ["a"]}),
        ("user", '{"cut'),
        (None, "42"),
        ({"base64": "/w=="}, None),
    ]
