"""What tests of faults share with those of the clients: real broker processes and a client that sends any bytes."""

from collections.abc import Callable

import pytest

from tests.interop.fixtures import *  # noqa: F403


@pytest.fixture
def say(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Tell those who run a long test with `-v` how far it is."""
    plugins = request.config.pluginmanager
    reporter, capture = plugins.get_plugin("terminalreporter"), plugins.get_plugin("capturemanager")

    def write(line: str) -> None:
        if reporter is None or capture is None or reporter.verbosity <= 0:
            print(line)
            return
        with capture.global_and_fixture_disabled():
            reporter.ensure_newline()
            reporter.write_line(f"  {line}", flush=True)

    return write
