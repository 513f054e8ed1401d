"""Divides the quotas of the cluster among its brokers, while `quota.scope` is `cluster`.

Every second each broker asks the others how much their clients use, and computes its own shares (`quotas/shares.py`).
There is no agreement: each decides by what it has heard, at most about a second ago. A broker that does not answer for
three seconds counts as one that uses its equal part, and one that the cluster knows to be dead has no share.
"""

import asyncio
from itertools import islice

from headrace.cluster.metadata import Metadata
from headrace.model.errors import HeadraceError
from headrace.model.ids import BrokerId
from headrace.model.image import ClusterImage
from headrace.model.quotas import QuotaKind
from headrace.monitor.calls import DEMANDS_MAX, AskQuotaDemand, QuotaDemand
from headrace.monitor.loop_slices import sliced
from headrace.quotas.broker_quotas import BrokerQuotas
from headrace.quotas.cluster_demand import EXCHANGED_EVERY_MS, ClusterDemand, DemandReport
from headrace.quotas.limits import AccountName
from headrace.quotas.shares import BrokerDemand
from headrace.replication.calls import ask
from headrace.replication.peers import Peers
from headrace.runtime.clock import Clock

_CLUSTER = "cluster"
_LANE = "quotas"
_TIMEOUT_S = 0.5
_KINDS = frozenset(kind.value for kind in QuotaKind)


async def quota_demand(quotas: BrokerQuotas, clock: Clock) -> QuotaDemand:
    """How much clients use on this broker, for another one."""
    demands = list(islice(quotas.accounts.demands(int(clock.monotonic_ms())), DEMANDS_MAX + 1))
    rows = [(kind.value, *name, *demand) async for (kind, name), demand in sliced(demands[:DEMANDS_MAX])]
    return QuotaDemand(rows, is_whole=len(demands) <= DEMANDS_MAX)


class QuotaExchange:
    def __init__(self, quotas: BrokerQuotas, metadata: Metadata, clock: Clock, peers: Peers) -> None:
        self._quotas = quotas
        self._metadata = metadata
        self._clock = clock
        self._peers = peers
        self._cluster = ClusterDemand()

    def start(self) -> None:
        """Apply the scope and the brokers of the image, now and when they change."""
        self._apply(None, self._metadata.image)
        self._metadata.subscribe(self._apply)

    def _apply(self, old: ClusterImage | None, image: ClusterImage) -> None:
        if old is None or old.brokers is not image.brokers:
            own_id = self._metadata.broker_id
            self._cluster.set_others(each for each in image.brokers if each != own_id and image.is_alive(each))
        self._quotas.accounts.share_with(self._cluster if self._is_shared else None, self._now_ms())

    @property
    def _is_shared(self) -> bool:
        return self._metadata.settings.quota_scope == _CLUSTER

    def _now_ms(self) -> int:
        return int(self._clock.monotonic_ms())

    async def run(self) -> None:
        """Exchange what clients use every second, while there are quotas to divide."""
        while True:
            await asyncio.sleep(EXCHANGED_EVERY_MS / 1000)
            if self._is_shared and self._quotas.accounts.table.limits_clients:
                await self._exchange()

    async def _exchange(self) -> None:
        await asyncio.gather(*(self._ask(BrokerId(each)) for each in self._cluster.others))
        accounts = self._quotas.accounts
        async for account in sliced(list(accounts.all())):
            accounts.divide(account, self._now_ms())

    async def _ask(self, broker_id: BrokerId) -> None:
        try:
            answer = await ask(self._peers, broker_id, AskQuotaDemand(), QuotaDemand, lane=_LANE, timeout_s=_TIMEOUT_S)
        except HeadraceError:
            return
        demands = {
            (QuotaKind(kind), AccountName(user, client_id, is_prefix)): BrokerDemand(used, is_hungry)
            for kind, user, client_id, is_prefix, used, is_hungry in answer.rows
            if kind in _KINDS
        }
        self._cluster.report(broker_id, DemandReport(demands, answer.is_whole, self._now_ms()))
