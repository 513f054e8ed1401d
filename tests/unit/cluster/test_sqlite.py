import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.cluster import sqlite
from headrace.cluster.sqlite import SqliteStore
from headrace.cluster.store import ABSENT, Compare, Put, Revision, WatchLost, Write
from headrace.model.errors import StartupError
from headrace.runtime.clock import ManualClock, SystemClock

from .store_contract import Scenario, StoreContract, put, take


def run(path: Path, scenario: Callable[[SqliteStore], Awaitable[None]]) -> None:
    async def main() -> None:
        store = await SqliteStore.open(path, SystemClock())
        try:
            await scenario(store)
        finally:
            await store.close()

    asyncio.run(main())


@dataclass
class _ManualTime:
    clock: ManualClock

    async def pass_ms(self, duration_ms: int) -> None:
        self.clock.advance(duration_ms)


class TestSqliteStore(StoreContract):
    @pytest.fixture(autouse=True)
    def _path(self, tmp_path: Path) -> None:
        self.path = tmp_path / "metadata.db"

    def run(self, scenario: Scenario) -> None:
        async def main() -> None:
            clock = ManualClock()
            store = await SqliteStore.open(self.path, clock)
            try:
                await scenario(store, _ManualTime(clock))
            finally:
                await store.close()

        asyncio.run(main())


def test_keys_and_revisions_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    revisions: list[Revision] = []

    async def first(store: SqliteStore) -> None:
        revisions.append(await put(store, "/a", b"one"))
        revisions.append(await put(store, "/b"))

    async def second(store: SqliteStore) -> None:
        snapshot = await store.snapshot()
        assert snapshot.revision == revisions[-1]
        assert snapshot.items["/a"].value == b"one"
        assert snapshot.items["/a"].mod_revision == revisions[0]
        assert await put(store, "/c") > revisions[-1]

    run(path, first)
    run(path, second)


def test_leased_keys_end_with_the_process(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    at: list[Revision] = []

    async def first(store: SqliteStore) -> None:
        lease = await store.grant_lease(60_000)
        revision = await store.commit([], [Put("/leased", b"", lease), Put("/kept", b"")])
        assert revision is not None
        at.append(revision)

    async def second(store: SqliteStore) -> None:
        snapshot = await store.snapshot()
        assert list(snapshot.items) == ["/kept"]
        assert snapshot.revision > at[0]

    run(path, first)
    run(path, second)


def test_other_users_cannot_read_the_file(tmp_path: Path) -> None:
    """Not one that an earlier version created, either."""
    path = tmp_path / "metadata.db"
    modes: set[int] = set()

    async def look(store: SqliteStore) -> None:
        await put(store, "/secret")
        modes.update(read_modes())

    def read_modes() -> set[int]:
        return {each.stat().st_mode & 0o777 for each in tmp_path.iterdir()}

    run(path, look)
    assert modes == {0o600}
    path.chmod(0o644)
    modes.clear()
    run(path, look)
    assert modes == {0o640}


def test_what_was_committed_survives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    code = (
        "import asyncio, os, sys\n"
        "from pathlib import Path\n"
        "from headrace.cluster.sqlite import SqliteStore\n"
        "from headrace.cluster.store import Put\n"
        "from headrace.runtime.clock import SystemClock\n"
        "async def main():\n"
        "    store = await SqliteStore.open(Path(sys.argv[1]), SystemClock())\n"
        "    for number in range(5):\n"
        "        await store.commit([], [Put(f'/{number}', b'x')])\n"
        "    os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False, timeout=60).returncode == -9

    async def after(store: SqliteStore) -> None:
        snapshot = await store.snapshot()
        assert list(snapshot.items) == [f"/{number}" for number in range(5)]
        assert await put(store, "/next") > snapshot.revision

    run(path, after)


def test_a_watch_of_history_that_is_gone_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "HISTORY_LIMIT", 4)

    async def scenario(store: SqliteStore) -> None:
        before = (await store.snapshot()).revision
        for _ in range(6):
            last = await put(store, "/a")
        with pytest.raises(WatchLost, match="are compacted"):
            await take(store, "/", before, 1)
        ((change,),) = await take(store, "/", Revision(last - 1), 1)
        assert change.revision == last

    run(tmp_path / "metadata.db", scenario)

    async def later_run(store: SqliteStore) -> None:
        with pytest.raises(WatchLost):
            await take(store, "/", ABSENT, 1)

    run(tmp_path / "metadata.db", later_run)


def test_a_lease_ends_also_when_nobody_calls(tmp_path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        at = (await store.snapshot()).revision
        lease = await store.grant_lease(1000)
        await store.commit([], [Put("/leased", b"", lease)])
        (_, (gone,)) = await asyncio.wait_for(take(store, "/", at, 2), 60)
        assert gone.value is None

    run(tmp_path / "metadata.db", scenario)


def test_a_change_whose_caller_was_cancelled_is_seen_by_watchers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(store: SqliteStore) -> None:
        at = (await store.snapshot()).revision
        loop, begun, go = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
        transact = store._transact

        def slowly(compares: Sequence[Compare], writes: Sequence[Write]) -> Revision | None:
            loop.call_soon_threadsafe(begun.set)
            go.wait(60)
            return transact(compares, writes)

        monkeypatch.setattr(store, "_transact", slowly)
        writing = asyncio.create_task(store.commit([], [Put("/a", b"")]))
        await begun.wait()
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        go.set()
        await put(store, "/b")
        seen = [change.key for changes in await take(store, "/", at, 2) for change in changes]
        assert seen == ["/a", "/b"]

    run(tmp_path / "metadata.db", scenario)


def test_a_lease_that_is_renewed_lives_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        store = await SqliteStore.open(tmp_path / "metadata.db", clock)
        try:
            lease = await store.grant_lease(1_000)
            await store.commit([], [Put("/leased", b"x", lease)])
            clock.advance(900)
            assert await store.keep_alive(lease)
            clock.advance(900)
            assert "/leased" in (await store.snapshot()).items
            clock.advance(200)
            assert (await store.snapshot()).items == {}
        finally:
            await store.close()

    asyncio.run(scenario())


def refusal(path: Path) -> str:
    async def nothing(store: SqliteStore) -> None: ...

    with pytest.raises(StartupError) as caught:
        run(path, nothing)
    return str(caught.value)


def test_a_second_broker_on_the_same_file_does_not_start(tmp_path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        with pytest.raises(StartupError, match="another broker runs on this data directory"):
            await SqliteStore.open(tmp_path / "metadata.db", SystemClock())
        await put(store, "/still-works")

    run(tmp_path / "metadata.db", scenario)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    path.write_bytes(b"something else entirely, long enough to be read as a header" * 20)
    assert "is damaged (file is not a database)" in refusal(path)


def test_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"

    async def fill(store: SqliteStore) -> None:
        await store.commit([], [Put(f"/{number}", b"x" * 1000) for number in range(50)])

    run(path, fill)
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)
    assert "is damaged" in refusal(path)


def test_somebody_elses_database_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    before = path.read_bytes()
    assert "was not written by Headrace" in refusal(path)
    assert path.read_bytes() == before


def test_a_file_of_a_newer_version(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    run(path, lambda store: put(store, "/a"))  # type: ignore[arg-type, return-value]
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version=99")
    connection.close()
    assert "newer version" in refusal(path)


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    assert "check that the directory exists" in refusal(tmp_path / "none" / "metadata.db")
