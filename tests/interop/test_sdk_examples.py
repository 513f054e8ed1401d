"""The examples run as they say, and the Python of docs/sdk.md and docs/queues.md is Python that works."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .quick import broker  # noqa: F401
from .subject import Subject

ROOT = Path(__file__).parents[2]
EXPECTED = {
    "orders_handler.py": ['posting {"bill":"tea"}', 'posting {"bill":"cake"}', "because of Reject: an order without"],
    "exactly_once.py": ["300 words"],
    "asyncio_client.py": ["{'number': 9}"],
    "queue_worker.py": [
        "mail to alice at attempt 1",
        "mail to bob at attempt 2",
        "mail to carol",
        "because of Reject: a mail",
    ],
}


SERVERS = {"web_app.py"}
"""They run until they are told to stop: see `test_sdk_web.py`."""


@pytest.mark.parametrize("name", sorted({each.name for each in (ROOT / "examples").glob("*.py")} - SERVERS))
def test_examples_run(broker: Subject, name: str) -> None:
    command = [sys.executable, str(ROOT / "examples" / name), broker.bootstrap]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ, check=False)
    assert ended.returncode == 0, ended.stderr
    for expected in EXPECTED[name]:
        assert expected in ended.stdout


@pytest.mark.parametrize(("page", "least"), [("docs/sdk.md", 8), ("docs/queues.md", 6), ("docs/web.md", 1)])
def test_the_code_in_the_guides_compiles(page: str, least: int) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    assert len(blocks) >= least
    for block in blocks:
        compile(block, page, "exec", flags=0x2000)  # top-level await


@pytest.mark.parametrize(("page", "says"), [("docs/sdk.md", "tea"), ("docs/queues.md", "alice@example.org")])
def test_the_first_steps_of_the_guides_run(broker: Subject, tmp_path: Path, page: str, says: str) -> None:
    block = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)[0]
    script = tmp_path / "first.py"
    script.write_text(block.replace("localhost:9092", broker.bootstrap))
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    assert says in ended.stdout
