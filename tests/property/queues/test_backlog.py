"""A queue that drops its oldest messages, under random use and crashes: it is within its bound, and what was dropped
never comes back (invariant 90)."""

from random import Random

import pytest
from tests.unit.queues.engines import SECOND, Driven

from headrace.config.queue import QueueSettings

BOUND = 8


class DroppingQueue:
    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        kind = self.chance.choice(["standard", "fifo"])
        self.driven = Driven(QueueSettings(type=kind, visibility_timeout_ms=5 * SECOND))
        self.leases: list[tuple[int, int]] = []
        self.gone: set[int] = set()
        """Messages that were acked or dropped, and persisted or answered."""

    def step(self) -> None:
        chance, driven = self.chance, self.driven
        match chance.randrange(8):
            case 0 | 1 | 2:
                due_ms = driven.now_ms + 3 * SECOND if chance.random() < 0.2 else None
                driven.send(chance.randrange(1, 5), due_ms=due_ms, group=bytes([chance.randrange(3)]))
            case 3:
                found = driven.engine.receive(chance.randrange(1, 6), driven.now_ms)
                self.leases += [(lease.offset, lease.attempt) for lease in found]
            case 4 if self.leases:
                driven.engine.acknowledge([self.leases.pop()], driven.now_ms)
            case 5 if self.leases:
                offset, attempt = self.leases.pop(0)
                look = driven.engine.look(offset)
                if look is not None and look.state == "in flight" and look.attempt == attempt:
                    driven.nack(offset, attempt, delay_ms=chance.choice([0, SECOND]))
            case 6:
                driven.wait(chance.choice([0, SECOND, 6 * SECOND]))
            case 7 if chance.random() < 0.5:
                driven.restart(chance.choice([None, None, 0, 1]))
                self.leases = []
        self.check()

    def check(self) -> None:
        driven = self.driven
        driven.engine.drop_beyond(BOUND, driven.now_ms)
        engine = driven.engine
        live = set(engine.live(0))
        assert engine.backlog == len(live) <= max(BOUND, engine.undroppable)
        assert not live & self.gone, "a message that was dropped or deleted has come back"
        if self.chance.random() < 0.3:
            driven.keep()
            self.gone |= set(range(len(driven.log))) - live


@pytest.mark.parametrize("seed", range(20))
def test_a_backlog_that_drops_is_within_its_bound_and_drops_for_good(seed: int) -> None:
    queue = DroppingQueue(seed)
    for _ in range(150):
        queue.step()
