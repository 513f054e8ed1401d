"""A store whose etcd dies, hangs or is cut off."""

import asyncio
from contextlib import suppress

import pytest
import uvloop

from headrace.cluster.store import Put, Revision, StoreUnavailable, WatchLost
from headrace.testing.etcd import EtcdCluster, EtcdProcess

from .cutting import Cutting
from .etcd_stores import NEEDS_ETCD, WAIT_S, Follower, new_prefix, opened, put_for_certain, run
from .store_contract import put

pytestmark = NEEDS_ETCD


def test_etcd_killed_and_started_again(own: EtcdProcess) -> None:
    async def scenario() -> None:
        async with opened(own.endpoint) as store:
            at = (await store.snapshot()).revision
            follower = Follower(store, at)
            await put(store, "/before")
            await follower.until_key("/before")
            own.kill()
            with pytest.raises(StoreUnavailable):
                await put(store, "/meanwhile")
            await follower.until(lambda follower: bool(follower.failures))
            await asyncio.to_thread(own.start)
            await put_for_certain(store, "/after")
            await follower.until_key("/after")
            assert [change.key for change in follower.seen if change.key != "/meanwhile"] == ["/before", "/after"]
            assert all(isinstance(failure, StoreUnavailable) for failure in follower.failures)
        await asyncio.wait_for(follower._task, WAIT_S)

    run(scenario)


def test_etcd_paused_answers_nothing_and_nobody_waits_for_ever(own: EtcdProcess) -> None:
    async def scenario() -> None:
        async with opened(own.endpoint, timeout_s=2.0, connect_timeout_s=2.0) as store:
            lease = await store.grant_lease(60_000)
            follower = Follower(store, (await store.snapshot()).revision)
            await put(store, "/before")
            await follower.until_key("/before")
            own.pause()
            for work in (store.commit([], [Put("/meanwhile", b"")]), store.keep_alive(lease)):
                with pytest.raises(StoreUnavailable):
                    await work
            # The call that got no answer took the connection down, and with it the watch.
            await follower.until(lambda follower: bool(follower.failures))
            own.resume()
            await put_for_certain(store, "/after")
            await follower.until_key("/after")
            assert follower.revisions() == sorted(set(follower.revisions()))
            assert await store.keep_alive(lease)

    run(scenario)


def test_a_connection_that_is_cut_again_and_again_loses_and_repeats_nothing(shared: EtcdProcess) -> None:
    async def scenario() -> None:
        async with Cutting(shared.port) as wire:
            prefix = new_prefix()
            async with (
                opened(wire.endpoint, prefix=prefix) as store,
                opened(shared.endpoint, prefix=prefix) as writer,
            ):
                follower = Follower(store, (await store.snapshot()).revision)
                written = []
                for number in range(60):
                    written.append(await put(writer, f"/{number}"))
                    if number % 10 == 5:
                        failures = len(follower.failures)
                        await follower.until_key(f"/{number}")
                        wire.cut()
                        await follower.until(lambda follower, failures=failures: len(follower.failures) > failures)  # type: ignore[misc]
                await follower.until_key("/59")
                assert follower.revisions() == written
                assert wire.accepted >= 6

    run(scenario)


def test_a_connection_that_swallows_everything_is_given_up(shared: EtcdProcess) -> None:
    async def scenario() -> None:
        async with Cutting(shared.port) as wire:
            prefix = new_prefix()
            async with opened(
                wire.endpoint, shared.endpoint, prefix=prefix, timeout_s=5.0, connect_timeout_s=5.0
            ) as store:
                follower = Follower(store, (await store.snapshot()).revision)
                await put(store, "/before")
                await follower.until_key("/before")
                wire.swallow()
                await put_for_certain(store, "/after")
                await follower.until_key("/after")
                assert follower.failures
                wire.flow()

    run(scenario)


def test_a_compaction_while_a_watch_is_away_loses_it(shared: EtcdProcess) -> None:
    async def scenario() -> None:
        async with Cutting(shared.port) as wire:
            prefix = new_prefix()
            async with (
                opened(wire.endpoint, prefix=prefix) as store,
                opened(shared.endpoint, prefix=prefix) as writer,
            ):
                follower = Follower(store, await put(store, "/before"))
                await put(writer, "/seen")
                await follower.until_key("/seen")
                wire.swallow()
                for number in range(3):
                    await put(writer, f"/{number}")
                await asyncio.to_thread(shared.compact)
                wire.cut()
                wire.flow()
                await follower.until(lambda follower: any(isinstance(each, WatchLost) for each in follower.failures))

    run(scenario)


def test_calls_that_begin_while_the_connection_breaks_end_too(shared: EtcdProcess) -> None:
    async def scenario() -> None:
        async with Cutting(shared.port) as wire, opened(wire.endpoint, prefix=new_prefix()) as store:
            lease = await store.grant_lease(600_000)
            follower = Follower(store, (await store.snapshot()).revision)
            is_over = False

            async def keep() -> None:
                while not is_over:
                    with suppress(StoreUnavailable):
                        await asyncio.wait_for(store.keep_alive(lease), WAIT_S)
                    await asyncio.sleep(0)

            keeping = [asyncio.create_task(keep()) for _ in range(5)]
            for _ in range(30):
                await asyncio.sleep(0.02)
                wire.cut()
            is_over = True
            await asyncio.wait_for(asyncio.gather(*keeping), WAIT_S)
            await put_for_certain(store, "/after")
            await follower.until_key("/after")

    run(scenario)


def test_closing_while_it_connects_cancels_nobody(shared: EtcdProcess) -> None:
    async def scenario() -> None:
        async with Cutting(shared.port) as wire, opened(wire.endpoint, connect_timeout_s=WAIT_S) as store:
            await put(store, "/a")
            wire.swallow()
            wire.cut()
            reading = [asyncio.create_task(store.snapshot()) for _ in range(3)]
            async with asyncio.timeout(WAIT_S):
                while wire.accepted < 2:  # noqa: ASYNC110 - until it connects again
                    await asyncio.sleep(0.01)
            reading[0].cancel()
            await store.close()
            outcomes = await asyncio.wait_for(asyncio.gather(*reading, return_exceptions=True), WAIT_S)
            assert [type(outcome) for outcome in outcomes] == [
                asyncio.CancelledError,
                StoreUnavailable,
                StoreUnavailable,
            ]

    run(scenario)


@pytest.mark.slow
def test_members_that_die_and_hang_cost_a_moment_and_nothing_else() -> None:
    async def scenario(cluster: EtcdCluster) -> None:
        async with opened(*cluster.endpoints.split(","), timeout_s=2.0, connect_timeout_s=1.5) as store:
            follower = Follower(store, (await store.snapshot()).revision)
            lease = await store.grant_lease(30_000)
            done: list[str] = []
            is_over = False

            async def write() -> None:
                number = 0
                while not is_over:
                    await put_for_certain(store, f"/{number}")
                    done.append(f"/{number}")
                    number += 1

            async def progress() -> None:
                """Until the store goes on, and the watch with it."""
                async with asyncio.timeout(WAIT_S):
                    count = len(done)
                    while len(done) < count + 20:  # noqa: ASYNC110 - many writes, whoever serves them
                        await asyncio.sleep(0.05)
                await follower.until_key(done[-1])
                assert await store.keep_alive(lease)

            writing = asyncio.create_task(write())
            await progress()
            for member in cluster.members:
                member.kill()
                await progress()
                await asyncio.to_thread(member.start)
                await progress()
                member.pause()
                await progress()
                member.resume()
                await progress()
            for member in cluster.members[1:]:
                member.pause()
            await asyncio.sleep(3)
            for member in cluster.members[1:]:
                member.resume()
            await progress()
            is_over = True
            await asyncio.wait_for(writing, WAIT_S)
            await follower.until_key(done[-1])
            assert [change.key for change in follower.seen] == done
            assert follower.revisions() == sorted(set(follower.revisions()))
            assert (await store.snapshot()).items.keys() == set(done)

    with EtcdCluster() as cluster:
        uvloop.run(asyncio.wait_for(scenario(cluster), 10 * WAIT_S))


def test_calls_on_a_connection_that_is_given_up_before_they_have_begun_end(shared: EtcdProcess) -> None:
    async def scenario() -> None:
        async with opened(shared.endpoint, prefix=new_prefix(), timeout_s=1.0) as store:
            lease = await store.grant_lease(60_000)
            for _ in range(2):
                assert await store.keep_alive(lease)
                connection = store._client._connection
                assert connection is not None
                watch = store.watch("", Revision(1))
                calls = [asyncio.ensure_future(store.keep_alive(lease)), asyncio.ensure_future(anext(watch))]
                while not connection._streams:  # noqa: ASYNC110 - just until the calls are made
                    await asyncio.sleep(0)
                store._client._retire(connection)
                for outcome in await asyncio.gather(*calls, return_exceptions=True):
                    assert outcome is True or isinstance(outcome, StoreUnavailable)
                await watch.aclose()

    run(scenario)
