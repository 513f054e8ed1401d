"""The gate of the benchmark against the same commit, with turns that are too short to judge by."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OPERATIONS = (
    "single, os",
    "single, ack",
    "produce, 64 KiB",
    "consume, 1 MiB",
    "SQS cycle, 1 message",
    "SQS cycle, 10 messages",
    "queue work, broker",
    "queue work, SDK",
)


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the git repository")
def test_measures_every_operation_beside_another_revision(tmp_path: Path) -> None:
    command = [sys.executable, "bench/run.py", "--gate", "HEAD", "--sets", "1", "--turns", "1", "--turn-ms", "1"]
    command += ["--work-dir", str(tmp_path / "work"), "--results-dir", str(tmp_path / "results")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    # One set is not enough to find a regression.
    assert done.returncode == 0, done.stdout + done.stderr
    (table,) = (tmp_path / "results").iterdir()
    rows = {line.split(" | ")[0].lstrip("| "): line for line in table.read_text().splitlines() if line.startswith("| ")}
    assert [name for name in rows if name in OPERATIONS] == list(OPERATIONS)
    assert "not measured" not in table.read_text()
    trees = subprocess.run(["git", "worktree", "list"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) not in trees
