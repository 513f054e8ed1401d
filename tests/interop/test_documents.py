"""The code of the README and of the guides does what a reader expects of it: it runs as it is written.

`tests/snippets.py` says how blocks are found, and how those that cannot run here are marked in the pages.
"""

from pathlib import Path

import pytest

from headrace.testing.process import BrokerProcess
from tests.snippets import PAGES, ROOT, blocks_of, runner

from .quick import SETTINGS

# Many programs are started, one after the other: on a busy machine each takes seconds.
pytestmark = pytest.mark.timeout(600)

BLOCKS = [block for page in PAGES for block in blocks_of(page) if block.language != "spark"]
RUN = [page for page in PAGES if any(block.page == page and not block.reason for block in BLOCKS)]


@pytest.mark.parametrize("page", RUN)
def test_the_code_of_a_page_runs(page: str, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "headrace-data", settings=SETTINGS) as broker:
        http = broker.http_url.removeprefix("http://")
        addresses = {"localhost:9092": broker.bootstrap, "localhost:9324": http, "HOST:PORT": broker.bootstrap}
        environment = {"HEADRACE_BOOTSTRAP": broker.bootstrap, "PYTHONPATH": str(ROOT / "src")}
        with runner(tmp_path, addresses, environment) as run:
            for block in BLOCKS:
                if block.page == page and not block.reason:
                    run.run(block)


@pytest.mark.parametrize("page", {block.page: None for block in BLOCKS})
def test_code_that_is_not_run_is_code(page: str) -> None:
    for block in BLOCKS:
        if block.page == page and block.reason:
            block.check_syntax()


def test_most_of_what_a_newcomer_reads_first_is_run() -> None:
    """A page cannot be marked as a whole without anybody noticing."""
    first = [
        block for block in BLOCKS if block.page in ("README.md", "docs/quickstart.md", "docs/queues.md", "docs/sdk.md")
    ]
    assert sum(not block.reason for block in first) >= 25
    assert {block.page for block in first if not block.reason} == {block.page for block in first}
