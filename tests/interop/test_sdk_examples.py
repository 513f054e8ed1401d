"""The examples run as they say."""

import os
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
    "typed_messages.py": [
        "booked tea 2.5 EUR",
        "booked cake 3.0 GBP",
        "not sent: the value does not fit version 2 of example.sales-value: price: 'dear'",
        "not registered: 40901",
        "dead letter because of InvalidMessage: ",
    ],
    "scaled_workers.py": ["2000 pictures to do"],
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
