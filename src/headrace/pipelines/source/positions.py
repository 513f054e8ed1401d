"""The partitions that a subscription selects now, and their offsets, as the cluster reports them."""

from collections.abc import Iterable

from headrace.model.errors import HeadraceError
from headrace.pipelines.source.offsets import EARLIEST, LATEST, Offsets, Partition
from headrace.pipelines.source.options import OffsetBound, OptionError, SourceOptions
from headrace.records.batch import iter_headers
from headrace.wire import LATEST as LATEST_TIME
from headrace.wire import READ_COMMITTED, READ_UNCOMMITTED, Cluster

_SAMPLE_BYTES = 64 * 1024


class SourceError(HeadraceError):
    """The topics cannot be read with these options."""


class Positions:
    """Resolves the topics, start and end of a read to partitions and offsets."""

    def __init__(self, cluster: Cluster, options: SourceOptions) -> None:
        self._cluster = cluster
        self._options = options

    def partitions(self, *, must_exist: bool) -> set[Partition]:
        """The partitions to read. With `must_exist`, a named topic or partition that does not exist is an error."""
        subscription = self._options.subscription
        if subscription.pattern:
            return {
                (topic.name, part.partition)
                for topic in self._cluster.metadata().values()
                if subscription.matches(topic.name, is_internal=topic.is_internal)
                for part in topic.partitions
            }
        named = subscription.topics or tuple({topic for topic, _ in subscription.assigned})
        found = self._cluster.metadata(named)
        existing = {(topic.name, part.partition) for topic in found.values() for part in topic.partitions}
        missing = [topic for topic in named if topic not in found]
        if missing and must_exist:
            what = f"the topic {missing[0]} does" if len(missing) == 1 else f"the topics {', '.join(missing)} do"
            raise SourceError(f"{what} not exist at {self._options.bootstrap}: create it first, or check the name")
        if not subscription.assigned:
            return existing
        lost = sorted(subscription.assigned - existing)
        if lost and must_exist:
            raise SourceError(f"{lost[0][0]} has no partition {lost[0][1]}: check the option assign")
        return set(subscription.assigned & existing)

    def existing(self, partitions: Iterable[Partition]) -> set[Partition]:
        """The given partitions that exist."""
        wanted = set(partitions)
        found = self._cluster.metadata({topic for topic, _ in wanted}) if wanted else {}
        return wanted & {(topic.name, part.partition) for topic in found.values() for part in topic.partitions}

    def earliest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return self._at(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The end offsets: the last stable offsets under read_committed, the high watermarks otherwise."""
        return self._at(dict.fromkeys(partitions, LATEST_TIME))

    def _at(self, times_ms: Offsets) -> dict[Partition, int]:
        if not times_ms:
            return {}
        isolation = READ_COMMITTED if self._options.read_committed else READ_UNCOMMITTED
        found = self._cluster.list_offsets(times_ms, isolation=isolation)
        return {partition: at.offset for partition, at in found.items()}

    def starting(self, partitions: set[Partition]) -> dict[Partition, int]:
        position = self._options.starting
        found = self._resolved(position, partitions)
        without = sorted(partition for partition, offset in found.items() if offset < 0)
        if without:
            if not self._options.time_without_record_is_latest:
                topic, index = without[0]
                raise SourceError(
                    f"{topic}-{index} has no record at or after the time of {position.option}: choose an earlier one, "
                    "or set startingOffsetsByTimestampStrategy=latest"
                )
            found |= self.latest(without)
        return found

    def ending(self, partitions: set[Partition]) -> dict[Partition, int]:
        """The end offsets of a batch read. With an end time that no record reaches: everything that exists now."""
        found = self._resolved(self._options.ending, partitions)
        return found | self.latest(partition for partition, offset in found.items() if offset < 0)

    def _resolved(self, position: OffsetBound, partitions: set[Partition]) -> dict[Partition, int]:
        """The offsets of a bound; -1 for a partition without a record at or after the requested time."""
        if position.by_partition is None:
            return self._at(dict.fromkeys(partitions, position.all_at if position.all_at is not None else LATEST))
        _check_same(position, partitions)
        if position.is_time:
            return self._at(position.by_partition)
        special = {partition: offset for partition, offset in position.by_partition.items() if offset < 0}
        return {**position.by_partition, **self._at(special)}

    def bytes_per_offset(self, start: Offsets, latest: Offsets) -> dict[Partition, float]:
        """The average bytes per offset of each partition with a backlog, from a sample at its start."""
        weights: dict[Partition, float] = {}
        for (topic, index), offset in start.items():
            if offset >= latest.get((topic, index), 0):
                continue
            found = self._cluster.fetch(topic, index, offset, max_bytes=_SAMPLE_BYTES)
            size_bytes = count = 0
            for _, header in iter_headers(found.records):
                size_bytes += header.size
                count = header.next_offset - offset
            if count > 0:
                weights[topic, index] = size_bytes / count
            elif found.records:
                weights[topic, index] = float(len(found.records))
        return weights


def _check_same(position: OffsetBound, partitions: set[Partition]) -> None:
    """Offsets by partition must name exactly the partitions that are read, as in Spark's Kafka source."""
    named = set(position.by_partition or ())
    for partition in sorted(partitions - named):
        raise OptionError(f"the option {position.option} lacks {partition[0]}-{partition[1]}: name all partitions")
    for partition in sorted(named - partitions):
        raise OptionError(f"the option {position.option} names {partition[0]}-{partition[1]}, which is not read")
