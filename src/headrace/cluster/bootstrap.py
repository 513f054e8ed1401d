"""How a store comes to hold a cluster: founded empty, or moved in from the file of a broker that was alone.

Moving has steps that can be repeated. The broker says under /moving that it moves in, which keeps anybody else from
founding a cluster there; it copies its records; one transaction replaces /moving by /cluster. Before that there is no
cluster that anyone could join, after that everything is there. A broker that was stopped in between begins again.
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
_NOT_MOVED = (layout.BROKERS, layout.ALIVE)
_LOOK_EVERY_S = 0.5
_WAIT_FOR_MOVER_S = 60.0

log = logging.getLogger(__name__)


async def cluster_in(store: MetadataStore) -> ClusterIdentity | None:
    """The cluster that the store holds."""
    item = await _item(store, layout.CLUSTER)
    return None if item is None else layout.decode_cluster(item.value)


async def bootstrap_cluster(store: MetadataStore, cluster_id: str) -> ClusterIdentity:
    """The cluster in the store, which has the given id and the latest feature level if there was none.

    A cluster that is being moved in is waited for.
    """
    record = layout.encode_cluster(ClusterIdentity(cluster_id, LATEST_LEVEL))
    looks_left = int(_WAIT_FOR_MOVER_S / _LOOK_EVERY_S)
    while True:
        if (here := await cluster_in(store)) is not None:
            return here
        moving = await _item(store, layout.MOVING)
        if moving is None:
            empty = [Compare(layout.CLUSTER, ABSENT), Compare(layout.MOVING, ABSENT)]
            await store.commit(empty, [Put(layout.CLUSTER, record)])
            continue
        mover = layout.decode_moving(moving.value).broker_id
        if not looks_left:
            raise StartupError(f"broker {mover} has begun to move its metadata into etcd and not ended: start it first")
        if looks_left * _LOOK_EVERY_S == _WAIT_FOR_MOVER_S:
            log.info("waiting for broker %d, which moves its metadata into etcd", mover)
        looks_left -= 1
        await asyncio.sleep(_LOOK_EVERY_S)


async def move_in(source: MetadataStore, target: MetadataStore, cluster_id: str, broker_id: BrokerId) -> None:
    """Make the cluster of a broker that was alone the one of `target`, at its level. Repeat it until it returns.

    `StartupError` if the target holds something else. `StoreUnavailable` leaves it unfinished.
    """
    own = layout.MovingRecord(cluster_id, broker_id)
    revision = await _begin(target, own)
    if revision is None:
        return
    records = (await source.snapshot()).items
    log.info("moving %d records of the metadata into etcd", len(records))
    is_ours = Compare(layout.MOVING, revision)
    try:
        for batch in _batches(_moved(records, broker_id)):
            if await target.commit([is_ours], batch) is None:
                raise StartupError("somebody else changed the metadata in etcd while it was moved there: start again")
    except StoreRefused as error:
        raise StartupError(f"the metadata cannot be moved into etcd: {error}") from None
    end: list[Write] = [Put(layout.CLUSTER, records[layout.CLUSTER].value), DeleteKey(layout.MOVING)]
    if await target.commit([is_ours, Compare(layout.CLUSTER, ABSENT)], end) is None:
        raise StartupError("somebody else changed the metadata in etcd while it was moved there: start again")


async def _begin(target: MetadataStore, own: layout.MovingRecord) -> Revision | None:
    """Say that we move in, and return the revision that fences it. None if we have done so already."""
    while True:
        items = (await target.snapshot()).items
        if (cluster := items.get(layout.CLUSTER)) is not None:
            here = layout.decode_cluster(cluster.value).cluster_id
            if here == own.cluster_id:
                return None
            raise StartupError(f"etcd holds the cluster {here}, not {own.cluster_id}: choose another etcd.prefix")
        moving = items.get(layout.MOVING)
        if moving is None:
            if items:
                raise StartupError(
                    f"etcd holds {min(items)} under etcd.prefix, which is of no cluster: choose another etcd.prefix"
                )
            empty = [Compare(layout.CLUSTER, ABSENT), Compare(layout.MOVING, ABSENT)]
            revision = await target.commit(empty, [Put(layout.MOVING, layout.encode(own))])
            if revision is not None:
                return revision
        elif (other := layout.decode_moving(moving.value)) != own:
            raise StartupError(f"broker {other.broker_id} moves the cluster {other.cluster_id} into this etcd")
        else:
            return moving.mod_revision


def _moved(records: Mapping[str, Versioned], broker_id: BrokerId) -> Iterator[Put]:
    """What the records of a broker that was alone are in a cluster. It registers there by itself."""
    for key, item in records.items():
        if key == layout.CLUSTER or key.startswith(_NOT_MOVED):
            continue
        value = layout.deleted_on(key, item.value, broker_id) if key.startswith(layout.DELETED) else item.value
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
