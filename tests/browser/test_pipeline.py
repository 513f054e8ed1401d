"""A real pipeline in the browser: its graph and figures, dead letters with the reason, replay with progress, stop."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from headrace.testing.process import BrokerProcess

from . import sample
from .conftest import OpenTab

pytest.importorskip("pyspark")
pytestmark = [
    pytest.mark.skipif(shutil.which("java") is None, reason="needs Java: make packages installs it"),
    pytest.mark.timeout(600),
]

SPARK_MS = 240_000
"""How long Spark may take to start on a busy machine."""
PIPELINE = """\
name = "payments-to-cents"
[source]
topic = "paid"
schema = "id STRING, amount INT"
[transform]
sql = "SELECT id, amount * 100 AS cents FROM source"
[sink]
topic = "paid-cents"
[spark]
master = "local[1]"
[spark.settings]
"spark.driver.memory" = "512m"
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""


@pytest.fixture
def pipeline(broker: BrokerProcess, tmp_path: Path) -> Iterator[str]:
    """A supervised pipeline over one good row and two that fail."""
    environment = {**os.environ, "HEADRACE_BOOTSTRAP": broker.bootstrap, "SPARK_LOCAL_IP": "127.0.0.1"}

    def run(*arguments: str) -> None:
        command = [sys.executable, "-m", "headrace", "pipeline", *arguments]
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, timeout=300)

    sample.create_topics(broker, {"paid": 1})
    with sample.producing(broker) as producer:
        for value in ('{"id": "a", "amount": 1}', "not json", '{"id": "b", "amount": "many"}'):
            producer.produce("paid", value)
    (tmp_path / "pipeline.toml").write_text(PIPELINE)
    run("start", "pipeline.toml")
    yield "payments-to-cents"
    run("stop", "payments-to-cents")


def test_dead_letters_of_a_pipeline_are_replayed(new_tab: OpenTab, broker: BrokerProcess, pipeline: str) -> None:
    tab = new_tab(broker)
    page = tab.open("/ui/pipelines")
    row = page.locator("tbody tr").filter(has_text=pipeline)
    expect(row).to_contain_text("running", timeout=SPARK_MS)
    row.get_by_role("link").click()
    graph = page.get_by_role("region", name="Graph of the pipeline")
    expect(graph).to_contain_text("paid")
    expect(page.locator(".stat").filter(has_text="Dead letters")).to_contain_text("2", timeout=SPARK_MS)
    page.get_by_role("navigation", name="Parts of the pipeline").get_by_role("link", name="Dead letters").click()
    expect(page.locator("tbody")).to_contain_text("not json")
    page.get_by_role("button", name="Replay all").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Up to 2 rows go back to the source topics")
    dialog.get_by_role("button", name="Replay").click()
    expect(page.locator(".redrive")).to_contain_text("Replay ended: 2 sent", timeout=SPARK_MS)
    page.get_by_role("link", name="Log").click()
    expect(page.get_by_role("region", name="Log")).to_contain_text("started process")
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop the pipeline").click()
    expect(page.locator(".page-title .badge")).to_contain_text("stopped", timeout=SPARK_MS)
    expect(page.get_by_role("button", name="Start")).to_be_visible()
