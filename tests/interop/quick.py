"""A broker for tests of groups: the first member of a group need not wait for others."""

from collections.abc import Iterator

import pytest

from . import subject
from .fixtures import running
from .subject import Subject

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "500"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    """A running broker that the tests of a module share."""
    one = subject.make(tmp_path_factory.mktemp("broker"), {} if subject.EXTERNAL else SETTINGS)
    with running(one):
        yield one
