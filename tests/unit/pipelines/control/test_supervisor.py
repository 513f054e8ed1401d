"""The supervisor, with small programs in the place of pipelines."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from headrace.pipelines.control.folder import AlreadyRunning, ProcessLock, StateFolder, read_json
from headrace.pipelines.control.supervisor import Supervisor, wait_before
from headrace.pipelines.report.supervised import start_in_background
from tests.waiting import until

WAIT_S = 60.0


def program(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_a_command_that_ends_well_is_not_started_again(tmp_path):
    folder = StateFolder(tmp_path)
    assert Supervisor(folder, program("print('hello')")).run() == 0
    assert read_json(folder.supervisor_state)["state"] == "ended"
    assert "hello" in folder.log.read_text()


def test_a_wrong_file_is_not_tried_again(tmp_path):
    folder = StateFolder(tmp_path)
    code = "import sys; print('headrace: a.toml:3: wrong', file=sys.stderr); sys.exit(2)"
    assert Supervisor(folder, program(code)).run() == 2
    state = read_json(folder.supervisor_state)
    assert (state["state"], state["last_error"], state["restarts"]) == ("failed", "a.toml:3: wrong", 0)


def test_a_command_that_fails_is_started_again_until_it_is_stopped(tmp_path):
    folder = StateFolder(tmp_path)
    supervisor = Supervisor(folder, program("import sys; sys.exit('headrace: no broker')"), first_wait_s=0.001)
    thread = threading.Thread(target=supervisor.run, daemon=True)
    thread.start()
    until(lambda: (read_json(folder.supervisor_state) or {}).get("restarts", 0) >= 2)
    supervisor.stop()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    state = read_json(folder.supervisor_state)
    assert (state["state"], state["last_error"]) == ("stopped", "no broker")


def test_the_wait_grows_up_to_a_minute():
    assert [wait_before(failures) for failures in (1, 2, 3, 7, 50)] == [1, 2, 4, 60, 60]


def test_in_the_background_it_stops_on_sigterm_and_lets_the_command_end(tmp_path):
    folder = StateFolder(tmp_path / "revenue")
    ended = tmp_path / "ended"
    code = (
        "import signal, sys, pathlib\n"
        f"signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path({str(ended)!r}).write_text('well'), sys.exit(0)))\n"
        "print('is', 'up', flush=True)\n"
        "sys.stdin.read()\n"
        "signal.pause()\n"
    )
    process = start_in_background(folder, program(code))
    try:
        until(lambda: folder.log.exists() and "is up" in folder.log.read_text())
        assert folder.supervisor_lock.holder() == process.pid
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
    finally:
        process.kill()
        process.wait(WAIT_S)
    assert ended.read_text() == "well"
    assert folder.supervisor_lock.holder() is None
    assert read_json(folder.supervisor_state)["state"] == "stopped"


def test_the_command_hears_of_the_supervisors_death_by_its_standard_input(tmp_path):
    folder = StateFolder(tmp_path / "revenue")
    ended = tmp_path / "ended"
    code = (
        "import sys, pathlib\n"
        f"print('is', 'up', flush=True); sys.stdin.read(); pathlib.Path({str(ended)!r}).write_text('alone')"
    )
    process = start_in_background(folder, program(code))
    try:
        until(lambda: folder.log.exists() and "is up" in folder.log.read_text())
    finally:
        process.kill()
        process.wait(WAIT_S)
    until(lambda: ended.exists() and ended.read_text() == "alone")


def test_a_lock_is_held_by_one_and_gone_with_its_process(tmp_path):
    path = tmp_path / "run.lock"
    code = (
        "import sys, pathlib; from headrace.pipelines.control.folder import ProcessLock\n"
        f"lock = ProcessLock(pathlib.Path({str(path)!r})).take('x'); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(program(code), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert ProcessLock(path).holder() == process.pid
        with pytest.raises(AlreadyRunning, match=rf"revenue is already running \(process {process.pid}\)"):
            ProcessLock(path).take("revenue")
        process.kill()
        process.wait(WAIT_S)
    assert ProcessLock(path).holder() is None
    with ProcessLock(path).take("revenue"):
        pass


def test_a_reset_keeps_the_old_checkpoint(tmp_path):
    folder = StateFolder(tmp_path)
    assert folder.reset_checkpoint({}) is None
    (folder.checkpoint / "sink").mkdir(parents=True)
    first = folder.reset_checkpoint({"source": {"orders": {"0": 5}}})
    (folder.checkpoint / "sink").mkdir(parents=True)
    second = folder.reset_checkpoint({"source": {"orders": {"0": 6}}})
    assert folder.read_start() == {"source": {"orders": {"0": 6}}}
    assert not folder.checkpoint.exists()
    assert set(tmp_path.glob("checkpoint.*")) == {first, second}
    assert isinstance(first, Path)
