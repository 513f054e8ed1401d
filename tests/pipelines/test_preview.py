"""`headrace pipeline preview`: what a pipeline makes of the newest messages, before anything runs."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headrace.cli.pipeline.init import init_file
from headrace.cli.pipeline.preview import preview_file
from headrace.pipelines.spec.file import SpecFile

from .running import Write, as_json


@pytest.fixture(autouse=True)
def one_session(spark, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def shared(file: SpecFile, *, for_rows: bool) -> Iterator[object]:
        yield spark

    monkeypatch.setattr("headrace.cli.pipeline.preview.quick_session", shared)


def test_a_new_file_shows_the_messages_that_are_there(
    tmp_path, bootstrap, new_topic, write: Write, capsys: pytest.CaptureFixture[str]
):
    topic = new_topic(2, prefix="preview")
    write(topic, *[as_json(id=n, at="2026-01-31T12:00:00Z", tags=["a", "b"]) for n in range(15)])
    write(topic, b"{", as_json(id="text", at="2026-01-31T12:00:00Z"), partition=1)
    file = tmp_path / "p.toml"
    init_file(file, topic, bootstrap, 10, force=False)
    capsys.readouterr()
    preview_file(file, None, 100, 10, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["sources"]["source"]["messages"] == 17
    # Half of the sample had a text for an id: then all of them are texts.
    rows = told["sinks"]["sink"]["rows"]
    assert rows[0] == {"id": "0", "at": "2026-01-31T12:00:00.000Z", "tags": ["a", "b"]}
    assert (len(rows), told["sinks"]["sink"]["more"]) == (10, True)
    assert told["sources"]["source"]["samples"] == [
        {"at": f"{topic}/1/0", "reason": "the value is not a JSON object, or is cut off"}
    ]


def test_windows_keys_and_joins_are_of_the_messages_that_were_taken(
    tmp_path, bootstrap, new_topic, write: Write, capsys: pytest.CaptureFixture[str], cluster
):
    topic = new_topic(prefix="preview-windows")
    names = tmp_path / "names.csv"
    names.write_text("user,name\na,Ada\nb,Bob\n")
    write(topic, *[as_json(user="ab"[n % 2], amount=n, at="2026-01-31T12:00:00Z") for n in range(6)])
    write(topic, as_json(user="b", amount=5, at="2026-01-31T12:00:00Z"))
    file = tmp_path / "p.toml"
    file.write_text(f'''
        bootstrap = "{bootstrap}"
        [sources.clicks]
        topic = "{topic}"
        schema = "user STRING, amount INT, at TIMESTAMP"
        watermark = "at 1 minute"
        deduplicate = {{ by = "amount" }}
        [sources.names]
        path = "names.csv"
        format = "csv"
        schema = "user STRING, name STRING"
        options = {{ header = true }}
        [[steps]]
        name = "named"
        sql = "SELECT clicks.*, name FROM clicks JOIN names USING (user)"
        [[steps]]
        name = "minutes"
        sql = """
        SELECT window.start AS minute, name, sum(amount) AS total
        FROM named GROUP BY window(at, '1 minute'), name ORDER BY name
        """
        [sinks.totals]
        topic = "{topic}-totals"
        [sinks.rows]
        console = true
        from = "named"
        ''')
    preview_file(file, None, 100, 2, as_json=False)
    told = capsys.readouterr()
    assert f"Took the newest 7 messages of {topic}" in told.err
    lines = [line.split() for line in told.out.splitlines()]
    assert ["2026-01-31T12:00:00.000Z", "Ada", "6"] in lines
    assert ["2026-01-31T12:00:00.000Z", "Bob", "9"] in lines
    assert "… more rows; --rows shows more of them" in told.out
    assert f"{topic}-totals" not in cluster.metadata([f"{topic}-totals"])


def test_steps_that_look_at_single_rows_need_no_job(
    tmp_path, bootstrap, new_topic, write: Write, capsys: pytest.CaptureFixture[str], spark
):
    topic = new_topic(prefix="preview-quick")
    write(topic, (b"k", as_json(user="a", amount=1)), headers=[("h", b"v"), ("none", None)])
    write(topic, (None, None), b"{", as_json(user="b", amount=5))
    file = tmp_path / "p.toml"
    file.write_text(f'''
        bootstrap = "{bootstrap}"
        [source]
        topic = "{topic}"
        schema = "user STRING, amount INT"
        [transform]
        sql = "SELECT user, amount * 2 AS twice, _key, _offset, _timestamp AS at, _headers FROM source WHERE amount < 3"
        [sink]
        console = true
        ''')
    spark.sparkContext.setJobGroup(topic, "a preview")
    try:
        preview_file(file, None, 100, 10, as_json=True)
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    told = json.loads(capsys.readouterr().out)
    # The metadata is no part of what a reader of the sink finds.
    assert told["sinks"]["sink"]["rows"] == [{"user": "a", "twice": 2, "at": "2023-11-14T22:13:20.000Z"}]
    assert told["sources"]["source"]["bad"] == 2
    assert [*spark.sparkContext.statusTracker().getJobIdsForGroup(topic)] == []
