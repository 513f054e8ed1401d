"""Bootstrapping a cluster in a metadata store: empty, or migrated from the SQLite file of a single-node broker.

Every step of the migration can be repeated. The broker writes /moving, which prevents another broker from bootstrapping
a cluster in that store; it copies its records; one transaction replaces /moving by /cluster. Before that there is no
cluster to join, after that every record is there. A broker that was stopped in between starts over.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping

from headrace.cluster import layout
from headrace.cluster.layout import ClusterIdentity
from headrace.cluster.store import (
    ABSENT,
    Compare,
    DeleteKey,
    MetadataStore,
    Put,
    Revision,
    StoreRefused,
    Versioned,
    Write,
)
from headrace.model.errors import StartupError
from headrace.model.features import LATEST_LEVEL
from headrace.model.ids import BrokerId

WRITES_PER_COMMIT = 100
BYTES_PER_COMMIT = 512 * 1024
_NOT_MIGRATED = (layout.BROKERS, layout.ALIVE)
_POLL_INTERVAL_S = 0.5
_WAIT_FOR_MIGRATION_S = 60.0

_CONCURRENT_CHANGE = "the metadata in etcd was changed by another client during the migration: start this broker again"

log = logging.getLogger(__name__)


async def read_cluster(store: MetadataStore) -> ClusterIdentity | None:
    """The identity of the cluster in the store; None if there is none."""
    item = await _item(store, layout.CLUSTER)
    return None if item is None else layout.decode_cluster(item.value)


async def bootstrap_cluster(store: MetadataStore, cluster_id: str) -> ClusterIdentity:
    """Create a cluster with this id, at the latest feature level, unless the store has one; return the store's cluster.

    Waits for a migration in progress.
    """
    record = layout.encode_cluster(ClusterIdentity(cluster_id, LATEST_LEVEL))
    polls_left = int(_WAIT_FOR_MIGRATION_S / _POLL_INTERVAL_S)
    while True:
        if (existing := await read_cluster(store)) is not None:
            return existing
        migration = await _item(store, layout.MIGRATION)
        if migration is None:
            empty = [Compare(layout.CLUSTER, ABSENT), Compare(layout.MIGRATION, ABSENT)]
            await store.commit(empty, [Put(layout.CLUSTER, record)])
            continue  # Read it back: another broker may have committed first.
        migrator = layout.decode_migration(migration.value).broker_id
        if not polls_left:
            raise StartupError(f"broker {migrator} has not finished migrating its metadata to etcd: start it first")
        if polls_left * _POLL_INTERVAL_S == _WAIT_FOR_MIGRATION_S:
            log.info("waiting for broker %d, which is migrating its metadata to etcd", migrator)
        polls_left -= 1
        await asyncio.sleep(_POLL_INTERVAL_S)


async def migrate_cluster(source: MetadataStore, target: MetadataStore, cluster_id: str, broker_id: BrokerId) -> None:
    """Migrate a single-node broker's metadata to `target`, at its feature level. Call it again until it returns.

    `StartupError` if the target has other data. `StoreUnavailable` leaves the migration unfinished.
    """
    own = layout.MigrationRecord(cluster_id, broker_id)
    revision = await _begin_migration(target, own)
    if revision is None:
        return
    records = (await source.snapshot()).items
    log.info("migrating %d metadata records to etcd", len(records))
    is_ours = Compare(layout.MIGRATION, revision)
    try:
        for batch in _batches(_migrated(records, broker_id)):
            if await target.commit([is_ours], batch) is None:
                raise StartupError(_CONCURRENT_CHANGE)
    except StoreRefused as error:
        raise StartupError(f"the metadata cannot be migrated to etcd: {error}") from None
    end: list[Write] = [Put(layout.CLUSTER, records[layout.CLUSTER].value), DeleteKey(layout.MIGRATION)]
    if await target.commit([is_ours, Compare(layout.CLUSTER, ABSENT)], end) is None:
        raise StartupError(_CONCURRENT_CHANGE)


async def _begin_migration(target: MetadataStore, own: layout.MigrationRecord) -> Revision | None:
    """Write /moving and return the revision that fences the migration; None if the migration is complete."""
    while True:
        items = (await target.snapshot()).items
        if (cluster := items.get(layout.CLUSTER)) is not None:
            existing_id = layout.decode_cluster(cluster.value).cluster_id
            if existing_id == own.cluster_id:
                return None
            raise StartupError(f"etcd has the cluster {existing_id}, not {own.cluster_id}: choose another etcd.prefix")
        migration = items.get(layout.MIGRATION)
        if migration is None:
            if items:
                raise StartupError(
                    f"etcd has {min(items)} under etcd.prefix but no cluster: choose another etcd.prefix"
                )
            empty = [Compare(layout.CLUSTER, ABSENT), Compare(layout.MIGRATION, ABSENT)]
            revision = await target.commit(empty, [Put(layout.MIGRATION, layout.encode(own))])
            if revision is not None:
                return revision
        elif (other := layout.decode_migration(migration.value)) != own:
            raise StartupError(f"broker {other.broker_id} is migrating the cluster {other.cluster_id} to this etcd")
        else:
            return migration.mod_revision


def _migrated(records: Mapping[str, Versioned], broker_id: BrokerId) -> Iterator[Put]:
    """The single-node records as a cluster stores them, without the broker's own: it registers by itself."""
    for key, item in records.items():
        if key == layout.CLUSTER or key.startswith(_NOT_MIGRATED):
            continue
        value = layout.deleted_on_broker(key, item.value, broker_id) if key.startswith(layout.DELETED) else item.value
        yield Put(key, value)


def _batches(writes: Iterator[Put]) -> Iterator[list[Put]]:
    batch: list[Put] = []
    size_bytes = 0
    for write in writes:
        if batch and (len(batch) == WRITES_PER_COMMIT or size_bytes + len(write.value) > BYTES_PER_COMMIT):
            yield batch
            batch, size_bytes = [], 0
        batch.append(write)
        size_bytes += len(write.value)
    if batch:
        yield batch


async def _item(store: MetadataStore, key: str) -> Versioned | None:
    return (await store.snapshot(key)).items.get(key)
