"""A broker's data directory and metadata store, opened together and checked to belong together.

On a single node the metadata is a file in the data directory. In a cluster it is in etcd, and a marker file in the
directory prevents the broker from starting as a single node without its topics. A single-node broker that is started
with `etcd.endpoints` migrates its metadata to etcd, if that is empty: first the marker file, so that the SQLite file no
longer changes, then the records (`cluster/bootstrap.py`), then the file is renamed. An interrupted migration continues
at the next start.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from headrace.cluster import store_selection
from headrace.cluster.bootstrap import bootstrap_cluster, migrate_cluster, read_cluster
from headrace.cluster.sqlite import SqliteStore
from headrace.cluster.store import MetadataStore, StoreUnavailable
from headrace.cluster.store_selection import METADATA_FILE
from headrace.cluster.store_watch import uuid_text
from headrace.config.broker import BrokerSettings
from headrace.model.errors import StartupError
from headrace.model.ids import BrokerId
from headrace.runtime.clock import Clock
from headrace.runtime.disk import Disk
from headrace.storage.datadir import DataDir

IN_ETCD = "metadata.in-etcd"
MOVED_FILE = METADATA_FILE + ".moved"
_ATTEMPTS = 10
_RETRY_S = 0.2

OpenStore = Callable[[BrokerSettings, Path, Clock], Awaitable[MetadataStore]]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BrokerHome:
    """A locked data directory and an open metadata store."""

    data_dir: DataDir
    store: MetadataStore
    is_single_node: bool

    async def close(self) -> None:
        """Close the store, then unlock the directory."""
        try:
            await self.store.close()
        finally:
            self.data_dir.release()


async def open_home(
    settings: BrokerSettings, disk: Disk, clock: Clock, *, open_store: OpenStore = store_selection.open_store
) -> BrokerHome:
    """Lock the data directory and open the store; raises `StartupError`."""
    path = Path(settings.data_dir)
    if not settings.etcd_endpoints:
        data_dir = DataDir.acquire(path, disk, broker_id=BrokerId(settings.broker_id))
        try:
            if (path / IN_ETCD).exists():
                raise StartupError(f"the metadata of {path} is in etcd: set etcd.endpoints, or use another data.dir")
            return BrokerHome(data_dir, await open_store(settings, path, clock), is_single_node=True)
        except BaseException:
            data_dir.leave_unused()
            data_dir.release()
            raise
    store = await open_store(settings, path, clock)
    try:
        return BrokerHome(await _join_with_retries(store, settings, disk, clock), store, is_single_node=False)
    except StoreUnavailable as error:
        await store.close()
        raise StartupError(f"{error}: start again when etcd answers") from error
    except BaseException:
        await store.close()
        raise


async def _join_with_retries(store: MetadataStore, settings: BrokerSettings, disk: Disk, clock: Clock) -> DataDir:
    """Join with retries while etcd is slow or briefly unavailable: every step can be repeated."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return await _join(store, settings, disk, clock)
        except StoreUnavailable as error:
            log.warning("retrying: %s", error)
            await asyncio.sleep(_RETRY_S)
    return await _join(store, settings, disk, clock)


async def _join(store: MetadataStore, settings: BrokerSettings, disk: Disk, clock: Clock) -> DataDir:
    path, broker_id = Path(settings.data_dir), BrokerId(settings.broker_id)
    known = DataDir.cluster_of(path, disk)
    # A new directory stores the cluster's id, so the cluster is bootstrapped first.
    if known is None:
        cluster = await bootstrap_cluster(store, uuid_text(uuid4()))
        data_dir = DataDir.acquire(path, disk, broker_id=broker_id, cluster_id=cluster.cluster_id, level=cluster.level)
    else:
        data_dir = DataDir.acquire(path, disk, broker_id=broker_id)
    try:
        if known is not None:
            await _match_cluster(store, data_dir, settings.etcd_prefix, disk, clock)
        _write_marker_file(path, settings.etcd_prefix, disk)
    except BaseException:
        data_dir.release()
        raise
    return data_dir


async def _match_cluster(store: MetadataStore, data_dir: DataDir, prefix: str, disk: Disk, clock: Clock) -> None:
    """Check that the store has this directory's cluster, or migrate or bootstrap it there."""
    path, known = data_dir.path, data_dir.cluster_id
    cluster = await read_cluster(store)
    existing = None if cluster is None else cluster.cluster_id
    if existing is not None and existing != known:
        raise StartupError(
            f"{path} belongs to the cluster {known}, and etcd has {existing} under {prefix}: "
            "use another data.dir, or another etcd.prefix"
        )
    is_marked = (path / IN_ETCD).exists()
    if (path / METADATA_FILE).exists():
        if existing is not None and not is_marked:
            raise StartupError(
                f"etcd already has the cluster {existing}, and {path} has metadata of a single node: "
                f"move its {METADATA_FILE} away if it is not needed"
            )
        _write_marker_file(path, prefix, disk)
        await _migrate(store, data_dir, disk, clock)
    elif existing is None and is_marked:
        raise StartupError(
            f"etcd has no cluster under {prefix}, where the metadata of {path} was stored: "
            "is etcd.prefix right? If etcd has lost its data, restore it from a backup"
        )
    elif existing is None and (existing := (await bootstrap_cluster(store, known)).cluster_id) != known:
        raise StartupError(f"{path} belongs to the cluster {known}, and etcd has {existing}: use another data.dir")


async def _migrate(store: MetadataStore, data_dir: DataDir, disk: Disk, clock: Clock) -> None:
    path = data_dir.path / METADATA_FILE
    source = await SqliteStore.open(path, clock)
    try:
        await migrate_cluster(source, store, data_dir.cluster_id, data_dir.broker_id)
    finally:
        await source.close()
    disk.rename(path, path.with_name(MOVED_FILE))
    log.info("the metadata has been migrated to etcd; the old file is %s", MOVED_FILE)


def _write_marker_file(path: Path, prefix: str, disk: Disk) -> None:
    if not (path / IN_ETCD).exists():
        disk.write_atomic(path / IN_ETCD, f"The metadata of this directory is in etcd, under {prefix}.\n".encode())
