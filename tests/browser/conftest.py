"""A browser and a broker with sample data, for all tests here; they run in one process."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from headrace.testing import Broker
from headrace.testing.process import BrokerProcess

from . import sample
from .tab import ARGUMENTS, CHROMIUM, Tab

HERE = Path(__file__).parent
DESKTOP = {"width": 1360, "height": 860}
PHONE = {"width": 390, "height": 844}

OpenTab = Callable[..., Tab]


def pytest_itemcollected(item: pytest.Item) -> None:
    """All tests here in one process: they share a browser and a broker."""
    if HERE in item.path.parents:
        item.add_marker(pytest.mark.xdist_group("browser"))


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """Closed after the last test here: while it is open, Playwright has an event loop that runs in this thread."""
    if not CHROMIUM.exists():
        pytest.skip("needs Debian's chromium: make packages installs it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with the sample data. Tests share it: they change only what they have made."""
    with BrokerProcess(tmp_path_factory.mktemp("dashboard")) as process:
        sample.fill(process)
        yield process


@pytest.fixture
def new_tab(chromium: Browser) -> Iterator[OpenTab]:
    """Make tabs, each in a profile of its own; what they did wrong fails the test at its end."""
    made: list[Tab] = []

    def make(
        process: BrokerProcess | Broker, *, theme: str = "light", size: dict[str, int] = DESKTOP, **options: object
    ) -> Tab:
        # Without motion, a colour is what it is at once.
        context = chromium.new_context(
            viewport=size,  # type: ignore[arg-type]
            color_scheme=theme,  # type: ignore[arg-type]
            **options,  # type: ignore[arg-type]
            reduced_motion="reduce",
        )
        made.append(Tab(context.new_page(), process.http_url))
        return made[-1]

    yield make
    for each in made:
        each.close()
    assert [problem for each in made for problem in each.problems] == []


@pytest.fixture
def tab(new_tab: OpenTab, broker: BrokerProcess) -> Tab:
    return new_tab(broker)
