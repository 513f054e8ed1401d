from pathlib import Path

import pytest

from headrace.pipelines.errors import SpecError
from headrace.pipelines.spec.file import SpecFile

GOOD = '''\
[source]
topic = "orders"
schema = "order_id STRING, amount DOUBLE, at TIMESTAMP"
[transform]
watermark = "at 10 minutes"
sql = """
SELECT order_id,
       amount
FROM source
"""
[sink]
topic = "revenue"
delivery = "exactly-once"
[trigger]
every = "5 seconds"
'''


def load(tmp_path: Path, text: str, **environment: str) -> SpecFile:
    file = tmp_path / "revenue.toml"
    file.write_text(text)
    return SpecFile(file, environment)


def test_a_file_says_what_the_pipeline_is(tmp_path):
    spec = load(tmp_path, GOOD).spec
    assert spec.name == "revenue"
    assert spec.bootstrap == "localhost:9092"
    assert spec.sources["source"].all_topics == ["orders"]
    assert spec.sources["source"].decoded_format == "json"
    assert spec.steps[0].sql == "SELECT order_id,\n       amount\nFROM source\n"
    assert spec.sinks["sink"].kind == "topic"
    assert spec.errors.on_error == "dead-letter"
    assert spec.errors.dead_letter_topic("orders") == "orders.dlq"
    assert spec.group == "pipeline-revenue"


def test_several_sources_steps_and_sinks(tmp_path):
    spec = load(
        tmp_path,
        """
        name = "joined"
        [sources.orders]
        topics = ["a", "b"]
        schema = "id STRING"
        deduplicate = { by = "id", within = "1 hour" }
        [sources.users]
        path = "users.parquet"
        format = "parquet"
        [[steps]]
        name = "clean"
        sql = "SELECT * FROM orders"
        [[steps]]
        name = "joined"
        python = "f.py:join"
        [sinks.a]
        topic = "out"
        from = "clean"
        [sinks.b]
        database = "sqlite:///x.db"
        table = "t"
        key = ["id"]
        [trigger]
        available-now = true
        """,
    ).spec
    assert [*spec.streams] == ["orders"]
    deduplicate = spec.sources["orders"].deduplicate
    assert deduplicate is not None
    assert deduplicate.columns == ["id"]
    assert [step.name for step in spec.steps] == ["clean", "joined"]
    assert spec.sinks["a"].from_ == "clean"
    assert spec.sinks["b"].kind == "database"
    assert spec.trigger.ends


@pytest.mark.parametrize(
    ("before", "after", "line", "problem"),
    [
        ("topic = ", "topik = ", 2, "unknown key topik in [source]; did you mean topic?"),
        ('"orders"', "5", 2, "topic: expected a text, got a whole number"),
        ('"exactly-once"', '"exatly-once"', 13, "exatly-once is not one of exactly-once, at-least-once; did you"),
        ("[sink]", "[snk]", 11, "unknown section or key snk; did you mean sink?"),
        ("sql = ", "sql == ", 6, "this is not TOML: Invalid value"),
        ('"orders"', '"${TOPIC}"', 2, "${TOPIC} is not set: export TOPIC and try again"),
        ('"orders"', '"a/b"', 2, "'a/b' cannot be a topic's name"),
        ("at 10 minutes", "at ten minutes", 5, "is not a column and a time"),
        ("5 seconds", "5 secs", 15, "'5 secs' is not a time"),
        ("schema = ", "format = 'jsn'\nschema = ", 3, "unknown format jsn; did you mean json?"),
        ("schema = ", "deduplicate = {bye = 'a'}\nschema = ", 3, "unknown key bye in [source] deduplicate"),
        ("schema = ", "path = 'x'\nschema = ", 1, "this one has topic and path"),
        ('schema = "order_id STRING, amount DOUBLE, at TIMESTAMP"', "", 1, "json needs a schema"),
        ('topic = "revenue"\n', "", 11, "a sink has one of topic, table (or path), database and console"),
        ("[sink]", "[sink]\nfrom = 'clena'", 12, "there is no source or step clena"),
        ("[source]", "source = 3\n[x]", 1, "source is a section: write [source]"),
        ("every = ", "once = true\nevery = ", 14, "give one of every, once and available-now"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path, before, after, line, problem):
    assert before in GOOD
    with pytest.raises(SpecError) as caught:
        load(tmp_path, GOOD.replace(before, after, 1))
    assert problem in str(caught.value)
    assert caught.value.line == line


def test_a_place_in_the_sql_is_a_line_of_the_file(tmp_path):
    file = load(tmp_path, GOOD)
    sql = file.spec.steps[0].sql or ""
    assert file.error_at(("steps", 0, "sql"), "wrong", sql.index("amount")).line == 8
    assert file.error_at(("steps", 0, "sql"), "wrong", 0).line == 7


def test_secrets_come_from_the_environment_and_never_from_the_file(tmp_path):
    text = GOOD.replace('"orders"', '"${TOPIC}-${SUFFIX:-eu}"').replace("amount\n", "amount -- $${KEPT}\n")
    spec = load(tmp_path, text, TOPIC="sales").spec
    assert spec.sources["source"].topic == "sales-eu"
    assert "-- ${KEPT}" in (spec.steps[0].sql or "")


def test_a_file_that_is_not_there_is_one_sentence(tmp_path):
    with pytest.raises(SpecError, match="cannot be read: No such file"):
        SpecFile(tmp_path / "nothing.toml")


def test_a_sink_that_is_missing_is_told(tmp_path):
    with pytest.raises(SpecError, match=r"there is no \[sink\]"):
        load(tmp_path, GOOD.partition("[sink]")[0])
