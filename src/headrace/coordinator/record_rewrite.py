"""Bringing the log of a shard into Kafka's format, once the feature level allows it.

From then on the shard writes Kafka's format (`formats.py`). What its log has in the format of 0.1 is written again by
ordinary operations of the shard, some records at a time, each when the one before is committed; compaction does the
rest. A crash or a change of the leader in the middle leaves a log that any broker of this level reads, and goes on with
from what is still old.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from headrace.coordinator.machine import Machine, Outcome
from headrace.coordinator.shard import Result, Shard
from headrace.coordinator.timers import Timers
from headrace.runtime.clock import Clock

log = logging.getLogger(__name__)

KAFKA_FORMAT_LEVEL = 2
"""The feature level from which on Kafka's format is written."""
_RECORDS_PER_STEP = 500
_RETRY_MS = 10_000.0
"""How long to leave alone what open transactions may still change."""


class Rewriter:
    def __init__(self, timers: Timers, clock: Clock, feature_level: Callable[[], int]) -> None:
        self._timers = timers
        self._clock = clock
        self._feature_level = feature_level

    def start(self, shard: Shard[Any]) -> None:
        """Make an active shard write Kafka's format, if the level allows it, and rewrite what is old."""
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
