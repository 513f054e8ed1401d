"""Fixtures for all tests. Those of `headrace.testing.plugin` are there also where the package is not installed."""

import pytest

from headrace.testing import plugin


def pytest_configure(config: pytest.Config) -> None:
    if not config.pluginmanager.is_registered(plugin):
        config.pluginmanager.register(plugin)
