"""The lag of a pipeline, and the start offsets of a reset, from the brokers."""

from dataclasses import dataclass

from headrace.pipelines.control.topics import cluster_of, matching
from headrace.pipelines.errors import NotReady, PipelineError
from headrace.pipelines.spec.model import Source, Spec
from headrace.wire import EARLIEST, READ_COMMITTED, Cluster, Partition, WireError


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """Offsets of a partition that a pipeline reads; `committed` is None before the first commit."""

    source: str
    topic: str
    partition: int
    first: int
    end: int
    committed: int | None

    @property
    def lag(self) -> int:
        return max(0, self.end - max(self.first, self.committed or 0))


def positions(spec: Spec) -> list[PartitionLag]:
    """Every partition of every source, with the offsets of the broker and of the mirror group."""
    found: list[PartitionLag] = []
    for name, source in spec.streams.items():
        try:
            with cluster_of(spec, source) as cluster:
                committed = cluster.committed_offsets(spec.group)
                partitions = _partitions(cluster, source)
                firsts = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
                ends = cluster.list_offsets(partitions, isolation=READ_COMMITTED)
        except WireError as error:
            raise NotReady(str(error)) from error
        found += [
            PartitionLag(name, *where, firsts[where].offset, ends[where].offset, committed.get(where))
            for where in partitions
        ]
    return found


def _partitions(cluster: Cluster, source: Source) -> list[Partition]:
    topics = cluster.metadata(None if source.pattern is not None else source.all_topics)
    return [
        (topic, index) for topic in matching(source, sorted(topics)) for index in range(len(topics[topic].partitions))
    ]


@dataclass(frozen=True, slots=True)
class PipelineReset:
    """The target of a reset: exactly one of these."""

    to_earliest: bool = False
    to_latest: bool = False
    to_time_ms: int | None = None
    to_offsets: dict[Partition, int] | None = None


def targets(spec: Spec, target: PipelineReset) -> dict[str, dict[Partition, int]]:
    """By source, the start offset of each partition, within its existing offsets."""
    found: dict[str, dict[Partition, int]] = {}
    known = positions(spec)
    if target.to_offsets is not None:
        strange = target.to_offsets.keys() - {(each.topic, each.partition) for each in known}
        if strange:
            topic, partition = min(strange)
            raise PipelineError(f"{spec.name} does not read {topic}/{partition}")
    for name, source in spec.streams.items():
        mine = [each for each in known if each.source == name]
        times = _at_time(spec, source, mine, target.to_time_ms)
        found[name] = {(each.topic, each.partition): _offset(each, target, times) for each in mine}
    return found


def _offset(position: PartitionLag, target: PipelineReset, times: dict[Partition, int]) -> int:
    where = (position.topic, position.partition)
    if target.to_earliest:
        return position.first
    if target.to_latest:
        return position.end
    if target.to_offsets is not None:
        current = position.first if position.committed is None else position.committed
        wanted = target.to_offsets.get(where, current)
    else:
        wanted = times.get(where, position.end)
    return min(max(wanted, position.first), position.end)


def _at_time(spec: Spec, source: Source, mine: list[PartitionLag], time_ms: int | None) -> dict[Partition, int]:
    if time_ms is None or not mine:
        return {}
    try:
        with cluster_of(spec, source) as cluster:
            found = cluster.list_offsets(dict.fromkeys([(each.topic, each.partition) for each in mine], time_ms))
    except WireError as error:
        raise NotReady(str(error)) from error
    return {where: each.offset for where, each in found.items() if each.offset >= 0}


def mirror_to(spec: Spec, offsets: dict[str, dict[Partition, int]]) -> None:
    """Commit `offsets` to the mirror group."""
    for name, source in spec.streams.items():
        if offsets.get(name):
            try:
                with cluster_of(spec, source) as cluster:
                    cluster.commit_offsets(spec.group, offsets[name])
            except WireError as error:
                raise NotReady(str(error)) from error
