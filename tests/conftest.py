"""Fixtures for all tests. Those of `headrace.testing.plugin` are there also where the package is not installed."""

import faulthandler
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from headrace.testing import plugin

from .leftovers import Leftovers

_HERE = Path(__file__).parent
_WITH_BROKERS = ("attacks", "faults", "interop")

# A slow machine is no failure. `make test` tries the same examples every time, so that what it says depends on the code
# alone; `make faults` takes the long profile, whose examples are new in each run.
_ON_ANY_MACHINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("usual", _ON_ANY_MACHINE, derandomize=True)
settings.register_profile("long", _ON_ANY_MACHINE, max_examples=1_000)
settings.load_profile("usual")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--leftovers", action="store_true", help="look after each test whether it left something behind, and fail it"
    )


def pytest_configure(config: pytest.Config) -> None:
    if not config.pluginmanager.is_registered(plugin):
        config.pluginmanager.register(plugin)
    # Brokers are started hundreds of times: compiling all of their code each time would take minutes.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if config.getoption("--leftovers"):
        config.pluginmanager.register(Leftovers(), "leftovers")


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the process, every stack printed, if something that a test left behind keeps it from ending.

    A process of xdist that has no more tests waits here for the others, which may have long ones.
    """
    patience_s = 900 if hasattr(config, "workerinput") else 60
    faulthandler.dump_traceback_later(patience_s, exit=True, file=sys.__stderr__ or 2)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Keep a module's tests in one process where they share brokers: each process would start brokers of its own."""
    folder = item.path.relative_to(_HERE).parts[0]
    if folder in _WITH_BROKERS and item.get_closest_marker("xdist_group") is None:
        item.add_marker(pytest.mark.xdist_group(f"{folder}/{item.path.stem}"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of an `xdist_group` in one process.

    xdist 3.8 writes the group into an attribute that pytest 9.2 no longer reads the id from.
    """
    for item in items:
        grouped = getattr(item, "_nodeid", item.nodeid)
        if grouped != item.nodeid and hasattr(item, "_id"):
            item._id = type(item._id).parse(grouped)
