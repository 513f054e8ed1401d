"""How the fetchers of a link treat their source: patiently, and whatever it answers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from headrace.mirror.link_fetch_form import LinkFetchForm
from headrace.mirror.link_fetchers import LinkFetchers
from headrace.model.image import Endpoint
from headrace.model.links import Link
from headrace.replication.leader_fetcher import LeaderFetcher
from headrace.replication.peers import Peers
from headrace.replication.throttle import UNLIMITED_BYTES_PER_S, Throttle
from headrace.runtime.clock import SystemClock
from tests.unit.replication.leaders import LEADER, TOPIC, FakeChannel, FakeLeader, FakePartition, Host
from tests.waiting import until_async

PATIENCE_S = 30.0
KEY = (TOPIC, 0)


@asynccontextmanager
async def fetching(leader: FakeLeader) -> AsyncIterator[LeaderFetcher]:
    host = Host(replica_fetch_wait_max_ms=100)
    peers = Peers(leader, host, Random(1), client_id="link-eu")
    fetcher = LeaderFetcher(
        peers.link(LEADER, "fetch"),
        LinkFetchForm(host, "eu"),
        clock=SystemClock(),
        throttle=Throttle(lambda: UNLIMITED_BYTES_PER_S, 0),
        random=Random(2),
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield fetcher
    finally:
        await fetcher.close()
        await peers.close()


def test_a_large_answer_has_time_to_come_over_a_slow_line() -> None:
    async def scenario() -> None:
        leader, partition = FakeLeader(), FakePartition(0)
        leader.logs = {0: b"abc"}
        async with fetching(leader) as fetcher:
            fetcher.follow(KEY, partition, is_throttled=True)
            await leader.until(lambda: leader.acknowledged.get(0) == 3)
        slowest_bytes_per_s = Host().settings.replica_fetch_response_max_bytes / leader.timeouts_s[-1]
        assert slowest_bytes_per_s < 500_000

    asyncio.run(scenario())


def test_the_reason_is_known_while_a_source_refuses_a_partition() -> None:
    async def scenario() -> None:
        leader, partition = FakeLeader(), FakePartition(0)
        leader.logs, leader.errors = {0: b"abc"}, {0: ErrorCode.topic_authorization_failed.value}
        async with fetching(leader) as fetcher:
            fetcher.follow(KEY, partition, is_throttled=True)
            await leader.until(lambda: len(leader.requests) >= 3)
            assert "TOPIC_AUTHORIZATION_FAILED" in fetcher.failure_of(KEY)
            leader.errors.clear()
            await leader.until(lambda: leader.acknowledged.get(0) == 3)
            assert fetcher.failure_of(KEY) == ""

    asyncio.run(scenario())


def test_the_reason_is_known_while_the_leader_at_the_source_cannot_be_reached() -> None:
    async def scenario() -> None:
        leader = FakeLeader()
        leader.logs, leader.is_away = {0: b"abc"}, True
        async with fetching(leader) as fetcher:
            fetcher.follow(KEY, FakePartition(0), is_throttled=True)
            await until_async(lambda: fetcher.failure_of(KEY))
            assert "away" in fetcher.failure_of(KEY)
            leader.is_away = False
            await leader.until(lambda: leader.acknowledged.get(0) == 3)
            assert fetcher.failure_of(KEY) == ""

    asyncio.run(scenario())


def test_a_contact_counts_from_when_the_source_was_asked() -> None:
    async def scenario() -> None:
        leader = FakeLeader()
        leader.logs = {0: b"abc"}
        async with fetching(leader) as fetcher:
            fetcher.follow(KEY, FakePartition(0), is_throttled=True)
            await leader.until(lambda: leader.acknowledged.get(0) == 3)
            assert fetcher.last_contact_ms(KEY) is None, "what was answered before has not covered this position"
            await until_async(lambda: fetcher.last_contact_ms(KEY))
            asked_ms = fetcher.last_contact_ms(KEY)
            assert asked_ms is not None
            assert SystemClock().wall_ms() - asked_ms >= 90, "the source has waited 100 ms for more"

    asyncio.run(scenario())


def test_the_last_contact_outlives_the_connection() -> None:
    async def scenario() -> None:
        leader = FakeLeader()
        leader.logs = {0: b"abc"}
        async with fetching(leader) as fetcher:
            fetcher.follow(KEY, FakePartition(0), is_throttled=True)
            await leader.until(lambda: leader.acknowledged.get(0) == 3)
            await leader.until(lambda: len(leader.answers) >= 5)
            assert leader.answers[-1] == [], "nothing is new, so it is not named"
            await until_async(lambda: fetcher.last_contact_ms(KEY))
            leader.is_away = True
            for channel in leader.channels:
                channel.close()
            await until_async(lambda: fetcher.failure_of(KEY))
            heard_ms = fetcher.last_contact_ms(KEY)
            assert heard_ms is not None
            await asyncio.sleep(0.1)
            assert fetcher.last_contact_ms(KEY) == heard_ms, "what was heard stays true, and becomes no younger"

    asyncio.run(scenario())


class OddLeader(FakeLeader):
    """The first connection to it fails in a way that nobody expects."""

    was_odd = False

    async def connect(self, endpoint: Endpoint) -> FakeChannel:
        if not self.was_odd:
            self.was_odd = True
            raise ValueError("odd")
        return await super().connect(endpoint)


def test_an_unexpected_error_does_not_end_the_fetcher() -> None:
    async def scenario() -> None:
        leader = OddLeader()
        leader.logs = {0: b"abc"}
        async with fetching(leader) as fetcher:
            fetcher.follow(KEY, FakePartition(0), is_throttled=True)
            await leader.until(lambda: leader.acknowledged.get(0) == 3)
        assert leader.was_odd

    asyncio.run(scenario())


class OddSource:
    """Its first metadata cannot be understood."""

    def __init__(self) -> None:
        self.topics: dict[str, Any] = {}
        self.asked = 0
        self.asked_again = asyncio.Event()

    async def refresh(self) -> None:
        self.asked += 1
        if self.asked == 1:
            raise ValueError("odd")
        self.asked_again.set()


def test_metadata_that_cannot_be_understood_are_asked_for_again() -> None:
    async def scenario() -> None:
        source: Any = OddSource()
        link = Link("eu", UUID(int=1), ("localhost:9092",))
        fetchers = LinkFetchers(link, source, Host(), clock=SystemClock(), random=Random(1))
        async with asyncio.timeout(PATIENCE_S):
            await source.asked_again.wait()
            await fetchers.close()

    asyncio.run(scenario())
