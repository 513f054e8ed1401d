"""Real brokers for the tests of queues."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.queues.brokers import QueueBroker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueueBroker]:
    """A broker that the tests of a module share."""
    made = QueueBroker(tmp_path_factory.mktemp("queues") / "data")
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[QueueBroker]:
    """A broker that a test may restart."""
    made = QueueBroker(tmp_path / "data")
    try:
        yield made
    finally:
        made.close()
