"""A Python module that runs as a process and prints its result as JSON."""

import json
import subprocess
import sys
from typing import Any, Self


class JsonProcess:
    """Ended at the end of a `with` block, if it still runs."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._module = module
        self._process = subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=subprocess.PIPE)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def result(self, timeout_s: float) -> Any:
        """What it has printed, when it has ended."""
        out, _ = self._process.communicate(timeout=timeout_s)
        if self._process.returncode:
            raise RuntimeError(f"{self._module} ended with code {self._process.returncode}")
        return json.loads(out)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.is_running:
            self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
