"""The figures of a run, and the file by which a supervisor gets them."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.pipelines.control.progress import BatchProgress, RunProgress
from headrace.pipelines.report.figures import FiguresFile, RunMeter

BATCH = BatchProgress(
    query="sink", batch_id=0, at="", duration_ms=200, rows_in=100, rows_out=90, bad=10, in_per_s=0.0, state_rows=5,
    state_bytes=500, late_rows=1, watermark=None, lag=40,
)  # fmt: skip


class Seconds:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_rows_of_all_sinks_but_each_record_once() -> None:
    book = RunProgress(["one", "two"], ["dead-letters-source"])
    book.add(replace(BATCH, query="one"))
    book.add(replace(BATCH, query="two", duration_ms=300, lag=70))
    book.add(replace(BATCH, query="dead-letters-source", rows_out=10, lag=0))
    figures = RunMeter().measure(book)
    assert (figures.rows_in, figures.rows_out, figures.dead_letters, figures.bad) == (100, 180, 10, 10)
    assert (figures.lag, figures.batch_ms, figures.batches, figures.pid) == (70, 300.0, 1, os.getpid())
    assert (figures.state_rows, figures.state_bytes) == (15, 1500)


def test_rows_per_second_are_those_of_the_last_half_minute() -> None:
    seconds = Seconds()
    meter, book = RunMeter(seconds), RunProgress(["sink"], [])
    assert meter.measure(book).rows_per_s == 0.0
    for _ in range(10):
        seconds.now += 1.0
        book.add(BATCH)
        rate = meter.measure(book).rows_per_s
    assert rate == 100.0
    for _ in range(60):
        seconds.now += 1.0
        rate = meter.measure(book).rows_per_s
    assert rate == 0.0


def test_the_file_is_written_once_a_second_and_read_for_its_process_only(tmp_path: Path) -> None:
    seconds = Seconds()
    file, book = FiguresFile(tmp_path / "figures.json", seconds), RunProgress(["sink"], [])
    assert file.read(os.getpid()) is None
    file.write(RunMeter().measure(book))
    book.add(BATCH)
    file.write(RunMeter().measure(book))
    first = file.read(os.getpid())
    assert first is not None
    assert first.rows_in == 0
    seconds.now += 1.0
    file.write(RunMeter().measure(book))
    second = file.read(os.getpid())
    assert second is not None
    assert second.rows_in == 100
    assert file.read(1) is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pid": "x"}'])
def test_a_file_that_cannot_be_read_has_no_figures(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "figures.json").write_bytes(content)
    assert FiguresFile(tmp_path / "figures.json").read(1) is None


def test_a_folder_that_is_gone_does_not_disturb_the_run(tmp_path: Path) -> None:
    FiguresFile(tmp_path / "gone" / "figures.json").write(RunMeter().measure(RunProgress([], [])))
