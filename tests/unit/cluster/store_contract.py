"""What every metadata store promises. An adapter's tests subclass `StoreContract` and say how to open one."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Protocol

import pytest

from headrace.cluster.store import ABSENT, Change, Compare, DeleteKey, MetadataStore, Put, Revision, StoreUnavailable


class Time(Protocol):
    async def pass_ms(self, duration_ms: int) -> None:
        """Returns when this much time has passed for the store."""


Scenario = Callable[[MetadataStore, Time], Awaitable[None]]


async def put(store: MetadataStore, key: str, value: bytes = b"v") -> Revision:
    revision = await store.commit([], [Put(key, value)])
    assert revision is not None
    return revision


async def take(store: MetadataStore, prefix: str, after: Revision, count: int) -> list[Sequence[Change]]:
    got: list[Sequence[Change]] = []
    async with aclosing(store.watch(prefix, after)) as watching:
        async for changes in watching:
            got.append(changes)
            if len(got) == count:
                break
    return got


class StoreContract:
    def run(self, scenario: Scenario) -> None:
        """Run a scenario on a store that is new, and close the store."""
        raise NotImplementedError

    def test_what_was_put_is_in_the_snapshot_at_its_revision(self) -> None:
        async def scenario(store: MetadataStore, time: Time) -> None:
            first = await put(store, "/a/1", b"one")
            second = await put(store, "/b", b"\x00\xff")
            snapshot = await store.snapshot()
            assert {key: (item.value, item.mod_revision) for key, item in snapshot.items.items()} == {
                "/a/1": (b"one", first),
                "/b": (b"\x00\xff", second),
            }
            assert snapshot.revision == second > first > ABSENT
            assert list((await store.snapshot("/a/")).items) == ["/a/1"]

        self.run(scenario)

    def test_a_prefix_is_taken_literally(self) -> None:
        async def scenario(store: MetadataStore, time: Time) -> None:
            await put(store, "/a_b/1")
            await put(store, "/axb/1")
            await put(store, "/a%/1")
            assert list((await store.snapshot("/a_b/")).items) == ["/a_b/1"]
            assert list((await store.snapshot("/a%")).items) == ["/a%/1"]

        self.run(scenario)

    def test_a_comparison_that_does_not_hold_changes_nothing(self) -> None:
        async def scenario(store: MetadataStore, time: Time) -> None:
            at = await put(store, "/a")
            assert await store.commit([Compare("/a", ABSENT)], [Put("/a", b"x"), Put("/b", b"x")]) is None
            assert await store.commit([Compare("/a", at), Compare("/b", at)], [DeleteKey("/a")]) is None
            assert await store.commit([Compare("/b", ABSENT), Compare("/a", at)], [Put("/b", b"x")]) is not None
            snapshot = await store.snapshot()
            assert {key: item.value for key, item in snapshot.items.items()} == {"/a": b"v", "/b": b"x"}

        self.run(scenario)

    def test_of_many_writers_with_the_same_comparison_one_wins(self) -> None:
        async def scenario(store: MetadataStore, time: Time) -> None:
            results = await asyncio.gather(
                *(store.commit([Compare("/a", ABSENT)], [Put("/a", b"x")]) for _ in range(20))
            )
            assert sum(result is not None for result in results) == 1

        self.run(scenario)

    def test_revisions_grow_and_a_key_that_was_deleted_is_absent(self) -> None:
        async def scenario(store: MetadataStore, time: Time) -> None:
            first = await put(store, "/a")
            second = await store.commit([Compare("/a", first)], [DeleteKey("/a")])
            assert second is not None
            third = await store.commit([Compare("/a", ABSENT)], [Put("/a", b"again")])
            assert third is not None
            assert first < second < third

        self.run(scenario)

    def test_a_watch_gives_every_later_change_once_in_order_by_transaction(self) -> None:
        async def scenario(store: MetadataStore, time: Time) -> None:
            before = await put(store, "/a", b"0")
            one = await store.commit([], [Put("/a", b"1"), Put("/other", b"1"), Put("/ab", b"1")])
            await put(store, "/other", b"2")
            watching = asyncio.create_task(take(store, "/a", before, 3))
            await asyncio.sleep(0)
            two = await store.commit([], [DeleteKey("/a")])
            three = await put(store, "/a", b"3")
            assert one is not None
            assert two is not None
            assert await watching == [
                [Change("/a", b"1", one), Change("/ab", b"1", one)],
                [Change("/a", None, two)],
                [Change("/a", b"3", three)],
            ]

        self.run(scenario)

    def test_a_watch_resumes_where_a_reader_left_off(self) -> None:
        async def scenario(store: MetadataStore, time: Time) -> None:
            at = (await store.snapshot()).revision
            for number in range(10):
                await put(store, "/n", b"%d" % number)
            seen: list[bytes | None] = []
            while len(seen) < 10:
                (changes,) = await take(store, "/", at, 1)
                at = changes[-1].revision
                seen.extend(change.value for change in changes)
            assert seen == [b"%d" % number for number in range(10)]

        self.run(scenario)

    def test_a_transaction_that_changes_nothing_is_no_revision(self) -> None:
        async def scenario(store: MetadataStore, time: Time) -> None:
            at = await put(store, "/a")
            assert await store.commit([], [DeleteKey("/none")]) == at
            assert (await store.snapshot()).revision == at

        self.run(scenario)

    def test_a_key_under_a_lease_is_gone_when_the_lease_ends(self) -> None:
        async def scenario(store: MetadataStore, time: Time) -> None:
            lease = await store.grant_lease(1_000)
            at = await store.commit([], [Put("/leased", b"x", lease)])
            await put(store, "/kept")
            assert at is not None
            assert await store.keep_alive(lease)
            assert "/leased" in (await store.snapshot()).items
            for _ in range(60):
                await time.pass_ms(500)
                if "/leased" not in (await store.snapshot()).items:
                    break
            assert list((await store.snapshot()).items) == ["/kept"]
            assert not await store.keep_alive(lease)
            (_, (gone,)) = await take(store, "/", at, 2)
            assert (gone.key, gone.value) == ("/leased", None)
            assert await store.commit([], [Put("/leased", b"x", lease)]) is None

        self.run(scenario)

    def test_a_revoked_lease_takes_its_keys_and_cannot_be_used(self) -> None:
        async def scenario(store: MetadataStore, time: Time) -> None:
            lease, other = await store.grant_lease(60_000), await store.grant_lease(60_000)
            assert lease != other
            await store.commit([], [Put("/1", b"x", lease), Put("/2", b"x", other)])
            await store.revoke_lease(lease)
            await store.revoke_lease(lease)
            assert not await store.keep_alive(lease)
            assert list((await store.snapshot()).items) == ["/2"]
            assert await store.commit([], [Put("/1", b"x", lease)]) is None

        self.run(scenario)

    def test_a_key_put_again_without_the_lease_outlives_it(self) -> None:
        async def scenario(store: MetadataStore, time: Time) -> None:
            lease = await store.grant_lease(60_000)
            await store.commit([], [Put("/a", b"x", lease)])
            await put(store, "/a", b"y")
            await store.revoke_lease(lease)
            assert (await store.snapshot()).items["/a"].value == b"y"

        self.run(scenario)

    @pytest.mark.parametrize("size", [0, 1, 300_000])
    def test_values_of_any_size(self, size: int) -> None:
        async def scenario(store: MetadataStore, time: Time) -> None:
            await put(store, "/a", b"\x80" * size)
            assert (await store.snapshot()).items["/a"].value == b"\x80" * size

        self.run(scenario)

    def test_closing_ends_watches_and_refuses_work(self) -> None:
        async def scenario(store: MetadataStore, time: Time) -> None:
            watching = asyncio.create_task(take(store, "/", (await store.snapshot()).revision, 1))
            await asyncio.sleep(0.01)
            await store.close()
            assert await asyncio.wait_for(watching, 60) == []
            assert await take(store, "/", ABSENT, 1) == []
            for work in (store.snapshot(), store.commit([], [Put("/a", b"")])):
                with pytest.raises(StoreUnavailable, match="closed"):
                    await work

        self.run(scenario)
