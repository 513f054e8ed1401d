"""`Client.run` that is left by an exception of the program's own signal handler."""

import os
import signal
import threading
from types import FrameType

import pytest

from headrace import Client, QueueMessage
from headrace.testing import Broker
from tests.waiting import until


class _Shutdown(Exception):
    pass


def test_workers_stop_when_a_signal_handler_raises() -> None:
    begun, may_end = threading.Event(), threading.Event()
    handled = []

    def shut_down(number: int, _: FrameType | None) -> None:
        may_end.set()
        raise _Shutdown

    with Broker() as broker, Client(broker.bootstrap) as client:
        queue = client.queue("emails").create()
        queue.send_many(["one", "two", "three"])

        @queue.worker(concurrency=1)
        def send(message: QueueMessage) -> None:
            begun.set()
            may_end.wait(60)
            handled.append(message.text)

        def interrupt() -> None:
            begun.wait(60)
            os.kill(os.getpid(), signal.SIGUSR1)

        before = signal.signal(signal.SIGUSR1, shut_down)
        try:
            threading.Thread(target=interrupt).start()
            with pytest.raises(_Shutdown):
                client.run()
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert not client.health().is_running
        assert "one" in handled, "the message in progress was finished"
        until(lambda: queue.counts().available == 3 - len(handled), "the others are returned")
