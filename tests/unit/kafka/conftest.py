from collections.abc import Iterator
from pathlib import Path

import pytest

from .group_harness import Groups, started
from .harness import Harness, broker


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with broker(tmp_path) as harness:
        yield harness


@pytest.fixture
def groups(tmp_path: Path) -> Iterator[Groups]:
    with started(tmp_path) as groups:
        yield groups
