"""A worker of the SDK whose broker is killed under it: everything is handled, and nothing that was done comes again."""

import threading
import time
from functools import partial
from pathlib import Path

import pytest

from headrace import Client, QueueMessage
from headrace.model.queue_wire import Counts
from headrace.testing.process import BrokerProcess
from tests.waiting import until

from .subject import SELDOM

_ENOUGH_S = 120.0
_MESSAGES = 400

pytestmark = pytest.mark.timeout(300)


def test_work_goes_on_when_the_broker_is_killed(tmp_path: Path) -> None:
    handled: dict[str, int] = {}
    books = threading.Lock()
    with BrokerProcess(tmp_path / "data", settings=SELDOM) as broker, Client(broker.bootstrap) as client:
        queue = client.queue("work").create(visibility=5)
        queue.send_many(map(str, range(_MESSAGES)))

        @queue.worker(concurrency=4)
        def work(message: QueueMessage) -> None:
            time.sleep(0.002)
            with books:
                handled[message.text] = handled.get(message.text, 0) + 1

        runner = threading.Thread(target=client.run)
        runner.start()
        try:
            for share in (4, 2):
                until(partial(_has, handled, _MESSAGES // share))
                broker.kill()
                broker.start()
                queue.send(f"after restart {share}")
            until(lambda: len(handled) == _MESSAGES + 2)
            until(lambda: queue.counts() == Counts(0, 0, 0))
        finally:
            client.stop()
            runner.join(_ENOUGH_S)
        assert not runner.is_alive()
        done = dict(handled)
        assert queue.receive(max=10, wait=0) == []
        assert handled == done


def _has(handled: dict[str, int], enough: int) -> bool:
    return len(handled) >= enough
