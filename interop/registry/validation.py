"""confluent-kafka-python's own serializers against topics with schema validation, on a real `headrace serve` process.

    python interop/registry/validation.py

pip fetches them into an environment of its own in `.cache/` the first time. One line for each check, and an exit code
of 1 if one failed. Where they cannot be fetched, it says so and ends well.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from client_suite import Unavailable
from environments import environment
from report import Report

from headrace.testing.process import BrokerProcess

_HERE = Path(__file__).resolve().parent
_TIMEOUT_S = 300


def main() -> int:
    try:
        python = environment(_HERE / "requirements.txt", "registry")
    except Unavailable as reason:
        print(f"confluent-kafka-python's serializers are not run: {reason}.")
        return 0
    report = Report()
    with tempfile.TemporaryDirectory() as scratch, BrokerProcess(Path(scratch) / "data") as broker:
        done = subprocess.run(
            [str(python), str(_HERE / "checked_topics.py"), broker.bootstrap, f"{broker.http_url}/registry"],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=_TIMEOUT_S,
        )
    for line in done.stdout.splitlines():
        what, failure = json.loads(line)
        report.add(what, failure)
    print(report.summary())
    return bool(report.failed)


if __name__ == "__main__":
    sys.exit(main())
