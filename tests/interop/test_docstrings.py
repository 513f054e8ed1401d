"""The examples in docstrings run as they are written, against a broker process. See `tests/docstrings.py`."""

from collections.abc import Iterator

import pytest

from headrace.testing.process import BrokerProcess
from tests.docstrings import SETUP, PublicName, public_names
from tests.snippets import ROOT, Block, Runner, runner

from .quick import SETTINGS

NAMES = public_names("headrace", "headrace.aio", "headrace.testing")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    folder = tmp_path_factory.mktemp("docstrings")
    with BrokerProcess(folder / "headrace-data", settings=SETTINGS) as broker:
        addresses = {"localhost:9092": broker.bootstrap}
        with runner(folder, addresses, {"PYTHONPATH": str(ROOT / "src")}) as made:
            yield made


@pytest.mark.parametrize("public", NAMES, ids=lambda public: public.name)
def test_the_examples_of_a_name_run(public: PublicName, run: Runner) -> None:
    for block in public.blocks():
        run.run(block._replace(setup=f"{SETUP}opened = client\n"))
        run.run(Block(public.name, 1, "python", "opened.abandon()"))
