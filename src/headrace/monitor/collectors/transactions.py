"""Transactions that this broker coordinates."""

from collections.abc import Iterable

from headrace.monitor.scrape import Collector
from headrace.observe.families import MetricFamily, counter, gauge
from headrace.runtime.clock import Clock
from headrace.transactions.service import TransactionService

IDS = gauge("headrace_transactional_ids", "Transactional ids that this broker coordinates.")
OPEN = gauge("headrace_transactions_open", "Transactions that are open.")
OLDEST = gauge("headrace_transaction_oldest_open_seconds", "Age of the oldest open transaction; 0 without one.")
COMMITTED = counter("headrace_transactions_committed_total", "Transactions that were committed.")
ABORTED = counter("headrace_transactions_aborted_total", "Transactions that were aborted, for whatever reason.")
TIMED_OUT = counter(
    "headrace_transactions_timed_out_total", "Transactions that the broker aborted after their timeout."
)
METRICS = (IDS, OPEN, OLDEST, COMMITTED, ABORTED, TIMED_OUT)


def transaction_collector(transactions: TransactionService, clock: Clock) -> Collector:
    async def collect() -> Iterable[MetricFamily]:
        ids = open_count = 0
        oldest_ms = now_ms = clock.wall_ms()
        for _, entry in transactions.all():
            ids += 1
            if entry.started_ms >= 0:
                open_count += 1
                oldest_ms = min(oldest_ms, entry.started_ms)
        counts = transactions.counts
        return (
            IDS.single(ids),
            OPEN.single(open_count),
            OLDEST.single((now_ms - oldest_ms) / 1000),
            COMMITTED.single(counts.committed),
            ABORTED.single(counts.aborted),
            TIMED_OUT.single(counts.timed_out),
        )

    return collect
