"""Plans of replica moves, computed from the present assignment."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from headrace.cli.cluster.queue_moves import balanced_with_state
from headrace.cli.errors import BadArgument, CommandFailed
from headrace.cli.names import no_such
from headrace.cluster.placement import even_out, rack_use, score
from headrace.model.ids import BrokerId, PartitionIndex, TopicName, TopicPartition
from headrace.wire import Partition, PartitionInfo, Topic

Racks = Mapping[int, str | None]
"""The brokers that may get replicas, and the rack of each."""

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?(?:/s)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ReplicaMove:
    """One partition's replicas, before and after."""

    partition: Partition
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def adding(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.after if broker not in self.before)

    @property
    def removing(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.before if broker not in self.after)


def chosen(texts: Iterable[str] | None, topics: Mapping[str, Topic]) -> dict[Partition, PartitionInfo]:
    """The partitions that `TOPIC`, `TOPIC:3` or `TOPIC:0,2` name; None stands for all topics."""
    found: dict[Partition, PartitionInfo] = {}
    for text in topics if texts is None else texts:
        name, colon, indexes = text.partition(":")
        topic = topics.get(name)
        if topic is None:
            raise CommandFailed(no_such("topic", name, topics, "headrace topic list"))
        wanted = set(_numbers(indexes, text)) if colon else {part.partition for part in topic.partitions}
        if unknown := wanted - {part.partition for part in topic.partitions}:
            raise CommandFailed(f"{name} has no partition {min(unknown)}, only 0 to {len(topic.partitions) - 1}")
        found |= {(name, part.partition): part for part in topic.partitions if part.partition in wanted}
    return found


def parse_replicas(text: str) -> tuple[int, ...]:
    """`1,2,3` as broker ids, the preferred leader first."""
    replicas = tuple(_numbers(text, f"--replicas {text}"))
    if len(set(replicas)) != len(replicas):
        raise BadArgument(f"--replicas {text} names a broker twice")
    return replicas


def parse_size(text: str) -> int:
    """`500000`, `10M`, `1.5 GiB`: bytes, with units of 1024."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise BadArgument(f"{text} is not a number of bytes: write 500000, 10M or 1G")
    return int(float(match[1]) * 1024 ** " kmgt".index(match[2].lower() or " "))


def _numbers(text: str, where: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise BadArgument(f"{where}: {text!r} is not a number, or several with commas between them") from None


def onto(parts: Mapping[Partition, PartitionInfo], replicas: Sequence[int], known: Iterable[int]) -> list[ReplicaMove]:
    """These replicas for each partition, the order turned from one to the next so that all of them lead alike."""
    if unknown := set(replicas) - set(known):
        raise CommandFailed(f"there is no broker {min(unknown)}; `headrace cluster status` shows those there are")
    moves = []
    for turn, (where, part) in enumerate(sorted(parts.items())):
        at = turn % len(replicas)
        moves.append(ReplicaMove(where, part.replicas, (*replicas[at:], *replicas[:at])))
    return _changes(moves)


def with_factor(
    parts: Mapping[Partition, PartitionInfo], factor: int, racks: Racks, load: Mapping[int, int]
) -> list[ReplicaMove]:
    """`factor` replicas for each partition: more on other racks and on brokers with little, fewer from the end.

    Of those that are there the ones in sync stay first, and of those the ones on racks of their own.
    """
    loads = Counter(load)
    moves = []
    for where, part in sorted(parts.items()):
        after = list(part.replicas)
        while len(after) > factor:
            gone = min(reversed(after[1:]), key=lambda broker: _worth(broker, part, racks, after))
            after.remove(gone)
            loads[gone] -= 1
        while len(after) < factor:
            candidates = [broker for broker in racks if broker not in after]
            if not candidates:
                raise CommandFailed(
                    f"{factor} replicas need {factor} brokers that are active and not draining; there are {len(racks)}"
                )
            used = rack_use(_racks(racks), [BrokerId(broker) for broker in after])
            best = min(
                candidates,
                key=lambda broker: (
                    used[racks[broker] or BrokerId(broker)],
                    loads[broker],
                    -score(_named(where), BrokerId(broker)),
                ),
            )
            after.append(best)
            loads[best] += 1
        moves.append(ReplicaMove(where, part.replicas, tuple(after)))
    return _changes(moves)


def _worth(broker: int, part: PartitionInfo, racks: Racks, replicas: Sequence[int]) -> tuple[bool, bool, bool]:
    """What speaks for keeping a replica: it is in sync, its broker is there, it is alone on its rack."""
    rack = racks.get(broker) or broker
    is_alone = sum((racks.get(other) or other) == rack for other in replicas) == 1
    return broker in part.isr, broker in racks, is_alone


def balanced(
    parts: Mapping[Partition, PartitionInfo], racks: Racks, queues: Mapping[str, UUID] | None = None, states: int = 0
) -> list[ReplicaMove]:
    """What brokers with little are to get from those with much, and the order of replicas that evens out leaders.

    Queues, given with their topic ids, are led by the brokers that lead their state, in one of `states` partitions."""
    placed = {_named(where): tuple(map(BrokerId, part.replicas)) for where, part in parts.items()}
    if queues and states:
        wanted = balanced_with_state(_racks(racks), placed, queues, states)
    else:
        wanted = even_out(_racks(racks), placed)
    return _changes(
        [
            ReplicaMove((where.topic, int(where.partition)), tuple(placed[where]), after)
            for where, after in wanted.items()
        ]
    )


def _changes(moves: Iterable[ReplicaMove]) -> list[ReplicaMove]:
    return sorted((move for move in moves if move.before != move.after), key=lambda move: move.partition)


def _racks(racks: Racks) -> dict[BrokerId, str | None]:
    return {BrokerId(broker): rack for broker, rack in racks.items()}


def _named(partition: Partition) -> TopicPartition:
    return TopicPartition(TopicName(partition[0]), PartitionIndex(partition[1]))
