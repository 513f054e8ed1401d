"""What a newer Headrace has written is refused in one sentence, and nothing of it is changed."""

import base64
import os
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from headrace.model.errors import InvalidReceipt
from headrace.pipelines.archive.layout import read_archive
from headrace.pipelines.control.folder import StateFolder
from headrace.pipelines.errors import PipelineError
from headrace.pipelines.sink import ledger
from headrace.pipelines.tables.store import ManifestStore, TableError
from headrace.pipelines.upsert.database import UpsertError, UpsertPlan
from headrace.pipelines.upsert.sqlite import Sqlite
from headrace.queues.host.receipts import Receipts
from headrace.storage.producers import Producers, SnapshotDamaged
from headrace.testing.process import BrokerProcess
from tests.interop import batches, raw_client
from tests.upgrade.release import OPENING, unpack
from tests.waiting import until

pytestmark = pytest.mark.xdist_group("upgrade")

NEWER = 999
_KEPT_OUT = (".lock", "lock", "run.lock")


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file with its content, but locks."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in _KEPT_OUT)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


# -- a broker's data directory


@pytest.fixture
def data(tmp_path: Path) -> Path:
    unpack("0.1", "single-stopped", tmp_path / "data")
    return tmp_path / "data"


def _newer_directory(data: Path) -> None:
    meta = data / "meta.properties"
    meta.write_text(meta.read_text().replace("format=1", f"format={NEWER}"))


def _newer_metadata(data: Path) -> None:
    with closing(sqlite3.connect(data / "metadata.sqlite")) as database:
        database.execute(f"PRAGMA user_version={NEWER}")


@pytest.mark.parametrize("make_newer", [_newer_directory, _newer_metadata])
def test_a_newer_data_directory_is_refused(data: Path, make_newer: object) -> None:
    assert callable(make_newer)
    make_newer(data)
    before = snapshot(data)
    broker = BrokerProcess(data)
    with pytest.raises(RuntimeError) as refused:
        broker.start()
    broker.close()
    (sentence,) = (line for line in str(refused.value).splitlines() if "newer" in line)
    assert "Traceback" not in str(refused.value)
    assert str(data) in sentence
    assert snapshot(data) == before


def _append(log: Path, key: bytes, value: bytes) -> None:
    """Add a record to a stored log, as a newer broker would have."""
    stored = log.read_bytes()
    found = batches.parse(stored)
    end = found[-1].base_offset + found[-1].last_offset_delta + 1 if found else 0
    epoch = found[-1].leader_epoch if found else 0
    batch = bytearray(batches.batch([batches.Record(value, key)]))
    struct.pack_into(">q", batch, 0, end)
    struct.pack_into(">i", batch, 12, epoch)
    log.write_bytes(stored + batch)


_packed = msgspec.msgpack.encode
NEWER_RECORDS = {
    "ours": {
        "__consumer_offsets": (_packed(["group", "any"]), _packed(["classic-999", {"everything": "else"}])),
        "__transaction_state": (_packed(["txn", "any"]), _packed(["txn-999", {"everything": "else"}])),
        "__queue_state": (_packed(["page", "any"]), _packed(["page-999"])),
    },
    # A classic group and a transactional id, with values of version 99.
    "kafka's": {
        "__consumer_offsets": (b"\x00\x02\x00\x03any", b"\x00\x63everything else"),
        "__transaction_state": (b"\x00\x00\x00\x03any", b"\x00\x63everything else"),
    },
}


@pytest.mark.parametrize("form", NEWER_RECORDS)
def test_newer_records_of_coordinators_are_left_alone(form: str, data: Path) -> None:
    """Their shards stay unavailable, and the log says why; everything else is served."""
    (data / ".kafka_cleanshutdown").unlink()
    logs: dict[Path, bytes] = {}
    for topic, (key, value) in NEWER_RECORDS[form].items():
        for folder in sorted(data.glob(f"{topic}-*")):
            (log,) = folder.glob("*.log")
            _append(log, key, value)
            logs[log] = log.read_bytes()
    with BrokerProcess(data, settings=OPENING) as broker, raw_client.Connection(broker.bootstrap) as connection:
        for log in logs:
            until(lambda log=log: f"coordinator on {log.parent.name} stays" in broker.stderr, f"a word on {log.parent}")  # type: ignore[misc]
        assert broker.stderr.count("newer version of Headrace") == len(logs)
        assert "Traceback" not in broker.stderr
        answer = connection.call(raw_client.OFFSET_FETCH, 7, group_id="classic", topics=None)
        assert answer.error_code is raw_client.Error.coordinator_load_in_progress
        answer = connection.call(raw_client.INIT_PRODUCER_ID, 4, transactional_id="ended", transaction_timeout=1000)
        assert answer.error_code is raw_client.Error.coordinator_load_in_progress
        assert len(batches.values(raw_client.fetch(connection, "codecs", 0).records)) == 12
    assert {log: log.read_bytes() for log in logs} == logs


def test_newer_caches_are_made_anew(tmp_path: Path) -> None:
    """Nothing is known only to them: what they say is found in the logs."""
    data = tmp_path / "data"
    known = unpack("0.1", "single-stopped", data)["duplicate"]
    assert {path.suffix for path in _caches(data)} == {".snapshot", ".txnindex", ""}
    for path in _caches(data):
        _make_newer(path)
    (data / ".kafka_cleanshutdown").unlink()
    with BrokerProcess(data, settings=OPENING) as broker, raw_client.Connection(broker.bootstrap) as connection:
        again = raw_client.produce(connection, known["topic"], base64.b64decode(known["batch"]))
        assert (again.error_code, again.base_offset) == (raw_client.Error.none, known["offset"])
        until(lambda: raw_client.fetch(connection, "txn", 1).last_stable_offset == 12, "the end of all transactions")
        aborted = raw_client.fetch(connection, "txn", 1, isolation_level=1).aborted_transactions
        assert [each.first_offset for each in aborted] == [2, 6]


def _caches(data: Path) -> Iterator[Path]:
    for pattern in ("*/*.snapshot", "*/*.txnindex", "*/leader-epoch-checkpoint", "recovery-point-offset-checkpoint"):
        yield from (path for path in data.glob(pattern) if path.stat().st_size)


def _make_newer(path: Path) -> None:
    content = path.read_bytes()
    if path.suffix == ".snapshot":
        content = content[:4] + struct.pack(">H", NEWER) + content[6:]
    elif path.suffix == ".txnindex":
        content = struct.pack(">h", NEWER) + content[2:]
    else:
        content = str(NEWER).encode() + content[1:]
    path.write_bytes(content)


def test_stored_producers_are_read(data: Path) -> None:
    """They expire after some weeks, so this data directory does not show them to clients."""
    (path,) = (data / "idempotent-0").glob("*.snapshot")
    found = Producers.from_snapshot(path.read_bytes(), int(path.stem))
    ((_, entry),) = found._entries.items()
    assert [(each.base_sequence, each.base_offset) for each in entry.batches] == [(n, n) for n in range(2, 7)]
    newer = bytearray(path.read_bytes())
    struct.pack_into(">H", newer, 4, NEWER)
    with pytest.raises(SnapshotDamaged):
        Producers.from_snapshot(bytes(newer), int(path.stem))


def test_a_newer_receipt_is_refused() -> None:
    receipts = Receipts(uuid4())
    receipt = receipts.write(7, 1)
    assert receipts.read(receipt).offset == 7
    with pytest.raises(InvalidReceipt):
        receipts.read("2" + receipt[1:])


# -- pipelines


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    unpack("0.1", "pipeline", tmp_path / "pipeline")
    return tmp_path / "pipeline"


def test_a_state_folder_says_its_version(pipeline: Path) -> None:
    """A folder of 0.1 has none, and means 1."""
    folder = StateFolder(pipeline / "state" / "shop")
    assert not (folder.root / "version").exists()
    folder.make()
    assert (folder.root / "version").read_text() == "1\n"
    assert set(folder.read_sinks()) == {"paid", "dead-letters-source"}


@pytest.mark.parametrize(
    "command",
    [["run", "shop.toml", "--once"], ["reset", "shop.toml", "--to", "earliest", "--execute"], ["stop", "shop"]],
)
def test_a_newer_state_folder_is_refused(pipeline: Path, command: list[str]) -> None:
    (pipeline / "state" / "shop" / "version").write_text(f"{NEWER}\n")
    before = snapshot(pipeline)
    with BrokerProcess(pipeline / "broker", settings=OPENING) as broker:
        env = {**os.environ, "HEADRACE_BOOTSTRAP": broker.bootstrap}
        done = subprocess.run(
            [sys.executable, "-m", "headrace", "pipeline", *command, "--state-dir", "state"],
            cwd=pipeline, env=env, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert "was written by a newer Headrace (version 999" in done.stderr
    assert "Traceback" not in done.stderr
    after = snapshot(pipeline)
    assert {name: content for name, content in after.items() if name.startswith("state/")} == {
        name: content for name, content in before.items() if name.startswith("state/")
    }


def test_a_newer_state_folder_is_refused_from_python(pipeline: Path) -> None:
    folder = StateFolder(pipeline / "state" / "shop")
    (folder.root / "version").write_text(f"{NEWER}\n")
    for act in (folder.make, folder.read_sinks, folder.read_start, lambda: folder.reset_checkpoint({})):
        with pytest.raises(PipelineError, match="newer Headrace"):
            act()


def test_a_newer_entry_of_the_ledger_is_refused() -> None:
    entry = ledger.to_bytes(ledger.LedgerEntry("query", 7, ()))
    assert ledger.from_bytes(entry).batch == 7
    newer = msgspec.json.encode({"version": NEWER, "everything": "else"})
    with pytest.raises(ledger.LedgerError, match=r"written by a newer Headrace \(version 999\)"):
        ledger.from_bytes(newer)


def test_a_newer_table_is_refused(pipeline: Path) -> None:
    for root in (pipeline / "lake", pipeline / "archive"):
        *_, newest = sorted((root / "_headrace" / "commits").iterdir())
        newest.write_bytes(msgspec.json.encode({"format": NEWER, "everything": "else"}))
        before = snapshot(root)
        for act in (ManifestStore(root).state, ManifestStore(root).recover):
            with pytest.raises(TableError, match=r"newer Headrace \(format 999"):
                act()
        assert snapshot(root) == before


def test_a_newer_archive_is_refused(pipeline: Path) -> None:
    root = pipeline / "archive"
    assert read_archive(root).offsets == {0: 18, 1: 14}
    *_, newest = sorted((root / "_headrace" / "commits").iterdir())
    manifest = msgspec.json.decode(newest.read_bytes())
    manifest["properties"] = {"archive_format": str(NEWER)}
    newest.write_bytes(msgspec.json.encode(manifest))
    with pytest.raises(TableError, match=r"newer Headrace \(format 999"):
        read_archive(root)


def test_a_newer_table_of_batches_is_refused(pipeline: Path) -> None:
    path = pipeline / "shop.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("INSERT INTO headrace_batches VALUES ('headrace:format', '', ?)", (NEWER,))
        database.commit()
        before = database.execute("SELECT * FROM totals").fetchall()
    plan = UpsertPlan("totals", ("user", "total"), ("string", "bigint"), ("user",), None, create=True)
    with pytest.raises(UpsertError, match=r"newer Headrace \(format 999"):
        Sqlite(str(path)).apply(plan, ("totals", "query"), 7, [(False, ("user-0", 0))])
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT * FROM totals").fetchall() == before
