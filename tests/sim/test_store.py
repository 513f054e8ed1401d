"""The modelled store keeps the promises of `cluster/store.py`, and fails in the ways a store may."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

import pytest

from headrace.cluster.store import ABSENT, Change, Compare, DeleteKey, Put, Revision, StoreUnavailable, WatchLost
from headrace.testing.sim.network import Network
from headrace.testing.sim.store import StoreClient, StoreModel
from headrace.testing.sim.world import World


class Setup:
    def __init__(self, seed: int = 1) -> None:
        self.world = World(seed)
        self.network = Network(self.world)
        self.model = StoreModel(self.world)
        self.process = self.world.process("b1")
        self.client = StoreClient(self.model, self.network, self.process)
        self.seen: list[Change] = []
        self.end: list[BaseException | None] = []

    def follow(self, after: int = 0) -> None:
        async def follow() -> None:
            try:
                async with aclosing(self.client.watch("", Revision(after))) as transactions:
                    async for changes in transactions:
                        self.seen.extend(changes)
                self.end.append(None)
            except (StoreUnavailable, WatchLost) as error:
                self.end.append(error)

        self.process.enter(lambda: self.process.create_task(follow()))

    def commit(self, compares: Sequence[Compare], writes: Sequence[Put | DeleteKey]) -> Revision | None:
        return self.world.run(self.process, self.client.commit(compares, writes))


def test_compare_and_set() -> None:
    setup = Setup()
    assert setup.commit([Compare("/a", ABSENT)], [Put("/a", b"1"), Put("/b", b"1")]) == 1
    assert setup.commit([Compare("/a", ABSENT)], [Put("/a", b"2")]) is None
    assert setup.commit([Compare("/a", Revision(1)), Compare("/b", Revision(1))], [DeleteKey("/a")]) == 2
    assert setup.commit([], [DeleteKey("/a")]) == 2
    snapshot = setup.world.run(setup.process, setup.client.snapshot("/"))
    assert {key: item.value for key, item in snapshot.items.items()} == {"/b": b"1"}
    assert snapshot.revision == 2


def test_a_watch_sees_every_change_in_order_from_where_it_was_asked_to() -> None:
    setup = Setup()
    setup.network.usual.slow_share = 0.5
    for number in range(5):
        setup.commit([], [Put("/a", b"%d" % number)])
    setup.follow(after=2)
    for number in range(5, 20):
        setup.commit([], [Put("/a", b"%d" % number)])
    setup.world.run_for(5)
    assert [change.revision for change in setup.seen] == list(range(3, 21))


def test_changes_that_arrive_together_arrive_in_order() -> None:
    """Though the time until then is not the same for each, and times are rounded."""
    for seed in range(20):
        setup = Setup(seed)
        setup.follow()
        setup.world.run_for(0.01)
        setup.client.lag_watches(0.2)
        for number in range(200):
            setup.model.commit([], [Put("/a", b"%d" % number)])
            setup.world.run_for(0.000_7 * setup.world.random.random())
        setup.world.run_for(5)
        assert [change.revision for change in setup.seen] == list(range(1, 201))


def test_a_watch_that_lags_is_late_and_misses_nothing() -> None:
    setup = Setup()
    setup.follow()
    setup.world.run_for(1)
    setup.client.lag_watches(10)
    for number in range(10):
        setup.commit([], [Put("/a", b"%d" % number)])
    setup.world.run_for(0.5)
    assert len(setup.seen) < 10
    setup.world.run_for(20)
    assert [change.value for change in setup.seen] == [b"%d" % number for number in range(10)]


def test_a_watch_whose_history_is_gone_is_lost() -> None:
    setup = Setup()
    setup.commit([], [Put("/a", b"1")])
    setup.model.compact()
    setup.follow(after=0)
    setup.world.run_for(5)
    assert isinstance(setup.end[0], WatchLost)


def test_a_watch_whose_connection_breaks_says_so() -> None:
    setup = Setup()
    setup.follow()
    setup.world.run_for(1)
    setup.client.break_watches()
    setup.world.run_for(5)
    assert isinstance(setup.end[0], StoreUnavailable)


def test_a_watch_over_a_cut_link_goes_on_when_it_is_mended() -> None:
    setup = Setup()
    setup.follow()
    setup.world.run_for(1)
    setup.network.cut("store", "b1")
    setup.model.commit([], [Put("/a", b"1")])
    setup.world.run_for(5)
    assert setup.seen == []
    setup.network.mend()
    setup.world.run_for(5)
    assert [change.value for change in setup.seen] == [b"1"]


def test_closing_ends_the_watch() -> None:
    setup = Setup()
    setup.follow()
    setup.world.run_for(1)
    setup.world.run(setup.process, setup.client.close())
    setup.world.run_for(1)
    assert setup.end == [None]


def test_a_lease_ends_when_it_is_not_renewed_and_takes_its_keys_with_it() -> None:
    setup = Setup()
    setup.follow()

    async def live() -> None:
        lease = await setup.client.grant_lease(2000)
        await setup.client.commit([], [Put("/alive/1", b"x", lease), Put("/other", b"x")])
        for _ in range(10):
            await asyncio.sleep(1)
            assert await setup.client.keep_alive(lease)
        assert "/alive/1" in setup.model.items
        await asyncio.sleep(3)
        assert not await setup.client.keep_alive(lease)
        assert await setup.client.commit([], [Put("/alive/1", b"y", lease)]) is None

    setup.world.run(setup.process, live())
    assert set(setup.model.items) == {"/other"}
    assert [change for change in setup.seen if change.value is None] == [Change("/alive/1", None, Revision(2))]


def test_a_key_written_anew_leaves_its_former_lease() -> None:
    setup = Setup()

    async def live() -> None:
        first, second = await setup.client.grant_lease(1000), await setup.client.grant_lease(60_000)
        await setup.client.commit([], [Put("/a", b"1", first)])
        await setup.client.commit([], [Put("/a", b"2", second)])
        await asyncio.sleep(5)
        assert setup.model.items["/a"].value == b"2"
        await setup.client.revoke_lease(second)
        assert "/a" not in setup.model.items

    setup.world.run(setup.process, live())


def test_a_lost_answer_leaves_the_outcome_unknown() -> None:
    setup = Setup()
    setup.network.cut("store", "b1")
    with pytest.raises(StoreUnavailable):
        setup.commit([], [Put("/a", b"1")])
    assert setup.model.items["/a"].value == b"1"


def test_a_lost_request_changes_nothing() -> None:
    setup = Setup()
    setup.network.cut("b1", "store")
    with pytest.raises(StoreUnavailable):
        setup.commit([], [Put("/a", b"1")])
    assert setup.model.items == {}


def test_calls_fail_as_often_as_they_are_told_to() -> None:
    setup = Setup()
    setup.client.failing = 0.3
    outcomes = []
    for _ in range(50):
        try:
            setup.commit([], [Put("/a", b"1")])
            outcomes.append(True)
        except StoreUnavailable:
            outcomes.append(False)
    assert 5 < outcomes.count(False) < 45
    assert setup.model.revision > outcomes.count(True)
