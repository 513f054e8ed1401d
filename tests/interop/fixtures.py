"""Fixtures for tests against a real broker process: one shared by the session, or one of a test's own."""

import itertools
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from . import raw_client, subject
from .subject import Subject

__all__ = ["broker", "connection", "new_topic", "own_broker", "pytest_runtest_makereport", "topic"]

_names = (f"{uuid.uuid4().hex[:6]}-{number}" for number in itertools.count(1))

RUNNING: list[Subject] = []


@contextmanager
def running(one: Subject) -> Iterator[None]:
    RUNNING.append(one)
    try:
        one.start()
        yield
    finally:
        RUNNING.remove(one)
        one.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure shows the last lines of the log of every broker that the test used."""
    report = yield
    if report.failed:
        for one in RUNNING:
            report.sections.append((f"log of {one.bootstrap}", "\n".join(one.stderr.splitlines()[-40:])))
    return report


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    """A running broker. Tests share it, so they use topics of their own and leave it running."""
    shared = subject.make(tmp_path_factory.mktemp("broker"))
    with running(shared):
        yield shared


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Callable[..., Subject]]:
    """Start a broker of the test's own, with these settings; the test may stop, kill and restart it."""
    if not subject.CAN_CONTROL:
        pytest.skip("needs a broker of its own, and the broker under test is not our process")
    made: list[Subject] = []

    def start(**settings: str) -> Subject:
        one = subject.make(
            tmp_path / f"broker-{len(made)}", {name.replace("_", "."): value for name, value in settings.items()}
        )
        stack.enter_context(running(one))
        made.append(one)
        return one

    with ExitStack() as stack:
        yield start


@pytest.fixture
def connection(broker: Subject) -> Iterator[raw_client.Connection]:
    with raw_client.Connection(broker.bootstrap) as one:
        yield one


@pytest.fixture
def new_topic(broker: Subject, request: pytest.FixtureRequest) -> Callable[..., str]:
    """Make a topic with a name of its own; settings by Kafka's names with `_` for `.`."""

    def make(partitions: int = 1, **settings: str) -> str:
        name = f"{request.node.originalname.removeprefix('test_')}-{next(_names)}"
        raw_client.create_topic(
            broker.bootstrap, name, partitions, {key.replace("_", "."): value for key, value in settings.items()}
        )
        return name

    return make


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    """A topic with one partition."""
    return new_topic()
