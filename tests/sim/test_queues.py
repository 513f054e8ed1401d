"""Queues in the simulation: they run in a third of the seeds, and a broken promise of a queue is found."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from headrace.cluster import metadata
from headrace.model.queue_wire import OutgoingMessage, Sent
from headrace.queues.api import Failures
from headrace.queues.service import QueueService
from headrace.testing.sim.course import Scenario
from headrace.testing.sim.runner import SimOutcome, run_seed


def with_queues(seed: int) -> SimOutcome:
    return run_seed(seed, scenario=replace(Scenario.of_seed(seed), has_queues=True, faults_s=8.0))


def test_a_third_of_the_seeds_has_queues_and_works_through_them() -> None:
    having = [seed for seed in range(60_000, 60_300) if Scenario.of_seed(seed).has_queues]
    assert 60 < len(having) < 140
    outcome = with_queues(having[0])
    assert outcome.failure is None, outcome.failure
    assert outcome.counts["messages"] > 0


async def forget_acks(self: QueueService, name: str, receipts: Sequence[str], *, any_receipt: bool = False) -> Failures:
    return [None for _ in receipts]


async def forget_sends(self: QueueService, name: str, messages: Sequence[OutgoingMessage]) -> list[Sent]:
    return [Sent(message.id, 0) for message in messages]


def ignore_state(image: object, assigned: Sequence[int], new_id: Callable[[], Any], *, is_fixed: bool) -> Any:
    return new_id(), tuple(assigned)


@pytest.mark.parametrize(
    ("where", "name", "planted", "found"),
    [
        (QueueService, "acknowledge", forget_acks, "12: "),
        (QueueService, "send", forget_sends, "not all messages of queues were received"),
        (metadata, "place_with_state", ignore_state, "99: "),
    ],
)
def test_a_broken_promise_is_found(
    monkeypatch: pytest.MonkeyPatch, where: object, name: str, planted: object, found: str
) -> None:
    monkeypatch.setattr(where, name, planted)
    failures = [outcome.failure or "" for outcome in map(with_queues, range(3))]
    assert any(found in failure for failure in failures), failures
