"""What one broker tells the others about itself: its part of each figure, which `merge.py` puts together.

A msgpack array, as every call between brokers: fields are added only at the end and with defaults.
"""

import msgspec

from headrace.monitor.snapshots import (
    NO_RATES,
    BrokerTotals,
    GroupStat,
    QueueStat,
    Rates,
    SharePartitionStat,
    TransactionStat,
)


class LedTopic(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The partitions of a topic that this broker leads, in sum."""

    topic: str
    partitions: int
    size_bytes: int
    messages: int
    rates: Rates = NO_RATES


class BrokerSnapshot(msgspec.Struct, array_like=True, frozen=True):
    """The sections that were asked for; None for the others."""

    broker_id: int
    at_ms: int
    totals: BrokerTotals | None = None
    topics: list[LedTopic] | None = None
    groups: list[GroupStat] | None = None
    shares: list[SharePartitionStat] | None = None
    queues: list[QueueStat] | None = None
    transactions: list[TransactionStat] | None = None
