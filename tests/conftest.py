"""Fixtures for all tests. Those of `headrace.testing.plugin` are there also where the package is not installed."""

import faulthandler
import sys

import pytest
from hypothesis import settings

from headrace.testing import plugin

# A slow machine is no failure. `make faults` takes the long profile.
settings.register_profile("usual", deadline=None)
settings.register_profile("long", deadline=None, max_examples=1_000)
settings.load_profile("usual")


def pytest_configure(config: pytest.Config) -> None:
    if not config.pluginmanager.is_registered(plugin):
        config.pluginmanager.register(plugin)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the process, every stack printed, if something that a test left behind keeps it from ending."""
    faulthandler.dump_traceback_later(60, exit=True, file=sys.__stderr__)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of an `xdist_group` in one process.

    xdist 3.8 writes the group into an attribute that pytest 9.2 no longer reads the id from.
    """
    for item in items:
        grouped = getattr(item, "_nodeid", item.nodeid)
        if grouped != item.nodeid and hasattr(item, "_id"):
            item._id = type(item._id).parse(grouped)
