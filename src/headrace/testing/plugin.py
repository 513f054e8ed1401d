"""Pytest fixtures, found by pytest once `headrace` is installed.

    def test_orders(headrace_broker):
        producer = Producer({"bootstrap.servers": headrace_broker.bootstrap})

`headrace_broker` is new and empty for each test; `headrace_session_broker` is shared by all tests of a run, which is
faster where tests use topics of their own. Both take their settings from a fixture that a test module or a
`conftest.py` may override:

    @pytest.fixture
    def headrace_settings():
        return {"num.partitions": 1}
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headrace.testing.broker import Broker


@pytest.fixture
def headrace_settings() -> Mapping[str, object]:
    """Broker settings of `headrace_broker`; override it to change them."""
    return {}


@pytest.fixture(scope="session")
def headrace_session_settings() -> Mapping[str, object]:
    """Broker settings of `headrace_session_broker`; override it to change them."""
    return {}


@pytest.fixture
def headrace_broker(headrace_settings: Mapping[str, object]) -> "Iterator[Broker]":
    """A running broker for this test only: `headrace_broker.bootstrap`."""
    from headrace.testing.broker import Broker

    with Broker(settings=headrace_settings) as broker:
        yield broker


@pytest.fixture(scope="session")
def headrace_session_broker(headrace_session_settings: Mapping[str, object]) -> "Iterator[Broker]":
    """A running broker that all tests of the run share."""
    from headrace.testing.broker import Broker

    with Broker(settings=headrace_session_settings) as broker:
        yield broker
