"""A store over a real etcd."""

import asyncio

import pytest

from headrace.cluster.store import Change, Put, StoreRefused, WatchLost
from headrace.testing.etcd import EtcdProcess
from tests.waiting import until_async

from .etcd_stores import NEEDS_ETCD, WAIT_S, new_prefix, opened, run
from .store_contract import Scenario, StoreContract, put, take

pytestmark = NEEDS_ETCD


class _RealTime:
    async def pass_ms(self, duration_ms: int) -> None:
        await asyncio.sleep(duration_ms / 1000)


class TestEtcdStore(StoreContract):
    @pytest.fixture(autouse=True)
    def _etcd(self, shared: EtcdProcess) -> None:
        self.etcd = shared

    def run(self, scenario: Scenario) -> None:
        async def main() -> None:
            async with opened(self.etcd.endpoint, prefix=new_prefix()) as store:
                await scenario(store, _RealTime())

        run(main)


def test_a_large_snapshot_is_read_in_pages_at_one_revision(
    shared: EtcdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.cluster.etcd.PAGE_KEYS", 7)

    async def scenario() -> None:
        async with opened(shared.endpoint, prefix=new_prefix()) as store:
            for first in range(0, 100, 25):
                await store.commit([], [Put(f"/n/{number:03}", b"0") for number in range(first, first + 25)])

            async def rewrite() -> None:
                for round_ in range(20):
                    await store.commit([], [Put(f"/n/{number:03}", b"%d" % round_) for number in range(100)])

            rewriting = asyncio.create_task(rewrite())
            while not rewriting.done():
                snapshot = await store.snapshot("/n/")
                assert list(snapshot.items) == [f"/n/{number:03}" for number in range(100)]
                assert len({item.value for item in snapshot.items.values()}) == 1
                assert max(item.mod_revision for item in snapshot.items.values()) <= snapshot.revision
            await rewriting

    run(scenario)


def test_clusters_with_different_prefixes_do_not_see_each_other(shared: EtcdProcess) -> None:
    async def scenario() -> None:
        prefix = new_prefix()
        async with (
            opened(shared.endpoint, prefix=prefix) as one,
            opened(shared.endpoint, prefix=prefix + "2/") as other,
        ):
            at = (await one.snapshot()).revision
            await put(other, "/a")
            await put(one, "/b")
            assert list((await one.snapshot()).items) == ["/b"]
            assert list((await other.snapshot()).items) == ["/a"]
            ((change,),) = await take(one, "", at, 1)
            assert change.key == "/b"
        assert shared.ctl("get", "--prefix", prefix, "--keys-only").split() == [prefix + "/b", prefix + "2/a"]

    run(scenario)


def test_a_transaction_that_etcd_cannot_take_is_refused(shared: EtcdProcess) -> None:
    async def scenario() -> None:
        async with opened(shared.endpoint, prefix=new_prefix()) as store:
            with pytest.raises(StoreRefused, match="too many operations"):
                await store.commit([], [Put(f"/{number}", b"") for number in range(129)])
            with pytest.raises(StoreRefused, match="too large"):
                await store.commit([], [Put("/a", b"x" * 2_000_000)])
            assert await store.commit([], [Put(f"/{number}", b"") for number in range(128)]) is not None

    run(scenario)


def test_a_lease_is_renewed(shared: EtcdProcess) -> None:
    def remaining_s(lease: int) -> int:
        return int(shared.ctl("lease", "timetolive", f"{lease:x}").split("remaining(")[1].split("s)")[0])

    async def scenario() -> None:
        async with opened(shared.endpoint, prefix=new_prefix()) as store:
            lease = await store.grant_lease(999_001)
            await until_async(lambda: remaining_s(lease) <= 998)
            before_s = after_s = remaining_s(lease)
            for _ in range(10):
                assert await store.keep_alive(lease)
                after_s = max(after_s, remaining_s(lease))
                if after_s > before_s:
                    break
            assert before_s < after_s <= 1_000
            await store.revoke_lease(lease)

    run(scenario)


def test_a_watch_after_a_compaction_is_lost(shared: EtcdProcess) -> None:
    async def scenario() -> None:
        async with opened(shared.endpoint, prefix=new_prefix()) as store:
            before = await put(store, "/a", b"0")
            for number in range(3):
                last = await put(store, "/a", b"%d" % number)
            await asyncio.to_thread(shared.compact)
            with pytest.raises(WatchLost, match="compacted"):
                await take(store, "", before, 1)
            following = asyncio.create_task(take(store, "", last, 1))
            at = await put(store, "/b")
            ((change,),) = await following
            assert change == Change("/b", b"v", at)

    run(scenario)


def test_a_watch_ends_with_the_store_also_before_it_has_begun(shared: EtcdProcess) -> None:
    async def scenario() -> None:
        for turns in range(12):
            async with opened(shared.endpoint, prefix=new_prefix()) as store:
                watching = asyncio.create_task(take(store, "/", (await store.snapshot()).revision, 1))
                for _ in range(turns):
                    await asyncio.sleep(0)
            assert await asyncio.wait_for(watching, WAIT_S) == []

    run(scenario)
