"""Messages on their way from one queue to another while brokers are killed again and again: each of them is in one of
the two in the end, once (invariant 44)."""

import random
import time
from collections import Counter
from pathlib import Path
from typing import Literal

import pytest

from headrace import Client
from headrace.testing.cluster import ClusterProcesses
from headrace.testing.etcd import is_installed
from tests.faults.test_queue_kill import Killed, Say, ThreeBrokers, one_broker

COUNT = 10_000
Kind = Literal["standard", "fifo"]


def _moved_while_killed(killed: Killed, bootstrap: str, kind: Kind, per_second: int, say: Say) -> None:
    chance = random.Random(f"moves of {kind}")
    with Client(bootstrap) as client:
        source, target = (client.queue(name).create(type=kind) for name in ("from", "to"))
        for number in range(COUNT):
            source.send_soon(str(number), group=f"group-{number % 50}" if kind == "fifo" else None)
        client.flush()
        move = source.redrive(to=target.name, rate=per_second)
        kills = 0
        while not move.look().is_over:
            time.sleep(chance.random())
            killed.kill_one(chance)
            kills += 1
        assert (move.status, move.moved) == ("COMPLETED", COUNT)
        got: Counter[str] = Counter()
        while messages := target.receive(max=1000, wait=1, visibility=600):
            got.update(message.text for message in messages)
            for message in messages:
                message.ack()
            target.flush()
        assert got == {str(number): 1 for number in range(COUNT)}
        assert source.counts().available == 0
    say(f"{COUNT} messages were moved out of a {kind} queue with {kills} kills")


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", ["standard", "fifo"])
def test_each_message_is_in_one_queue_once(tmp_path: Path, kind: Kind, say: Say) -> None:
    with one_broker(tmp_path) as killed:
        _moved_while_killed(killed, killed.bootstrap, kind, 2_000, say)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not is_installed(), reason="needs etcd")
def test_the_same_on_three_brokers(tmp_path: Path, say: Say) -> None:
    with ClusterProcesses(tmp_path / "cluster", brokers=3) as cluster:
        _moved_while_killed(ThreeBrokers(cluster), cluster.bootstrap, "standard", 200, say)
