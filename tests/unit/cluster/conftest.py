"""An etcd for the tests of this directory."""

from collections.abc import Iterator

import pytest

from headrace.testing.etcd import EtcdProcess


@pytest.fixture(scope="package")
def shared() -> Iterator[EtcdProcess]:
    """An etcd that every test of this directory may use, and none may harm."""
    with EtcdProcess() as process:
        yield process


@pytest.fixture
def own() -> Iterator[EtcdProcess]:
    """An etcd to be killed and paused."""
    with EtcdProcess() as process:
        yield process
