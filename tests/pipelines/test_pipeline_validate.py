"""`validate`: what is wrong with a pipeline is found before anything runs, with the line."""

from pathlib import Path

import pytest

from headrace.pipelines.errors import SpecError
from headrace.pipelines.spec.file import SpecFile

# The first plan of a session takes long where many share few cores.
pytestmark = pytest.mark.timeout(600)

GOOD = '''\
[source]
topic = "orders"
schema = "order_id STRING, user STRING, amount DOUBLE, at TIMESTAMP"
[transform]
watermark = "at 10 minutes"
sql = """
SELECT window.start AS minute, user,
       sum(amount) AS revenue
FROM source
GROUP BY window(at, '1 minute'), user
"""
[sink]
topic = "revenue"
key = "user"
'''

PYTHON = """\
from pyspark.sql import functions as F

def good(source):
    return source.where("amount > 1")

def wrong_column(rows):
    kept = rows.where("amount > 1")
    return kept.select(F.col("amuont"))

def wrong_result(source):
    return 5

def wrong_parameter(source, users):
    return source

def raises(source):
    return 1 / 0
"""


def check(spark, folder: Path, text: str):
    from headrace.pipelines.run.validate import validate

    file = folder / "revenue.toml"
    file.write_text(text)
    (folder / "steps.py").write_text(PYTHON)
    return validate(spark, SpecFile(file, {}))


def with_python(function: str) -> str:
    head, _, rest = GOOD.partition("watermark")
    return f'{head}python = "steps.py:{function}"\n{rest[rest.index("[sink]") :]}'


def test_each_window_of_a_watermark_is_appended_once(spark, tmp_path):
    checked = check(spark, tmp_path, GOOD)
    assert [(each.name, each.mode) for each in checked.queries] == [
        ("sink", "append"),
        ("dead-letters-source", "append"),
    ]
    assert checked.queries[0].columns == {"minute": "timestamp", "user": "string", "revenue": "double"}
    assert checked.notes(SpecFile(tmp_path / "revenue.toml", {})) == []


def test_an_aggregation_that_never_ends_is_updated_and_told(spark, tmp_path):
    text = GOOD.replace("GROUP BY window(at, '1 minute'), user", "GROUP BY user").replace(
        "window.start AS minute, ", ""
    )
    checked = check(spark, tmp_path, text)
    assert checked.queries[0].mode == "update"
    (note,) = checked.notes(SpecFile(tmp_path / "revenue.toml", {}))
    assert "GROUP BY window(…) itself" in note


@pytest.mark.parametrize(
    ("before", "after", "line", "problem"),
    [
        ("sum(amount)", "sum(amuont)", 8, "there is no column amuont; the columns are"),
        ("sum(amount)", "sum(array(amount))", 8, 'the "NUMERIC" or "ANSI INTERVAL" type'),
        ("GROUP BY", "GROP BY", 10, "Syntax error at or near"),
        ("FROM source", "FROM sorce", 9, "there is no source, step or table sorce"),
        ("amount DOUBLE", "amount DUBLE", 3, 'Unsupported data type "DUBLE"'),
        ('"at 10', '"att 10', 5, "there is no column att"),
        ('"at 10', '"user 10', 5, "event time `user` has the invalid type"),
        ('key = "user"', 'key = "usr"', 14, "there is no column usr"),
        ('key = "user"', 'mode = "complete"\nkey = "usr"', 15, "there is no column usr"),
        ("SELECT window.start AS minute, user,", "SELECT DISTINCT user,", 6, "without watermark"),
    ],
)
def test_a_mistake_is_told_with_its_line(spark, tmp_path, before, after, line, problem):
    assert before in GOOD
    with pytest.raises(SpecError) as caught:
        check(spark, tmp_path, GOOD.replace(before, after, 1))
    assert problem in str(caught.value)
    assert caught.value.line == line
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("sink", "problem"),
    [
        (
            'table = "lake.revenue"\npartition_by = "day"',
            "there is no column day; the columns are minute, user, revenue",
        ),
        ('table = "lake.revenue"\noptions = { compact_aftr = 3 }', "compact_aftr"),
        ('database = "mysql://x"\ntable = "t"\nkey = "user"', "must begin with postgresql://, sqlite:/// or env:"),
        ('database = "sqlite:///x.db"\ntable = "t"\nkey = "usr"', "names usr as its key"),
    ],
)
def test_a_table_that_would_refuse_its_first_batch_is_told_before(spark, tmp_path, sink, problem):
    with pytest.raises(SpecError) as caught:
        check(spark, tmp_path, GOOD.replace('topic = "revenue"\nkey = "user"', sink))
    assert problem in str(caught.value)
    assert caught.value.line == 12


def test_a_step_in_python(spark, tmp_path):
    assert check(spark, tmp_path, with_python("good")).queries[0].mode == "append"


@pytest.mark.parametrize(
    ("function", "place", "problem"),
    [
        ("wrong_column", "steps.py:8", "there is no column amuont"),
        ("raises", "steps.py:17", "ZeroDivisionError: division by zero"),
        ("wrong_result", "revenue.toml:5", "wrong_result returned int; it has to return a DataFrame"),
        ("wrong_parameter", "revenue.toml:5", "wrong_parameter asks for users; there are source, spark"),
        ("nothing", "revenue.toml:5", "steps.py has no function nothing"),
    ],
)
def test_a_mistake_in_python_is_told_with_its_line(spark, tmp_path, function, place, problem):
    with pytest.raises(SpecError) as caught:
        check(spark, tmp_path, with_python(function))
    assert f"{place}: {problem}" in str(caught.value)
