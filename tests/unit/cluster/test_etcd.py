import asyncio
import logging
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pytest
import uvloop

from headrace.cluster.store import (
    ABSENT,
    Change,
    Compare,
    Put,
    Revision,
    StoreRefused,
    StoreUnavailable,
    WatchLost,
)
from headrace.model.errors import StartupError
from headrace.testing.etcd import EtcdCluster, EtcdProcess, free_port, is_installed

pytest.importorskip("aetcd")

from headrace.cluster import etcd
from headrace.cluster.etcd import EtcdStore
from headrace.cluster.etcd_client import EtcdAccess

from .cutting import Cutting
from .store_contract import Scenario, StoreContract, put, take

pytestmark = [
    pytest.mark.xdist_group("etcd store"),
    pytest.mark.skipif(not is_installed(), reason="etcd is not installed"),
]

WAIT_S = 60


@pytest.fixture(scope="module")
def shared() -> Iterator[EtcdProcess]:
    """An etcd that every test of this module may use, and none may harm."""
    with EtcdProcess() as process:
        yield process


@pytest.fixture
def own() -> Iterator[EtcdProcess]:
    """An etcd to be killed and paused."""
    with EtcdProcess() as process:
        yield process


def new_prefix() -> str:
    return f"/test-{uuid4()}"


@asynccontextmanager
async def opened(
    *endpoints: str, prefix: str = "/headrace", timeout_s: float = 10.0, **access: object
) -> AsyncIterator[EtcdStore]:
    given = EtcdAccess(endpoints, **access)  # type: ignore[arg-type]
    store = await EtcdStore.open(given, prefix, timeout_s=timeout_s, start_timeout_s=WAIT_S)
    try:
        yield store
    finally:
        await store.close()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    """On the loop of the broker."""

    async def main() -> None:
        async with asyncio.timeout(WAIT_S * 1.5):
            await scenario()

    uvloop.run(main())


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


class Follower:
    """Reads a watch for as long as the test lasts, watching again where it was after each failure."""

    def __init__(self, store: EtcdStore, after: Revision) -> None:
        self.seen: list[Change] = []
        self.failures: list[Exception] = []
        self._store = store
        self._after = after
        self._changed = asyncio.Condition()
        self._task = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        while True:
            try:
                async with aclosing(self._store.watch("", self._after)) as watching:
                    async for changes in watching:
                        await self._take(changes)
                return
            except (StoreUnavailable, WatchLost) as error:
                async with self._changed:
                    self.failures.append(error)
                    self._changed.notify_all()
                await asyncio.sleep(0.1)

    async def _take(self, changes: Sequence[Change]) -> None:
        async with self._changed:
            self._after = changes[-1].revision
            self.seen.extend(changes)
            self._changed.notify_all()

    async def until(self, condition: Callable[["Follower"], bool]) -> None:
        async with asyncio.timeout(WAIT_S), self._changed:
            await self._changed.wait_for(lambda: condition(self))

    async def until_key(self, key: str) -> None:
        await self.until(lambda self: any(change.key == key for change in self.seen))

    def revisions(self) -> list[Revision]:
        return [change.revision for change in self.seen]


async def put_for_certain(store: EtcdStore, key: str) -> None:
    """Put a key, in as many attempts as it takes."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                if await store.commit([Compare(key, ABSENT)], [Put(key, b"")]) is not None:
                    return
                if key in (await store.snapshot(key)).items:
                    return  # by an attempt whose answer was lost
            except StoreUnavailable:
                await asyncio.sleep(0.1)


def test_a_large_snapshot_is_read_in_pages_at_one_revision(
    shared: EtcdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd, "PAGE_KEYS", 7)

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
            await asyncio.sleep(2.5)
            before_s = after_s = remaining_s(lease)
            assert before_s <= 998
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
            with pytest.raises(WatchLost, match="forgotten"):
                await take(store, "", before, 1)
            following = asyncio.create_task(take(store, "", last, 1))
            at = await put(store, "/b")
            ((change,),) = await following
            assert change == Change("/b", b"v", at)

    run(scenario)


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
        async with opened(own.endpoint, timeout_s=5.0, connect_timeout_s=5.0) as store:
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
                        await follower.until(lambda follower, failures=failures: len(follower.failures) > failures)
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


def test_a_member_that_is_not_there_is_passed_over(shared: EtcdProcess) -> None:
    async def scenario() -> None:
        dead = f"127.0.0.1:{free_port()}"
        async with opened(dead, shared.endpoint, prefix=new_prefix()) as store:
            await put(store, "/a")
            assert list((await store.snapshot()).items) == ["/a"]

    run(scenario)


def test_an_etcd_with_another_past_is_refused(own: EtcdProcess) -> None:
    async def scenario() -> None:
        async with Cutting(own.port) as wire, opened(wire.endpoint) as store:
            await put(store, "/a")
            with EtcdProcess(args=["--initial-cluster-token=another"]) as other:
                wire._to = other.port
                wire.cut()
                for _ in range(2):
                    with pytest.raises(StoreUnavailable):
                        await store.commit([], [Put("/b", b"")])
                with pytest.raises(StoreUnavailable, match="not the one that this broker started with"):
                    await store.snapshot()

    run(scenario)


def test_without_etcd_the_start_fails_with_a_sentence() -> None:
    async def scenario() -> None:
        access = EtcdAccess((f"127.0.0.1:{free_port()}",))
        with pytest.raises(
            StartupError, match=r"^etcd at 127.0.0.1:\d+ cannot be reached: Connection refused: is it running"
        ):
            await EtcdStore.open(access, "/headrace", start_timeout_s=0.5)

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


def test_user_and_password(own: EtcdProcess, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with opened(own.endpoint, user="headrace", password="secret") as store:
            await put(store, "/before-etcd-asked")
        assert "etcd.user is not needed" in caplog.text
        for command in (
            "user add root:r",
            "user grant-role root root",
            "role add headrace",
            "role grant-permission headrace readwrite --prefix=true /headrace/",
            "user add headrace:secret",
            "user grant-role headrace headrace",
            "auth enable",
        ):
            own.ctl(*command.split())
        for wrong, sentence in (
            ({}, "set etcd.user and etcd.password"),
            ({"user": "headrace", "password": "guess"}, "does not let the user headrace in: check etcd.password"),
        ):
            with pytest.raises(StartupError, match=sentence):
                async with opened(own.endpoint, **wrong):
                    pass
        with pytest.raises(StartupError, match="read and write under"):
            async with opened(own.endpoint, user="headrace", password="secret", prefix="/other"):
                pass
        async with opened(own.endpoint, user="headrace", password="secret") as store:
            lease = await store.grant_lease(60_000)
            follower = Follower(store, await put(store, "/a"))
            await put(store, "/b")
            await follower.until_key("/b")
            # Every token ends when etcd starts anew, and also when its users change.
            await asyncio.to_thread(own.restart)
            await put_for_certain(store, "/c")
            await follower.until_key("/c")
            await asyncio.to_thread(own.ctl, "--user=root:r", "user", "add", "another:x")
            await put(store, "/d")
            await follower.until_key("/d")
            assert await store.keep_alive(lease)
            await store.revoke_lease(lease)

    caplog.set_level(logging.WARNING)
    run(scenario)


def make_certificates(directory: Path) -> None:
    """ca.pem, and host.pem with host.key signed by it for 127.0.0.1."""

    def openssl(*args: str) -> None:
        subprocess.run(["openssl", *args], cwd=directory, check=True, capture_output=True, timeout=60)

    (directory / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test ca", "-days", "2")
    openssl("req", *key, "-keyout", "host.key", "-out", "host.csr", "-subj", "/CN=host")
    signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
    openssl("x509", "-req", "-in", "host.csr", "-out", "host.pem", *signed)


def test_tls_with_certificates_on_both_sides(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    ca, certificate, key = (tmp_path / name for name in ("ca.pem", "host.pem", "host.key"))
    args = [
        f"--trusted-ca-file={ca}",
        "--client-cert-auth",
        f"--cert-file={certificate}",
        f"--key-file={key}",
    ]

    async def scenario(process: EtcdProcess) -> None:
        pem = {"ca": ca.read_bytes(), "certificate": certificate.read_bytes(), "key": key.read_bytes()}
        async with opened(process.endpoint, is_secure=True, **pem) as store:
            await put(store, "/a")
            assert list((await store.snapshot()).items) == ["/a"]
        for access in (
            EtcdAccess((process.endpoint,), connect_timeout_s=5),
            EtcdAccess((process.endpoint,), is_secure=True, ca=ca.read_bytes(), connect_timeout_s=5),
        ):
            with pytest.raises(StartupError, match="cannot be reached"):
                await EtcdStore.open(access, "/headrace", start_timeout_s=0.5)

    with EtcdProcess(args=args, scheme="https") as process:
        run(lambda: scenario(process))


def test_a_watch_ends_with_the_store_also_before_it_has_begun(shared: EtcdProcess) -> None:
    async def scenario() -> None:
        for turns in range(12):
            async with opened(shared.endpoint, prefix=new_prefix()) as store:
                watching = asyncio.create_task(take(store, "/", (await store.snapshot()).revision, 1))
                for _ in range(turns):
                    await asyncio.sleep(0)
            assert await asyncio.wait_for(watching, WAIT_S) == []

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
                store._client._condemn(connection)
                for outcome in await asyncio.gather(*calls, return_exceptions=True):
                    assert outcome is True or isinstance(outcome, StoreUnavailable)
                await watch.aclose()

    run(scenario)
