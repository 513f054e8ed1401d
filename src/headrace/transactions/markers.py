"""The writer of transaction markers to partitions this broker leads."""

from collections.abc import Callable

from headrace.model.errors import HeadraceError, MirrorIsReadOnly, NotEnoughReplicas, StorageFailed, UnknownTopic
from headrace.model.ids import ProducerIdAndEpoch
from headrace.records.markers import Marker
from headrace.replication.partition import Partition
from headrace.replication.partitions import PartitionTable
from headrace.runtime.deferred import Deferred
from headrace.transactions.marker_guard import MarkerGuards
from headrace.transactions.records import Place

Ended = Callable[[Partition, int, bool], None]
"""Called with a committed marker's partition, producer id, and whether the transaction was committed."""


class MarkerWriter:
    """Appends COMMIT and ABORT markers to local partitions."""

    def __init__(self, partitions: PartitionTable, ended: Ended) -> None:
        """`ended` is called for each committed marker, before its `Deferred` resolves."""
        self.guards = MarkerGuards()
        self._partitions = partitions
        self._ended = ended

    def write(self, place: Place, producer: ProducerIdAndEpoch, marker: Marker) -> Deferred[HeadraceError | None]:
        """End a producer's transaction on a partition; resolves to None when the marker is committed."""
        done: Deferred[HeadraceError | None] = Deferred()
        try:
            partition = self._partitions.get(*place)
            _check_in_sync(partition)
            self.guards.note_marker(partition, producer.producer_id)
            result = partition.append_marker(producer.producer_id, producer.epoch, marker)
        except MirrorIsReadOnly:
            # The topic that had the transaction was deleted, and a mirror topic has its name now.
            done.resolve(UnknownTopic(f"{partition} has no transactions of this cluster: it is a mirror"))
            return done
        except HeadraceError as error:
            done.resolve(error)
            return done

        def settled(error: BaseException | None) -> None:
            if error is None:
                self._ended(partition, producer.producer_id, marker.committed)
                done.resolve(None)
            else:
                done.resolve(error if isinstance(error, HeadraceError) else StorageFailed(str(error)))

        if partition.when_committed(result.last_offset + 1, settled):
            settled(None)
        return done


def _check_in_sync(partition: Partition) -> None:
    """Refuse a marker that could not be committed soon: the coordinator retries, and the marker is written once."""
    leading = partition.leading
    if leading is not None:
        needed = min(partition.settings.min_insync_replicas, len(leading.state.replicas))
        if len(leading.state.isr) < needed:
            raise NotEnoughReplicas(f"{partition} has {len(leading.state.isr)} in-sync replicas and needs {needed}")
