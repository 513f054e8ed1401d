"""sqs-consumer for JavaScript against a real `headrace serve` process: good messages behind one that always fails.

    python interop/sqs_consumer/run.py

npm fetches it into `node_modules/` beside this file the first time. One line for each check, and an exit code of 1 if
one failed. Without node or npm it says so and ends well.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

import boto3
from report import Report, expect

from headrace.testing.process import BrokerProcess

_HERE = Path(__file__).resolve().parent
_GOOD = 20
_DONE_WITHIN_S = 60


def install() -> str | None:
    """Why sqs-consumer cannot be had, or None when it is there."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return "node or npm is not installed"
    if (_HERE / "node_modules" / "sqs-consumer").is_dir():
        return None
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(command, cwd=_HERE, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"npm cannot install it: {done.stderr.strip()[-200:]}"


def consume(endpoint: str, queue_url: str) -> dict[str, object]:
    environment = os.environ | {
        "ENDPOINT": endpoint,
        "QUEUE_URL": queue_url,
        "GOOD": str(_GOOD),
        "DONE_WITHIN_MS": str(_DONE_WITHIN_S * 1000),
    }
    command = ["node", "run.mjs"]
    ran = subprocess.run(
        command,
        cwd=_HERE,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_DONE_WITHIN_S + 60,
        check=False,
    )
    expect(ran.returncode == 0, ran.stderr[-2000:])
    found: dict[str, object] = json.loads(ran.stdout)
    return found


def main() -> int:
    reason = install()
    if reason is not None:
        print(f"sqs-consumer is not checked: {reason}.")
        return 0
    report = Report()
    with (
        tempfile.TemporaryDirectory(prefix="headrace-sqs-consumer-") as scratch,
        BrokerProcess(Path(scratch) / "data") as broker,
        report.check(f"{_GOOD} messages are handled behind one that fails and is given back each time"),
    ):
        keys = {"region_name": "us-east-1", "aws_access_key_id": "any", "aws_secret_access_key": "any"}
        sqs = boto3.client("sqs", endpoint_url=broker.http_url, **keys)
        queue_url = sqs.create_queue(QueueName="poisoned")["QueueUrl"]
        found = consume(broker.http_url, queue_url)
        expect(found["handled"] == _GOOD, f"within {_DONE_WITHIN_S} s: {found}")
        expect(not found["errors"], found)
    print(report.summary(), flush=True)
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
