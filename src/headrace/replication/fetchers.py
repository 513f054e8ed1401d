"""The fetchers of this broker's followers: one task for each leader (`leader_fetcher.py`)."""

from collections.abc import Callable
from random import Random

from headrace.model.ids import BrokerId
from headrace.replication.fetch_form import FollowerHost, ReplicaFetchForm
from headrace.replication.fetch_session import Key
from headrace.replication.followed import Following
from headrace.replication.leader_fetcher import LeaderFetcher
from headrace.replication.peers import Peers
from headrace.replication.throttle import Throttle
from headrace.runtime.clock import Clock

LANE = "fetch"


class Fetchers:
    def __init__(
        self, peers: Peers, host: FollowerHost, *, broker_epoch: Callable[[], int], clock: Clock, random: Random
    ) -> None:
        """`broker_epoch` is sent to leaders, so that they can ignore earlier incarnations of this broker."""
        self._peers = peers
        self._form = ReplicaFetchForm(host, broker_epoch)
        self._random = random
        self._clock = clock
        self._throttle = Throttle(lambda: host.settings.follower_replication_throttled_rate, clock.monotonic_ms())
        self._leaders: dict[BrokerId, LeaderFetcher] = {}
        self._where: dict[Key, BrokerId] = {}

    def follow(self, partition: Following, leader_id: BrokerId, *, is_throttled: bool = False) -> None:
        """Fetch a partition from this leader only. Call it again when anything about the partition has changed.

        `is_throttled`: a reassignment has added this replica, and it has not caught up yet.
        """
        key = (partition.topic_id, partition.index)
        if self._where.get(key, leader_id) != leader_id:
            self.forget(partition)
        self._where[key] = leader_id
        fetcher = self._leaders.get(leader_id)
        if fetcher is None:
            fetcher = self._leaders[leader_id] = LeaderFetcher(
                self._peers.link(leader_id, LANE),
                self._form,
                clock=self._clock,
                throttle=self._throttle,
                random=self._random,
            )
        fetcher.follow(key, partition, is_throttled=is_throttled)

    def forget(self, partition: Following) -> None:
        """Stop fetching a partition. It gets no more records after this call."""
        key = (partition.topic_id, partition.index)
        leader_id = self._where.pop(key, None)
        if leader_id is not None:
            self._leaders[leader_id].forget(key)

    async def close(self) -> None:
        fetchers, self._leaders = tuple(self._leaders.values()), {}
        self._where.clear()
        for fetcher in fetchers:
            await fetcher.close()
