"""Pipelines run from their files, in Spark, against a broker. Each run ends when all that is there is done."""

import json

import pytest

from headrace.pipelines.control.lag import PipelineReset, positions, targets
from headrace.pipelines.dead_letters.replay import by_reason, read_letters, read_replayed, replay
from headrace.pipelines.errors import NotReady, PipelineFailed

from .running import Pipelines, Write, as_json

# A run takes seconds, and far longer where many share few cores.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def pipelines(spark, tmp_path, cluster) -> Pipelines:
    return Pipelines(spark, tmp_path, cluster)


BAD = {
    b'{"id": "1", "amount": 2': "the value is not a JSON object, or is cut off",
    b'{"id": "2", "amount": "many"}': "amount is not DOUBLE",
    b"": "the value is empty",
    b"   ": "the value is blank",
    b'{"id": "\xff"}': "the value is not UTF-8",
    b"[1, 2]": "the value is not a JSON object, or is cut off",
    None: "there is no value (a tombstone)",
}


def test_records_that_do_not_fit_become_dead_letters_and_the_rest_goes_on(
    pipelines: Pipelines, cluster, new_topic, write: Write
):
    topic, out = new_topic(2, prefix="orders"), new_topic(1, prefix="out")
    text = f"""
        [source]
        topic = "{topic}"
        schema = "id STRING, amount DOUBLE"
        [transform]
        sql = "SELECT id, amount * 2 AS twice, _key AS customer, _partition AS part FROM source WHERE amount > 0"
        [sink]
        topic = "{out}"
        key = "id"
        headers = {{ version = "'7'" }}
        """
    good = [(f"k{n}".encode(), as_json(id=str(n), amount=n)) for n in range(300)]
    write(topic, *good[:150], partition=0)
    write(topic, *[(b"bad", value) for value in BAD], partition=1, headers=[("trace", b"\x01")])
    write(topic, *good[150:], partition=1)

    book = pipelines.run("letters", text)

    assert book.queries["sink"].rows_in == 300 + len(BAD)
    assert book.queries["sink"].rows_out == 299
    assert book.bad == book.dead_letters == len(BAD)
    found = pipelines.messages(out)
    assert len(found) == 299
    sample = next(each for each in found if each.key == b"7")
    assert sample.json() == {"id": "7", "twice": 14.0, "customer": "k7", "part": 0}
    assert sample.headers == (("version", b"7"),)

    letters = pipelines.messages(f"{topic}.dlq")
    assert {each.payload: each.header("headrace-reason") for each in letters} == BAD
    for number, value in enumerate(BAD):
        letter = next(each for each in letters if each.payload == value)
        assert letter.origin == (topic, 1, number)
        assert letter.key == b"bad"
        assert letter.headers[0] == ("trace", b"\x01")
        assert letter.header("headrace-original-timestamp") == "1700000000000"
        assert letter.header("headrace-group") == "pipeline-letters"

    sinks = pipelines.state("letters").read_sinks()
    assert {options["sinkId"] for options in sinks.values()} == {"letters.sink", "letters.dead-letters-source"}

    # Lag tools see the pipeline as a group, and the next run goes on where this one ended.
    spec = pipelines.file("letters", text).spec
    assert cluster.committed_offsets("pipeline-letters") == {(topic, 0): 150, (topic, 1): 150 + len(BAD)}
    assert sum(each.lag for each in positions(spec)) == 0
    write(topic, as_json(id="more", amount=1), b"{", partition=0)
    assert sum(each.lag for each in positions(spec)) == 2
    again = pipelines.run("letters", text)
    assert (again.queries["sink"].rows_in, again.queries["sink"].rows_out, again.dead_letters) == (2, 1, 1)
    assert len(pipelines.messages(out)) == 300
    assert len(pipelines.messages(f"{topic}.dlq")) == len(BAD) + 1
    lines = [json.loads(line) for line in pipelines.state("letters").progress.read_text().splitlines()]
    assert [line["batch_id"] for line in lines if line["query"] == "sink"] == [0, 1]
    assert 'headrace_pipeline_bad_records_total{pipeline="letters",query="sink"} 1' in (
        pipelines.state("letters").metrics.read_text()
    )

    # Sent back once, the letters are records again, as they were.
    result = replay(cluster, f"{topic}.dlq", wanted=lambda letter: letter.payload == b"")
    assert (result.sent, result.skipped) == (1, len(BAD))
    assert replay(cluster, f"{topic}.dlq").sent == len(BAD)
    assert replay(cluster, f"{topic}.dlq").sent == 0
    back = [each for each in pipelines.messages(topic) if each.offset >= (152 if each.partition == 0 else 157)]
    assert {each.payload for each in back} == {*BAD, b"{"}
    assert all(each.headers in ((), (("trace", b"\x01"),)) for each in back)
    reasons = by_reason(read_letters(cluster, f"{topic}.dlq"), read_replayed(cluster, f"{topic}.dlq"))
    assert sum(each.count for each in reasons) == sum(each.replayed for each in reasons) == len(BAD) + 1

    # A reset begins anew, with the old checkpoint kept.
    begin = targets(spec, PipelineReset(to_offsets={(topic, 0): 149}))["source"]
    assert begin == {(topic, 0): 149, (topic, 1): 157}
    start = {"source": {topic: {str(partition): offset for (_, partition), offset in begin.items()}}}
    backup = pipelines.state("letters").reset_checkpoint(start)
    assert backup is not None
    assert (backup / "sink" / "offsets").is_dir()
    third = pipelines.run("letters", text + '[errors]\non_error = "skip"')
    assert third.queries["sink"].rows_out == 2


def test_a_record_that_does_not_fit_stops_a_strict_pipeline_with_its_place(
    pipelines: Pipelines, new_topic, write: Write
):
    topic, out = new_topic(prefix="strict"), new_topic(prefix="strict-out")
    write(topic, as_json(id="1"), b'{"id": ', as_json(id="2"))
    text = f"""
        [source]
        topic = "{topic}"
        schema = "id STRING"
        [sink]
        topic = "{out}"
        [errors]
        on_error = "fail"
        """
    with pytest.raises(PipelineFailed) as caught:
        pipelines.run("strict", text)
    problem = f"the record at {topic}/0/1 does not fit: the value is not a JSON object, or is cut off"
    assert str(caught.value) == f"sink: {problem}"
    assert pipelines.messages(out) == []
    skipping = pipelines.run("strict", text.replace('"fail"', '"skip"'))
    assert (skipping.bad, skipping.dead_letters) == (1, 0)
    assert pipelines.values(out) == [{"id": "1"}, {"id": "2"}]


def test_windows_are_written_once_and_totals_whenever_they_change(pipelines: Pipelines, new_topic, write: Write):
    topic, windows, totals = new_topic(prefix="clicks"), new_topic(prefix="windows"), new_topic(prefix="totals")
    text = f'''
        [source]
        topic = "{topic}"
        schema = "user STRING, amount INT, at TIMESTAMP"
        watermark = "at 1 minute"
        [[steps]]
        name = "minutes"
        sql = """
        SELECT window.start AS minute, user, sum(amount) AS total
        FROM source GROUP BY window(at, '1 minute'), user
        """
        [[steps]]
        name = "sums"
        sql = "SELECT user, sum(amount) AS total FROM source GROUP BY user"
        [sinks.windows]
        topic = "{windows}"
        from = "minutes"
        [sinks.totals]
        topic = "{totals}"
        key = "user"
        from = "sums"
        [errors]
        on_error = "skip"
        '''
    minutes = ("12:00:10", "12:00:50", "12:01:30", "12:10:00")
    write(topic, *[as_json(user="a", amount=n, at=f"2026-01-01T{at}Z") for n, at in enumerate(minutes, 1)])
    pipelines.run("windows", text)
    assert pipelines.values(windows) == [
        {"minute": "2026-01-01T12:00:00.000Z", "user": "a", "total": 3},
        {"minute": "2026-01-01T12:01:00.000Z", "user": "a", "total": 3},
    ]
    write(topic, as_json(user="a", amount=100, at="2026-01-01T12:00:20Z"))
    book = pipelines.run("windows", text)
    assert book.queries["windows"].late_rows == 1
    assert len(pipelines.messages(windows)) == 2
    assert pipelines.values(totals) == [{"user": "a", "total": 10}, {"user": "a", "total": 110}]


def test_two_topics_and_a_file_are_joined_without_duplicates(pipelines: Pipelines, spark, new_topic, write: Write):
    orders, payments, out = new_topic(prefix="orders"), new_topic(prefix="payments"), new_topic(prefix="paid")
    spark.createDataFrame([("u1", "Ada"), ("u2", "Bob")], "user STRING, name STRING").write.parquet(
        str(pipelines.folder / "users")
    )
    text = f'''
        [sources.orders]
        topic = "{orders}"
        schema = "id STRING, user STRING, at TIMESTAMP"
        watermark = "at 10 minutes"
        deduplicate = {{ by = "id" }}
        [sources.payments]
        topic = "{payments}"
        schema = "order_id STRING, amount DECIMAL(10, 2), paid TIMESTAMP"
        watermark = "paid 10 minutes"
        [sources.users]
        path = "users"
        format = "parquet"
        [transform]
        sql = """
        SELECT orders.id, users.name, payments.amount
        FROM orders
        JOIN payments ON orders.id = payments.order_id AND paid BETWEEN at AND at + INTERVAL 5 MINUTES
        LEFT JOIN users ON orders.user = users.user
        """
        [sink]
        topic = "{out}"
        [errors]
        on_error = "skip"
        '''
    times = {"at": "2026-01-01T12:00:00Z"}
    write(orders, *[as_json(id=number, user=user, **times) for number, user in (("1", "u1"), ("1", "u1"), ("2", "u3"))])
    write(
        payments,
        as_json(order_id="1", amount=9.5, paid="2026-01-01T12:01:00Z"),
        as_json(order_id="2", amount=1, paid="2026-01-01T12:02:00Z"),
        as_json(order_id="2", amount=7, paid="2026-01-01T12:30:00Z"),
    )
    pipelines.run("joined", text)
    assert pipelines.values(out) == [
        {"id": "1", "name": "Ada", "amount": 9.5},
        {"id": "2", "name": None, "amount": 1.0},
    ]


STEPS = """\
import pandas as pd
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

FACTOR = 10

@F.udf("int")
def scaled(amount):
    return amount * FACTOR

def prepare(source):
    return source.withColumn("scaled", scaled("amount"))

class Counter(StatefulProcessor):
    def init(self, handle):
        self._seen = handle.getValueState("seen", "n INT")

    def handleInputRows(self, key, rows, timers):
        seen = self._seen.get()[0] if self._seen.exists() else 0
        for frame in rows:
            seen += int(frame["scaled"].sum())
        self._seen.update((seen,))
        yield pd.DataFrame({"card": [key[0]], "total": [seen]})

    def close(self):
        pass

def count(prepared):
    return prepared.groupBy("card").transformWithStateInPandas(
        statefulProcessor=Counter(), outputStructType="card STRING, total INT", outputMode="Update", timeMode="None"
    )
"""


def test_functions_in_python_may_keep_state(pipelines: Pipelines, new_topic, write: Write):
    topic, out = new_topic(prefix="cards"), new_topic(prefix="counted")
    (pipelines.folder / "steps.py").write_text(STEPS)
    text = f"""
        [source]
        topic = "{topic}"
        schema = "card STRING, amount INT"
        [[steps]]
        name = "prepared"
        python = "steps.py:prepare"
        [[steps]]
        name = "counted"
        python = "steps.py:count"
        [sink]
        topic = "{out}"
        mode = "update"
        [errors]
        on_error = "skip"
        """
    write(topic, as_json(card="a", amount=1), as_json(card="b", amount=2), as_json(card="a", amount=3))
    book = pipelines.run("stateful", text)
    assert book.queries["sink"].last.state_rows == 2
    assert pipelines.values(out) == [{"card": "a", "total": 40}, {"card": "b", "total": 20}]
    write(topic, as_json(card="a", amount=5))
    pipelines.run("stateful", text)
    assert {"card": "a", "total": 90} in pipelines.values(out)


def test_a_topic_that_is_not_there_is_one_sentence(pipelines: Pipelines, bootstrap):
    text = '[source]\ntopic = "nowhere"\nformat = "raw"\n[sink]\ntopic = "x"'
    with pytest.raises(NotReady, match=f"there is no topic nowhere at {bootstrap}: `headrace topic create nowhere`"):
        pipelines.run("nowhere", text)
