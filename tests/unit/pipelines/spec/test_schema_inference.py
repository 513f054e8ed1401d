"""What `headrace pipeline init` learns from messages, and the file that it writes."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.pipelines.control.samples import newest_messages
from headrace.pipelines.spec.file import SpecFile
from headrace.pipelines.spec.schema_inference import infer
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.wire import Cluster


def of(*values: object) -> dict[str, str]:
    return infer(json.dumps({"v": value}).encode() for value in values).columns


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2], "BIGINT"),
        ([1, 2.5, None], "DOUBLE"),
        ([2**70], "DOUBLE"),
        ([True], "BOOLEAN"),
        ([True, 1], "STRING"),
        (["a", "2026-01-31"], "STRING"),
        (["2026-01-31", "2026-02-28"], "DATE"),
        (["2026-13-31"], "STRING"),
        (["2026-01-31T12:00:00Z", "2026-01-31 12:00:00.123"], "TIMESTAMP"),
        ([None], "STRING"),
        ([[], [1], [2.5]], "ARRAY<DOUBLE>"),
        ([{"a": 1}, {"b-c": "x", "a": None}], "STRUCT<a: BIGINT, `b-c`: STRING>"),
        ([{"a": 1}, [1]], "STRING"),
        ([{}], "STRING"),
    ],
)
def test_a_column_has_the_narrowest_type_that_fits_all_values(values, kind):
    assert of(*values) == {"v": kind}


@pytest.mark.parametrize(
    ("usual", "other", "kind", "told"),
    [
        (1, "n/a", "BIGINT", ("v", "BIGINT", "STRING")),
        (1.5, True, "DOUBLE", ("v", "DOUBLE", "BOOLEAN")),
        ("2026-01-31T12:00:00Z", "never", "TIMESTAMP", ("v", "TIMESTAMP", "STRING")),
        ({"a": [1]}, {"a": ["x"]}, "STRUCT<a: ARRAY<BIGINT>>", ("v.a[]", "BIGINT", "STRING")),
        ({"a": 1}, [1], "STRUCT<a: BIGINT>", ("v", "STRUCT", "ARRAY")),
    ],
)
def test_a_column_has_the_type_of_nearly_all_values(usual, other, kind, told):
    few = [usual] * 7 + [other] + [usual] * 12
    found = infer(json.dumps({"v": value}).encode() for value in few)
    assert found.columns == {"v": kind}
    (exception,) = found.exceptions
    assert (exception.column, exception.kind, exception.other_kind) == told
    assert (exception.example, exception.count, exception.total, found.misfits) == (7, 1, 20, 1)
    # One more, and it is no exception.
    many = infer(json.dumps({"v": value}).encode() for value in [*few, other])
    assert "STRING" in many.columns["v"]
    assert (many.exceptions, many.misfits) == ((), 0)


@pytest.mark.parametrize(
    ("usual", "other", "kind"),
    [("text", 1, "STRING"), ("text", "2026-01-31", "STRING"), (1, 2.5, "DOUBLE"), (1, None, "BIGINT")],
)
def test_values_that_fit_are_no_exceptions(usual, other, kind):
    found = infer(json.dumps({"v": value}).encode() for value in [*[usual] * 39, other])
    assert (found.columns, found.exceptions, found.misfits) == ({"v": kind}, (), 0)


def test_columns_of_all_messages_count_and_what_is_no_json_object_is_counted():
    found = infer([b'{"id": 1}', b'{"id": 2, "user name": "ada"}', b"[1]", b"{", None])
    assert (found.looked_at, found.misfits) == (4, 2)
    assert found.schema == "id BIGINT, `user name` STRING"
    assert infer([b"one", b"two"]).format == "text"
    assert infer([b"\x00\x00\x00\x00\x07\xff"]).format == "raw"
    assert infer([None]).looked_at == 0
    nested: object = 1
    for _ in range(50):
        nested = [nested]
    assert of(nested)["v"].count("ARRAY") == 7


@pytest.fixture
def cluster(headrace_session_broker):
    with Cluster(headrace_session_broker.bootstrap) as cluster:
        yield cluster


def produce(cluster: Cluster, topic: str, partition: int, *values: bytes) -> None:
    cluster.produce({(topic, partition): build_batch([Record(0, 1_700_000_000_000, None, each) for each in values])})


def init(folder: Path, topic: str, bootstrap: str, **environment: str) -> str:
    file = folder / "p.toml"
    result = CliRunner().invoke(
        app, ["pipeline", "init", str(file), "--topic", topic, "--force", "--bootstrap", bootstrap], env=environment
    )
    assert result.exit_code == 0, result.output
    return result.output


def test_init_writes_the_columns_of_the_messages_and_says_how_many_it_looked_at(tmp_path: Path, cluster: Cluster):
    cluster.create_topic("init-orders", partitions=3)
    at = "2026-01-31T12:00:00Z"
    orders = [json.dumps({"order id": n, "amount": n / 2, "at": at, "tags": ["a"]}).encode() for n in range(500)]
    produce(cluster, "init-orders", 0, *orders, b"{")
    produce(cluster, "init-orders", 2, orders[0])
    told = init(tmp_path, "init-orders", cluster.bootstrap)
    # What the small partition does not have is left to the large one.
    assert "Looked at the newest 200 messages of init-orders: 4 columns; 1 message of them would not fit" in told
    spec = SpecFile(tmp_path / "p.toml", {}).spec
    assert spec.bootstrap == cluster.bootstrap
    assert spec.sources["source"].schema == "`order id` BIGINT, amount DOUBLE, at TIMESTAMP, tags ARRAY<STRING>"
    assert "`order id`,\n    amount" in (spec.steps[0].sql or "")
    assert spec.sinks["sink"].topic == "init-orders-out"
    assert len(newest_messages(cluster, "init-orders", 10_000) or ()) == 502


def test_init_says_in_the_file_which_messages_do_not_have_the_type_of_the_others(tmp_path: Path, cluster: Cluster):
    cluster.create_topic("init-odd", partitions=2)
    values = [json.dumps({"id": n, "two\nlines": {"${x}": n}}).encode() for n in range(100)]
    produce(cluster, "init-odd", 0, *values)
    produce(cluster, "init-odd", 1, *values[:40], b'{"id": "none", "two\\nlines": {"${x}": true}}', *values[:59])
    told = init(tmp_path, "init-odd", cluster.bootstrap)
    assert "200 messages of init-odd: 2 columns; 1 message of them would not fit" in told
    text = (tmp_path / "p.toml").read_text()
    assert (
        "# id: BIGINT in all but 1 of 200 values (STRING at init-odd/1/40); "
        "messages with others do not fit, see on_error\n"
    ) in text
    assert "# two\\nlines.$${x}: BIGINT in all but 1 of 200 values (BOOLEAN at init-odd/1/40)" in text
    schema = SpecFile(tmp_path / "p.toml", {}).spec.sources["source"].schema
    assert schema == "id BIGINT, `two\nlines` STRUCT<`${x}`: BIGINT>"


def test_init_without_messages_that_tell_writes_an_example_and_says_so(tmp_path: Path, cluster: Cluster):
    assert "The schema is an example: the topic init-none is not there at" in init(
        tmp_path, "init-none", cluster.bootstrap
    )
    assert SpecFile(tmp_path / "p.toml", {}).spec.sources["source"].schema == (
        "order_id STRING, user STRING, amount DOUBLE, at TIMESTAMP"
    )
    cluster.create_topic("init-text")
    assert "the topic init-text has no messages yet" in init(tmp_path, "init-text", cluster.bootstrap)
    produce(cluster, "init-text", 0, b"a line", b"another")
    told = init(tmp_path, "init-text", cluster.bootstrap)
    assert "Looked at the newest 2 messages of init-text: none is a JSON object, so they are read as text" in told
    assert SpecFile(tmp_path / "p.toml", {}).spec.sources["source"].format == "text"
    assert "The schema is an example: no broker answers at 127.0.0.1:1" in init(tmp_path, "x", "127.0.0.1:1")
