"""Which signals a client handles: only those that nobody else in the process does."""

import asyncio
import signal
import threading
from collections.abc import Iterator

import pytest

from headrace.client.signals import USUAL, chosen, stopping_on


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = {each: signal.getsignal(each) for each in USUAL}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_both_signals_where_nobody_handles_them() -> None:
    assert chosen(None) == (signal.SIGINT, signal.SIGTERM)


def test_the_handler_that_asyncio_installs_counts_as_nobody_s() -> None:
    async def look() -> tuple[signal.Signals, ...]:
        return chosen(None)

    assert asyncio.run(look()) == (signal.SIGINT, signal.SIGTERM)


@pytest.mark.parametrize("handler", [lambda *_: None, signal.SIG_IGN])
def test_a_signal_that_somebody_else_handles_is_left_alone(handler: signal.Handlers) -> None:
    signal.signal(signal.SIGTERM, handler)
    assert chosen(None) == (signal.SIGINT,)
    assert chosen([signal.SIGTERM]) == (signal.SIGTERM,)


def test_a_signal_that_the_event_loop_handles_is_left_alone() -> None:
    async def look() -> tuple[signal.Signals, ...]:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, lambda: None)
        try:
            return chosen(None)
        finally:
            loop.remove_signal_handler(signal.SIGTERM)

    assert asyncio.run(look()) == (signal.SIGINT,)


def test_none_on_another_thread_and_an_error_for_those_that_are_wanted() -> None:
    found: list[object] = []

    def look() -> None:
        found.append(chosen(None))
        found.append(chosen(()))
        with pytest.raises(ValueError, match=r"main thread only: call run\(signals=\(\)\)"):
            chosen([signal.SIGTERM])

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [(), ()]


def test_the_first_signal_stops_and_the_second_has_its_usual_effect() -> None:
    stopped: list[str] = []
    with stopping_on([signal.SIGINT], lambda: stopped.append("stop")):
        signal.raise_signal(signal.SIGINT)
        assert stopped == ["stop"]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_that_somebody_installs_meanwhile_stays() -> None:
    heard: list[int] = []

    def theirs(number: int, _: object) -> None:
        heard.append(number)

    with stopping_on([signal.SIGTERM], lambda: None):
        signal.signal(signal.SIGTERM, theirs)
    assert signal.getsignal(signal.SIGTERM) is theirs
