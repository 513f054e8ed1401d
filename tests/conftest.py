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
_SPREAD = ("property", "sim", "interop/test_documents.py")
"""Tests that share nothing with those beside them."""
_LONGEST_FIRST = (
    "spark",
    "browser",
    "package",
    "alerts",
    "interop/test_cli_secure",
    "faults/test_cluster_faults",
    "faults/test_deliveries",
    "faults/test_secured_cluster",
    "faults/test_sink_commit",
    "faults/test_rolling_upgrade",
    "unit/tools/test_install",
    "unit/tools/test_cold",
)
"""Groups that take minutes or consist of one long test: begun late, they would be what a run waits for at its end."""
_FOLDERS = ("faults", "interop", "upgrade", "attacks", "sim", "property")
"""The order of the others: first those with long tests, and last the thousands of short ones."""

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
    # Brokers are started hundreds of times: compiling all of their code each time would take minutes, and so would
    # rewriting the assertions of all tests in each process of a run.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
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
    path = item.path.relative_to(_HERE)
    if item.get_closest_marker("xdist_group") is None and not path.as_posix().startswith(_SPREAD):
        item.add_marker(pytest.mark.xdist_group(path.with_suffix("").as_posix()))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the groups that take longest first, and keep the tests of a group in one process.

    xdist 3.8 writes the group into an attribute that pytest 9.2 no longer reads the id from.
    """
    items.sort(key=_place)
    for item in items:
        grouped = getattr(item, "_nodeid", item.nodeid)
        if grouped != item.nodeid and hasattr(item, "_id"):
            item._id = type(item._id).parse(grouped)


def _place(item: pytest.Item) -> tuple[int, int]:
    """Where the item's group stands in a run; the order within a group stays."""
    marker = item.get_closest_marker("xdist_group")
    group = marker.args[0] if marker is not None else ""
    folder = item.path.relative_to(_HERE).parts[0]
    return (
        _LONGEST_FIRST.index(group) if group in _LONGEST_FIRST else len(_LONGEST_FIRST),
        _FOLDERS.index(folder) if folder in _FOLDERS else len(_FOLDERS),
    )
