"""The examples in docstrings run as they are written, against a broker process. See `tests/docstrings.py`."""

from collections.abc import Iterator

import pytest

from headrace import Client
from headrace.testing.process import BrokerProcess
from tests.docstrings import SETUP, PublicName, public_names
from tests.snippets import ROOT, Block, Runner, runner

from .quick import SETTINGS

NAMES = public_names("headrace", "headrace.aio", "headrace.testing")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("docstrings") / "headrace-data", settings=SETTINGS) as started:
        yield started


@pytest.fixture(scope="module")
def one_runner(tmp_path_factory: pytest.TempPathFactory, broker: BrokerProcess) -> Iterator[Runner]:
    addresses = {"localhost:9092": broker.bootstrap}
    with runner(tmp_path_factory.mktemp("examples"), addresses, {"PYTHONPATH": str(ROOT / "src")}) as made:
        yield made


@pytest.fixture
def run(one_runner: Runner, broker: BrokerProcess) -> Runner:
    """A runner whose broker has no topics and queues yet: no example depends on those that ran before it."""
    with Client(broker.bootstrap) as client:
        for name in client.topics.list():
            client.topics.delete(name)
    return one_runner


@pytest.mark.parametrize("public", NAMES, ids=lambda public: public.name)
def test_the_examples_of_a_name_run(public: PublicName, run: Runner) -> None:
    for block in public.blocks():
        run.run(block._replace(setup=f"{SETUP}opened = client\n"))
        run.run(Block(public.name, 1, "python", "opened.abandon()"))
