import json
from typing import Any

from headrace.pipelines.control.progress import (
    ProgressFiles,
    RunProgress,
    lag_of,
    parse_offsets,
    prometheus,
    read_batch,
)

REPORT = {
    "batchId": 7,
    "timestamp": "2026-01-01T12:00:00.000Z",
    "batchDuration": 120,
    "processedRowsPerSecond": 50.5,
    "durationMs": {"addBatch": 100},
    "eventTime": {"watermark": "2026-01-01T11:50:00.000Z"},
    "stateOperators": [{"numRowsTotal": 3, "memoryUsedBytes": 1000, "numRowsDroppedByWatermark": 2}],
    "sources": [
        {
            "numInputRows": 6,
            "endOffset": {"orders": {"0": 5, "1": 9}},
            "latestOffset": '{"orders": {"0": 15, "1": 9}}',
        }
    ],
    "observedMetrics": {"source:source": {"rows": 6, "bad": 1}, "sink:sink": {"rows": 4}},
}


def test_a_report_of_spark_in_our_words():
    batch = read_batch("sink", REPORT)
    assert (batch.batch_id, batch.rows_in, batch.rows_out, batch.bad) == (7, 6, 4, 1)
    assert (batch.lag, batch.state_rows, batch.state_bytes, batch.late_rows) == (10, 3, 1000, 2)
    assert batch.offsets == {("orders", 0): 5, ("orders", 1): 9}
    assert batch.did_work
    assert json.loads(batch.as_json())["offsets"] == {"orders": {"0": 5, "1": 9}}


def test_a_report_of_a_query_that_waits_adds_nothing():
    book = RunProgress(["sink"], [])
    book.add(read_batch("sink", REPORT))
    book.add(read_batch("sink", {**REPORT, "durationMs": {"latestOffset": 1}}))
    assert book.queries["sink"].batches == 1
    assert book.queries["sink"].rows_in == 6


def test_a_report_of_another_source_has_no_offsets():
    others: list[Any] = [None, "nonsense", "5", 5, [], {"orders": 3}, {"orders": {"x": 1}}]
    for value in others:
        assert parse_offsets(value) == {}
    assert lag_of({("a", 0): 5}, {("a", 0): 7, ("a", 1): 3}) == 5
    assert lag_of({("a", 0): 5}, {("a", 0): 1}) == 0


def test_a_pipeline_is_as_far_as_the_slowest_of_its_queries():
    book = RunProgress(["sink"], ["dead-letters-source"])
    book.add(read_batch("sink", REPORT))
    assert book.committed() == {}
    letters = {**REPORT, "sources": [{"endOffset": {"orders": {"0": 3, "1": 9}}}]}
    letters["observedMetrics"] = {"dead:source": {"rows": 2}}
    book.add(read_batch("dead-letters-source", letters))
    assert book.committed() == {("orders", 0): 3, ("orders", 1): 9}
    assert book.dead_letters == 2
    assert book.bad == 2


def test_progress_is_kept_in_two_files(tmp_path):
    book = RunProgress(["sink"], [])
    batch = read_batch("sink", REPORT)
    files = ProgressFiles("revenue", tmp_path / "progress.jsonl", tmp_path / "metrics.prom")
    for _ in range(2):
        book.add(batch)
        files.write(batch, book)
    assert len((tmp_path / "progress.jsonl").read_text().splitlines()) == 2
    text = (tmp_path / "metrics.prom").read_text()
    assert text == prometheus("revenue", book)
    assert '\nheadrace_pipeline_rows_in_total{pipeline="revenue",query="sink"} 12\n' in text
