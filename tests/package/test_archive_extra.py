"""Archives need the extra `archive` and nothing that only the extra `spark` has."""

import subprocess
import sys
from pathlib import Path

import pytest

from headrace.model.extras import ARCHIVE, SPARK
from headrace.testing import Broker

pytestmark = pytest.mark.xdist_group("package")

WITHOUT_SPARK = f"""
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted({*SPARK.modules, *SPARK.more_modules} - {*ARCHIVE.modules})}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
from headrace.cli.main import main
sys.exit(main())
"""


def headrace(broker: Broker, *arguments: str, stdin: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK, *arguments, "--bootstrap", broker.bootstrap],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done
    return done.stdout


def test_a_topic_is_archived_and_replayed_without_spark(headrace_broker: Broker, tmp_path: Path) -> None:
    for module in (*ARCHIVE.modules, *ARCHIVE.more_modules):
        pytest.importorskip(module)
    archive = str(tmp_path / "archive")
    headrace(headrace_broker, "produce", "orders", stdin="one\ntwo\n")
    archived = headrace(headrace_broker, "pipeline", "archive", "orders", "--to", archive, "--once", "--iceberg")
    assert archived.startswith("Archived 2 records of orders")
    headrace(headrace_broker, "topic", "create", "again")
    headrace(headrace_broker, "pipeline", "replay", archive, "--to", "again")
    assert sorted(headrace(headrace_broker, "consume", "again", "--from-beginning").split()) == ["one", "two"]
