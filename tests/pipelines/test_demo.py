"""The tour runs as a newcomer would run it: one command, in an empty folder."""

import os
import subprocess
import sys

from headrace.testing.etcd import is_installed


def test_the_tour_shows_an_answer_and_leaves_nothing_behind(spark, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "demo", "--orders", "1000"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"},
        capture_output=True,
        text=True,
        timeout=350,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "1,000 orders were published to the topic orders, 10 of them broken on purpose" in done.stdout
    assert "10  amount is not DECIMAL(10,2)" in done.stdout
    assert "Every order was counted once." in done.stdout
    assert "mail to bob, attempt 2 of 3: delivered" in done.stdout
    if is_installed():
        assert "All 600 payments are there, once each." in done.stdout
    assert list(tmp_path.iterdir()) == []
