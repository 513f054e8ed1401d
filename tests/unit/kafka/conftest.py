from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from .group_harness import Groups, started
from .guarded_broker import GuardedBroker, guarded_broker
from .harness import Harness, broker
from .permission_requests_groups import TOPIC, GuardedNames

_NUMBERS = count()


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with broker(tmp_path) as harness:
        yield harness


@pytest.fixture
def groups(tmp_path: Path) -> Iterator[Groups]:
    with started(tmp_path) as groups:
        yield groups


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    """A broker with access control and a topic `TOPIC`."""
    with guarded_broker(tmp_path_factory.mktemp("guarded")) as broker:
        broker.create(TOPIC)
        yield broker


@pytest.fixture
def names(guarded: GuardedBroker) -> Iterator[GuardedNames]:
    """A group and a transactional id of their own; nobody has permissions."""
    yield GuardedNames(f"n{next(_NUMBERS)}", guarded.topic_id(TOPIC))
    guarded.revoke_all()
