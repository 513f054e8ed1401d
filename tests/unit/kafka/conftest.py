from collections.abc import Iterator
from pathlib import Path

import pytest

from .harness import Harness, broker


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with broker(tmp_path) as harness:
        yield harness
