"""KafkaJS against a real `headrace serve` process.

    python interop/kafkajs/run.py

npm fetches KafkaJS and its codecs into `node_modules/` beside this file the first time. Without node or npm it says so
and ends well.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from confluent_kafka import Producer

from headrace.testing.process import BrokerProcess

_HERE = Path(__file__).resolve().parent
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# Nobody needs to wait for more members of a group that has one.
_SETTINGS = {"group.initial.rebalance.delay.ms": 0}


def write_from_python(bootstrap: str) -> None:
    """A topic for each codec, for KafkaJS to read."""
    for codec in _CODECS:
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20})
        for number in range(20):
            producer.produce(f"from-python-{codec}", f"{codec}-{number}", partition=0)
        if producer.flush(30):
            raise SystemExit(f"confluent-kafka could not write with {codec}")


def install() -> str | None:
    """Why KafkaJS cannot be had, or None when it is there."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return "node or npm is not installed"
    if (_HERE / "node_modules" / "kafkajs").is_dir():
        return None
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(command, cwd=_HERE, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"npm cannot install it: {done.stderr.strip()[-200:]}"


def main() -> int:
    reason = install()
    if reason is not None:
        print(f"KafkaJS is not checked: {reason}.")
        return 0
    with (
        tempfile.TemporaryDirectory(prefix="headrace-kafkajs-") as scratch,
        BrokerProcess(Path(scratch) / "data", settings=_SETTINGS) as broker,
    ):
        write_from_python(broker.bootstrap)
        environment = os.environ | {"BOOTSTRAP": broker.bootstrap, "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
        command = ["node", "--test", "--test-reporter=spec", "client.test.js"]
        return subprocess.run(command, cwd=_HERE, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
