"""The Go clients sarama and kafka-go against a real `headrace serve` process.

    python interop/go/run.py

Go fetches both the first time. One line for each check, and an exit code of 1 if one failed. Without Go, or where the
clients cannot be fetched, it says so and ends well.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from headrace.testing.process import BrokerProcess

_HERE = Path(__file__).resolve().parent
_BUILT_WITHIN_S, _DONE_WITHIN_S = 600.0, 300.0


def build(program: Path) -> str | None:
    """Why the program cannot be built, or None when it is there."""
    if shutil.which("go") is None:
        return "Go is not installed (Debian: golang-go)"
    command = ["go", "build", "-mod=readonly", "-o", str(program), "."]
    done = subprocess.run(
        command,
        cwd=_HERE,
        env=os.environ | {"GOTOOLCHAIN": "local"},
        capture_output=True,
        text=True,
        timeout=_BUILT_WITHIN_S,
        check=False,
    )
    return None if done.returncode == 0 else f"they cannot be built: {done.stderr.strip()[-300:]}"


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="headrace-go-") as scratch:
        program = Path(scratch) / "clients"
        reason = build(program)
        if reason is not None:
            print(f"sarama and kafka-go are not checked: {reason}.")
            return 0
        settings = {"group.initial.rebalance.delay.ms": 0}
        with BrokerProcess(Path(scratch) / "data", settings=settings) as broker:
            command = [str(program), broker.bootstrap]
            return subprocess.run(command, timeout=_DONE_WITHIN_S, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
