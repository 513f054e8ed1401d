"""The conversion of a shard's log to Kafka's format, once the feature level allows it.

From then on the shard writes Kafka's format (`formats.py`). Values in the format of 0.1 are rewritten by ordinary
operations of the shard, a batch of records at a time, each after the previous one is committed; compaction removes the
old ones. After a crash or failover in the middle, any broker of this level can read the log and continues with the
values that are still old.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from headrace.coordinator.machine import Machine, Outcome
from headrace.coordinator.result import Result
from headrace.coordinator.shard import Shard
from headrace.coordinator.timers import Timers
from headrace.runtime.clock import Clock

log = logging.getLogger(__name__)

KAFKA_FORMAT_LEVEL = 2
"""The first feature level that writes Kafka's format."""
_RECORDS_PER_STEP = 500
_RETRY_MS = 10_000.0
"""The delay before retrying values that open transactions may still change."""


class Rewriter:
    """Rewrites the old records of active shards."""

    def __init__(self, timers: Timers, clock: Clock, feature_level: Callable[[], int]) -> None:
        self._timers = timers
        self._clock = clock
        self._feature_level = feature_level

    def start(self, shard: Shard[Any]) -> None:
        """Switch an active shard to Kafka's format, if the feature level allows it, and rewrite its old values."""
        if shard.is_active and self._feature_level() >= KAFKA_FORMAT_LEVEL:
            shard.machine.use_kafka_format()
            self._step(shard, shard.machine)

    def _step(self, shard: Shard[Any], machine: Machine[Any]) -> None:
        if not shard.is_active or shard.machine is not machine or not machine.has_old_records:
            return
        records = machine.old_records(_RECORDS_PER_STEP)
        if not records:
            self._continue(shard, machine, _RETRY_MS)
            return

        def written(result: Result[None]) -> None:
            if result.error is not None:
                return
            if machine.has_old_records:
                self._continue(shard, machine, 0.0)
            else:
                log.info("%s is in Kafka's format now", shard.partition)

        shard.run(lambda _: Outcome(records, None)).then(written)

    def _continue(self, shard: Shard[Any], machine: Machine[Any], in_ms: float) -> None:
        due_ms = self._clock.monotonic_ms() + in_ms
        self._timers.set(("rewrite", shard.partition.index), due_ms, partial(self._step, shard, machine))
