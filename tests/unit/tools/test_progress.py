"""Progress is one live line on a terminal, and few plain lines elsewhere."""

import io

from tools.progress import Progress, format_size


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_terminal_has_one_line_that_changes() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = Progress(stream, live=True, clock=clock)
    progress.show("Downloading", "numpy, 17 MB")
    clock.now_s += 2
    progress.show("Downloading", "pyspark, 200 MB")
    progress.say("Done.")
    shown = stream.getvalue()
    assert shown.count("\n") == 1
    assert shown.split("\r\x1b[2K") == [
        "",
        "Downloading: numpy, 17 MB, 0 s",
        "Downloading: pyspark, 200 MB, 2 s",
        "Done.\n",
    ]


def test_a_line_does_not_wrap(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    stream = io.StringIO()
    Progress(stream, live=True).show("Downloading", "x" * 100)
    assert len(stream.getvalue().removeprefix("\r\x1b[2K")) < 20


def test_elsewhere_a_line_per_phase_and_one_every_five_seconds() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = Progress(stream, live=False, clock=clock)
    for _ in range(12):
        progress.show("Downloading", "numpy")
        clock.now_s += 1
    progress.show("Building", "pyspark")
    assert stream.getvalue().splitlines() == [
        "Downloading: numpy, 0 s",
        "Downloading: numpy, 5 s",
        "Downloading: numpy, 10 s",
        "Building: pyspark, 12 s",
    ]


def test_sizes() -> None:
    assert [format_size(size) for size in (0, 0.31, 58.4, 999, 1130)] == ["0 MB", "0.3 MB", "58 MB", "999 MB", "1.1 GB"]
