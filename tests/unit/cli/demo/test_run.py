"""The tour: what it prints while it waits, and that a part that fails or cannot run hides no other."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.cli.demo.output import DemoOutput
from headrace.cli.demo.processes import TourProcess
from headrace.cli.demo.run import DemoPart, show_parts
from headrace.cli.errors import CommandFailed
from tests.waiting import until

DEMO = [sys.executable, "-m", "headrace", "demo"]


def fail() -> None:
    raise CommandFailed("the broker did not start: the disk is full")


def test_a_part_that_fails_or_cannot_run_hides_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    def missing() -> None:
        raise CommandFailed("there is no etcd")

    def broken() -> None:
        raise OSError("no such device")

    shown: list[str] = []
    parts = [
        DemoPart("One", fail),
        DemoPart("Two", lambda: shown.append("two")),
        DemoPart("Three", lambda: shown.append("three"), missing),
        DemoPart("Four", broken),
        DemoPart("Five", lambda: shown.append("five")),
    ]
    assert show_parts(DemoOutput(), parts) == [1, 4]
    assert shown == ["two", "five"]
    assert capsys.readouterr().out.splitlines() == [
        "1. One",
        "   This part failed: the broker did not start: the disk is full",
        "2. Two",
        "3. Three: left out, there is no etcd",
        "4. Four",
        "   This part failed: no such device",
        "5. Five",
    ]


def test_a_wait_gives_signs_of_life(capsys: pytest.CaptureFixture[str]) -> None:
    voice, signs = DemoOutput(quiet_s=0.01), ""

    def two_signs() -> bool:
        nonlocal signs
        signs += capsys.readouterr().err
        return signs.count("   … Spark, 0 s\n") >= 2

    with voice.waiting_for("working"):
        with voice.waiting_for("Spark"):
            until(two_signs, "signs of life")
        until(lambda: "   … working, " in capsys.readouterr().err, "signs of life of what is around it")


def test_a_process_that_ends_says_why(tmp_path: Path) -> None:
    process = TourProcess("the broker", ["serve", "--set", "nonsense"], tmp_path / "broker.log")
    with pytest.raises(CommandFailed, match=r"the broker ended with exit code 2: .*nonsense"):
        process.await_line(re.compile("ready on"))
    assert not process.is_running


def environment(tmp_path: Path) -> dict[str, str]:
    """Neither etcd nor Java, and a folder for temporary files that can be looked into."""
    (tmp_path / "tmp").mkdir()
    return {**os.environ, "PATH": "", "JAVA_HOME": str(tmp_path / "nowhere"), "TMPDIR": str(tmp_path / "tmp")}


def test_the_tour_without_etcd_and_java(tmp_path: Path) -> None:
    done = subprocess.run(
        DEMO, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert "   alice  cake" in (line.rstrip() for line in lines)
    assert "   mail to bob, attempt 2 of 3: delivered" in lines
    assert '   The dead letter in emails-dead: {"to":"carol"}, because of: no such address' in lines
    assert sum(line.startswith("3. Three brokers, one of which dies: left out, ") for line in lines) == 1
    assert sum(line.startswith("4. A pipeline on Spark: left out, ") for line in lines) == 1
    assert lines[-1].startswith("The tour took ")
    assert [*(tmp_path / "tmp").iterdir()] == []


def running(folder: Path) -> list[bytes]:
    """The commands of processes that were told of something in `folder`."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(each.read_bytes())
    return [command for command in found if str(folder).encode() in command]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_tour_that_is_interrupted_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    with subprocess.Popen(DEMO, cwd=tmp_path, env=environment(tmp_path), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        next(line for line in process.stdout if "A broker is running on" in line)
        # The rest takes a second or two: a busy machine might look at it only when it is over.
        process.send_signal(signal.SIGSTOP)
        assert running(tmp_path)
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        process.stdout.read()
        # Python dies of the signal itself if it came while a class was made from text. Shells show 130 for both.
        assert process.wait(60) in (130, -signal.SIGINT)
    assert not running(tmp_path)
    assert [*(tmp_path / "tmp").iterdir()] == []
