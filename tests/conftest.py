"""Fixtures for all tests. Those of `headrace.testing.plugin` are there also where the package is not installed."""

import faulthandler
import sys

import pytest
from hypothesis import settings

from headrace.testing import plugin

# A slow machine is no failure. `make faults` takes the long profile.
settings.register_profile("usual", deadline=None)
settings.register_profile("long", deadline=None, max_examples=2_000)
settings.load_profile("usual")


def pytest_configure(config: pytest.Config) -> None:
    if not config.pluginmanager.is_registered(plugin):
        config.pluginmanager.register(plugin)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the process, every stack printed, if something that a test left behind keeps it from ending."""
    faulthandler.dump_traceback_later(60, exit=True, file=sys.__stderr__)
