"""What clients use on the other brokers of a cluster, as these have reported it, and this broker's part of it. Pure."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.model.quotas import QuotaKind
from headrace.quotas.limits import AccountName
from headrace.quotas.shares import NO_DEMAND, BrokerDemand, divided

EXCHANGED_EVERY_MS = 1_000
VALID_MS = 3 * EXCHANGED_EVERY_MS
"""How long a report is used if no newer one comes."""

DemandKey = tuple[QuotaKind, AccountName]


class DemandReport(NamedTuple):
    """What the clients of one broker use."""

    demands: Mapping[DemandKey, BrokerDemand]
    is_whole: bool
    """False if some were left out: their demand is not known then."""
    received_ms: int


class ClusterDemand:
    def __init__(self) -> None:
        self._reports: dict[int, DemandReport] = {}
        self._others: tuple[int, ...] = ()

    @property
    def others(self) -> tuple[int, ...]:
        """The other brokers that are alive."""
        return self._others

    @property
    def equal_part(self) -> float:
        """The part of each broker if all have the same."""
        return 1.0 / (1 + len(self._others))

    def set_others(self, broker_ids: Iterable[int]) -> None:
        """Set which other brokers are alive; those that are not have no share."""
        self._others = tuple(sorted(broker_ids))
        self._reports = {each: self._reports[each] for each in self._others if each in self._reports}

    def report(self, broker_id: int, report: DemandReport) -> None:
        """Note what a broker has reported, in place of its report before."""
        if broker_id in self._others:
            self._reports[broker_id] = report

    def part(self, key: DemandKey, limit: float, own: BrokerDemand, now_ms: int) -> float:
        """The part of a quota that is this broker's, from 0 to 1."""
        if not self._others:
            return 1.0
        demands = [own, *(self._demand(broker_id, key, now_ms) for broker_id in self._others)]
        return min(1.0, divided(limit, demands)[0] / limit)

    def _demand(self, broker_id: int, key: DemandKey, now_ms: int) -> BrokerDemand | None:
        report = self._reports.get(broker_id)
        if report is None or now_ms - report.received_ms > VALID_MS:
            return None
        return report.demands.get(key, NO_DEMAND if report.is_whole else None)
