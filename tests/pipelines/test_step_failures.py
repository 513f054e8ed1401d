"""A record that fits its schema and fails in a step: it is named, and can become a dead letter like any other."""

import json
import sqlite3
from contextlib import closing

import pytest

from headrace.pipelines.dead_letters.rejects import Rejects, read_rejects, write_rejects
from headrace.pipelines.errors import PipelineFailed
from headrace.wire import Cluster

from .running import Pipelines, Write, as_json
from .test_pipeline_formats import framed

pytestmark = pytest.mark.timeout(600)

PAYMENT = {
    "type": "record",
    "name": "Payment",
    "fields": [{"name": "id", "type": ["null", "string"]}, {"name": "amount", "type": "double"}],
}


@pytest.fixture
def pipelines(spark, tmp_path, cluster) -> Pipelines:
    return Pipelines(spark, tmp_path, cluster)


def orders(count: int, **odd: str) -> list[bytes]:
    """Orders whose amounts are numbers in text, but for the odd ones: `n3="many"`."""
    return [as_json(id=n, amount=odd.get(f"n{n}", str(n))) for n in range(count)]


def test_a_record_that_fails_in_sql_becomes_a_dead_letter(
    pipelines: Pipelines, cluster: Cluster, new_topic, write: Write
):
    topic, out = new_topic(2, prefix="casts"), new_topic(prefix="casts-out")
    write(topic, *orders(12, n7="many"), partition=0, headers=[("trace", b"1")])
    write(topic, as_json(id=50, amount="1"), b"{", as_json(id=51, amount="0"), partition=1)
    text = f"""
        [source]
        topic = "{topic}"
        schema = "id INT, amount STRING"
        [[steps]]
        name = "typed"
        sql = "SELECT id, CAST(amount AS INT) AS amount FROM source"
        [[steps]]
        name = "shares"
        sql = "SELECT id, 100 div amount AS share FROM typed WHERE id > 0"
        [sink]
        topic = "{out}"
        key = "id"
        """
    book = pipelines.run("casts", text)

    letters = {each.origin: each for each in pipelines.messages(f"{topic}.dlq")}
    assert sorted(letters) == [(topic, 0, 7), (topic, 1, 1), (topic, 1, 2)]
    many = letters[topic, 0, 7]
    assert many.payload == as_json(id=7, amount="many")
    assert str(many.header("headrace-reason")).startswith("CAST(amount AS INT): The value 'many' of the type")
    assert many.header("headrace-group") == "pipeline-casts"
    assert many.headers[0] == ("trace", b"1")
    assert str(letters[topic, 1, 2].header("headrace-reason")).startswith("100 div amount: Division by zero")
    written = [1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 50]
    assert sorted(each["id"] for each in pipelines.values(out)) == written
    assert book.bad == book.dead_letters == 3

    # The next run reads on, and neither repeats nor forgets a letter.
    write(topic, *orders(3, n1="?"), partition=1)
    pipelines.run("casts", text)
    assert sorted(each.origin for each in pipelines.messages(f"{topic}.dlq")) == [*sorted(letters), (topic, 1, 4)]
    assert len(pipelines.messages(out)) == len(written) + 1


def test_a_run_that_was_killed_after_it_noted_a_failing_record_writes_its_letter_once(
    pipelines: Pipelines, new_topic, write: Write
):
    topic, out = new_topic(prefix="killed"), new_topic(prefix="killed-out")
    write(topic, *orders(6, n2="many"))
    text = f"""
        [source]
        topic = "{topic}"
        schema = "id INT, amount STRING"
        [transform]
        sql = "SELECT CAST(amount AS INT) AS amount FROM source"
        [sink]
        topic = "{out}"
        """
    pipelines.run("killed", text)
    noted = pipelines.state("killed").checkpoint / "sink" / "rejected.json"
    rejects = read_rejects(noted)
    assert [each.place for each in rejects.records] == [f"{topic}/0/2"]
    # As if it had been killed before it could note that the letter is there, and its state had to be made anew.
    write_rejects(noted, Rejects(rejects.query_id, rejects.batch, rejects.rounds))
    pipelines.run("killed", text)
    assert [each.origin for each in pipelines.messages(f"{topic}.dlq")] == [(topic, 0, 2)]
    assert len(pipelines.messages(out)) == 5


@pytest.mark.slow
def test_what_goes_into_an_aggregation_is_covered_and_what_comes_out_of_it_names_the_batch(
    pipelines: Pipelines, new_topic, write: Write
):
    topic, out = new_topic(prefix="sums"), new_topic(prefix="sums-out")
    write(topic, *orders(8, n5="five"))
    text = f"""
        [source]
        topic = "{topic}"
        schema = "id INT, amount STRING"
        [transform]
        sql = "SELECT id % 2 AS odd, sum(CAST(amount AS INT)) AS total FROM source GROUP BY 1"
        [sink]
        topic = "{out}"
        """
    pipelines.run("sums", text)
    assert [each.origin for each in pipelines.messages(f"{topic}.dlq")] == [(topic, 0, 5)]
    assert pipelines.values(out) == [{"odd": 0, "total": 12}, {"odd": 1, "total": 11}]

    later = text.replace("sum(CAST(amount AS INT))", "1 div (count(*) - 4)")
    with pytest.raises(PipelineFailed, match=rf"Division by zero.* \(in a batch of {topic}/0 from offset 0 to 7\)"):
        pipelines.run("counts", later)
    assert len(pipelines.messages(f"{topic}.dlq")) == 1


@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_a_failing_record_is_named_or_left_out(pipelines: Pipelines, new_topic, write: Write, on_error: str):
    topic, out = new_topic(prefix="named"), new_topic(prefix="named-out")
    write(topic, *orders(6, n3="three"))
    (pipelines.folder / "step.py").write_text(
        "from pyspark.sql import functions as F\n"
        "@F.udf('int')\n"
        "def number(text):\n"
        "    return int(text)\n"
        "def transform(source):\n"
        "    return source.select(number('amount').alias('amount'))\n"
    )
    text = f"""
        [source]
        topic = "{topic}"
        schema = "id INT, amount STRING"
        [transform]
        python = "step.py:transform"
        [sink]
        topic = "{out}"
        [errors]
        on_error = "{on_error}"
        """
    if on_error == "fail":
        with pytest.raises(PipelineFailed) as caught:
            pipelines.run("named", text)
        assert str(caught.value).startswith(f"sink: the record at {topic}/0/3 fails: ")
        assert "invalid literal for int() with base 10: 'three'" in str(caught.value)
        assert pipelines.messages(out) == []
    else:
        book = pipelines.run("named", text)
        assert (book.bad, book.dead_letters) == (1, 0)
        assert [json.loads(each.payload or b"")["amount"] for each in pipelines.messages(out)] == [0, 1, 2, 4, 5]


@pytest.mark.slow
def test_a_record_is_left_out_only_of_the_sink_that_it_fails_for(pipelines: Pipelines, new_topic, write: Write):
    topic, out = new_topic(prefix="sinks"), new_topic(prefix="sinks-out")
    (pipelines.folder / "1.avsc").write_text(json.dumps(PAYMENT))
    values = [framed(1, PAYMENT, {"id": each, "amount": 1.0}) for each in ("1", "two", None, "4")]
    write(topic, *values)
    text = f"""
        [source]
        topic = "{topic}"
        format = "avro"
        schemas = {{ 1 = "1.avsc" }}
        [[steps]]
        name = "numbers"
        sql = "WITH all AS (SELECT CAST(id AS INT) AS n FROM source) SELECT n FROM all UNION ALL SELECT n FROM all"
        [sinks.numbers]
        topic = "{out}"
        [sinks.payments]
        database = "sqlite:///payments.db"
        table = "payments"
        key = "id"
        create = true
        from = "source"
        """
    book = pipelines.run("sinks", text)
    assert sorted(json.dumps(each["n"]) for each in pipelines.values(out)) == ["1", "1", "4", "4", "null", "null"]
    with closing(sqlite3.connect(pipelines.folder / "payments.db")) as database:
        assert sorted(database.execute("SELECT id FROM payments")) == [("1",), ("4",), ("two",)]
    reasons = {each.origin[2]: each.header("headrace-reason") for each in pipelines.messages(f"{topic}.dlq")}
    assert str(reasons[1]).startswith("CAST(id AS INT): The value 'two'")
    assert reasons[2] == "a row for payments has no value in its key (id)"
    assert (len(reasons), book.dead_letters) == (2, 2)


def test_a_step_that_fails_for_most_records_stops_the_pipeline_and_sets_none_aside(
    pipelines: Pipelines, new_topic, write: Write, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("headrace.pipelines.run.failure_recovery.REJECTED_MAX", 2)
    topic, out = new_topic(prefix="wrong"), new_topic(prefix="wrong-out")
    write(topic, *[as_json(name="ada") for _ in range(8)])
    text = f"""
        [source]
        topic = "{topic}"
        schema = "name STRING"
        [transform]
        sql = "SELECT CAST(name AS INT) AS n FROM source"
        [sink]
        topic = "{out}"
        """
    with pytest.raises(PipelineFailed, match=rf"more than 2 records of a batch fail.* {topic}/0/0 fails: CAST\(name"):
        pipelines.run("wrong", text)
    assert pipelines.messages(f"{topic}.dlq") == []
