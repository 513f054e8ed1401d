"""`headrace pipeline` as far as it needs neither Spark nor a broker."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli.errors import BadArgument
from headrace.cli.main import app
from headrace.cli.pipeline.background import describe, last_batches
from headrace.cli.pipeline.init import write_example
from headrace.cli.pipeline.positions import parse_target
from headrace.pipelines.control.folder import StateFolder, write_json
from headrace.pipelines.control.lag import PipelineReset
from headrace.pipelines.spec.file import SpecFile


def run(*arguments: str, cwd: Path | None = None, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "headrace", "pipeline", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=cwd,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize(
    "command",
    [
        "init",
        "preview",
        "validate",
        "explain",
        "run",
        "start",
        "stop",
        "status",
        "lag",
        "reset",
        "dlq list",
        "dlq replay",
    ],
)
def test_help_teaches_by_example(command):
    result = CliRunner().invoke(app, ["pipeline", *command.split(), "--help"])
    assert result.exit_code == 0, result.output
    assert f"headrace pipeline {command}" in result.output.partition("Example")[2]


def test_the_file_that_init_writes_is_right_as_it_is(tmp_path, capsys):
    write_example(tmp_path / "revenue.toml", "orders", force=False)
    spec = SpecFile(tmp_path / "revenue.toml", {}).spec
    assert spec.sources["source"].topic == "orders"
    assert spec.sinks["sink"].topic == "orders-revenue"
    with pytest.raises(BadArgument, match="is there already"):
        write_example(tmp_path / "revenue.toml", "orders", force=False)


def test_a_wrong_file_is_one_sentence_with_its_line_and_exit_code_2(tmp_path):
    (tmp_path / "p.toml").write_text('[source]\ntopik = "orders"\n')
    for command in ("validate", "start"):
        result = run(command, "p.toml", cwd=tmp_path)
        assert result.returncode == 2
        assert result.stderr == "headrace: p.toml:2: unknown key topik in [source]; did you mean topic?\n"


def test_no_java_is_one_sentence_with_what_to_do(tmp_path):
    write_example(tmp_path / "p.toml", "orders", force=False)
    for command in ("run", "start"):
        result = run(command, "p.toml", cwd=tmp_path, JAVA_HOME=str(tmp_path))
        assert result.returncode != 0
        (line,) = result.stderr.splitlines()
        assert "which cannot be run (No such file or directory): install one (on Debian: apt-get install" in line


def test_where_a_reset_goes():
    assert parse_target("earliest") == PipelineReset(to_earliest=True)
    assert parse_target("latest") == PipelineReset(to_latest=True)
    assert parse_target("orders:0=17, orders:1=4") == PipelineReset(to_offsets={("orders", 0): 17, ("orders", 1): 4})
    assert parse_target("2026-01-31T12:00:00Z") == PipelineReset(to_time_ms=1769860800000)
    for wrong in ("soon", "orders=5", "orders:x=1"):
        with pytest.raises(BadArgument):
            parse_target(wrong)


def test_a_supervisor_that_is_gone_is_not_taken_for_running(tmp_path):
    folder = StateFolder(tmp_path / "revenue")
    folder.make()
    assert describe(folder)["state"] == "never started"
    write_json(folder.supervisor_state, {"state": "running", "pid": os.getpid(), "restarts": 2, "last_error": "x"})
    folder.progress.write_text(
        'cut off"}\n{"query": "sink", "batch_id": 1, "at": "a", "lag": 5}\n'
        '{"query": "sink", "batch_id": 2, "at": "b", "lag": 3}\n{"query": "si'
    )
    described = describe(folder)
    assert (described["state"], described["pid"], described["restarts"]) == ("died", None, 2)
    assert described["lag"] == 3
    assert last_batches(folder.progress)["sink"]["batch_id"] == 2
    with folder.run_lock.take("revenue"):
        assert describe(folder)["state"] == "running here"
    assert "There are no pipelines in" in run("status", "--state-dir", str(tmp_path / "none")).stdout
    assert "revenue" in run("status", "--state-dir", str(tmp_path)).stdout
    assert "revenue is not running" in run("stop", "revenue", "--state-dir", str(tmp_path)).stdout
    assert run("stop", "nothing", "--state-dir", str(tmp_path)).returncode == 1


def test_a_run_without_java_leaves_nothing_behind(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    assert run("init", "p.toml", cwd=tmp_path, HEADRACE_BOOTSTRAP="127.0.0.1:1").returncode == 0
    done = run("run", "p.toml", cwd=tmp_path, JAVA_HOME=str(tmp_path / "none"))
    assert (done.returncode, "which cannot be run" in done.stderr) == (1, True)
    assert [each.name for each in tmp_path.iterdir()] == ["p.toml"]
