"""A cluster as `headrace cluster` shows it: its brokers and its problems."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from headrace.cli.errors import CommandFailed
from headrace.cli.reach import check_reachable, unreachable_text
from headrace.model.features import FEATURE
from headrace.wire import (
    NO_FEATURE,
    BrokerUnreachable,
    Cluster,
    ClusterInfo,
    ErrorCode,
    Feature,
    LogDir,
    Partition,
    PartitionInfo,
    Reassignment,
    Refused,
    Timeouts,
    Topic,
    WireError,
)

PATIENT = Timeouts(connect_s=3.0, request_s=30.0, patience_s=20.0)
_TOPICS_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class BrokerView:
    broker_id: int
    address: str
    rack: str | None
    state: str
    """active, draining, starting, away, or unreachable: the cluster sees it and this machine does not."""
    leads: int
    hosts: int
    size_bytes: int | None
    usable_bytes: int | None
    has_failed_disk: bool


@dataclass(frozen=True, slots=True)
class ClusterView:
    cluster_id: str
    controller: int
    brokers: tuple[BrokerView, ...]
    topics: int
    partitions: int
    offline: tuple[Partition, ...]
    """Partitions without a leader: they can be neither read nor written."""
    below_min_isr: tuple[Partition, ...]
    """acks=all is refused."""
    under_replicated: tuple[Partition, ...]
    """Not all replicas are in sync; those that a reassignment is making are not counted."""
    away_from_preferred: tuple[Partition, ...]
    """Led by another than the first replica, though that one is in sync."""
    reassigning: Mapping[Partition, Reassignment]
    level: Feature = NO_FEATURE
    """The cluster's feature level; 0 where it is not a Headrace, or one before 0.2."""

    @property
    def is_serving(self) -> bool:
        """Whether every partition can be read and written."""
        return not self.offline and not self.below_min_isr and self.controller >= 0

    @property
    def is_well(self) -> bool:
        """Whether nothing would be lost if one more broker died now, as far as the cluster was set up that way."""
        states = {broker.state for broker in self.brokers}
        return (
            self.is_serving
            and not self.under_replicated
            and states <= {"active", "draining"}
            and not any(broker.has_failed_disk for broker in self.brokers)
        )


Dirs = Mapping[int, list[LogDir] | None]
"""What each broker stores; None where it does not answer."""


def compose(
    info: ClusterInfo,
    topics: Mapping[str, Topic],
    min_isr: Mapping[str, int],
    reassigning: Mapping[Partition, Reassignment],
    dirs: Dirs,
) -> ClusterView:
    """The view of what brokers have answered."""
    parts = {(topic.name, part.partition): part for _, topic in sorted(topics.items()) for part in topic.partitions}
    there = {broker_id for broker_id, node in info.brokers.items() if not node.is_fenced}
    lacking = {
        where: set(part.replicas) - set(part.isr) - set(reassigning[where].adding if where in reassigning else ())
        for where, part in parts.items()
    }
    return ClusterView(
        info.cluster_id,
        info.controller,
        _broker_views(info, parts, dirs),
        len(topics),
        len(parts),
        offline=tuple(where for where, part in parts.items() if part.leader < 0),
        below_min_isr=tuple(
            where for where, part in parts.items() if part.leader >= 0 and len(part.isr) < min_isr.get(where[0], 1)
        ),
        under_replicated=tuple(where for where, brokers in lacking.items() if brokers),
        away_from_preferred=tuple(
            where
            for where, part in parts.items()
            if part.leader >= 0 and part.leader != part.replicas[0] and part.replicas[0] in there.intersection(part.isr)
        ),
        reassigning=dict(sorted(reassigning.items())),
    )


def _broker_views(info: ClusterInfo, parts: Mapping[Partition, PartitionInfo], dirs: Dirs) -> tuple[BrokerView, ...]:
    """Every broker that the cluster tells of, and those it only names as having replicas: they are away."""
    leads = Counter(part.leader for part in parts.values())
    hosts = Counter(broker for part in parts.values() for broker in part.replicas)
    views = []
    for broker_id in sorted({*info.brokers, *hosts}):
        node, found = info.brokers.get(broker_id), dirs.get(broker_id)
        if node is None or node.is_fenced:
            state = "away" if found is None else "starting"
        elif found is None:
            state = "unreachable"
        else:
            state = "draining" if any(each.is_cordoned for each in found) else "active"
        views.append(
            BrokerView(
                broker_id,
                "?" if node is None else str(node.endpoint),
                None if node is None else node.rack,
                state,
                leads[broker_id],
                hosts[broker_id],
                None if found is None else sum(log.size_bytes for each in found for log in each.replicas.values()),
                min((each.usable_bytes for each in found or () if each.usable_bytes >= 0), default=None),
                any(each.has_failed for each in found or ()),
            )
        )
    return tuple(views)


def look(cluster: Cluster) -> ClusterView:
    """Ask the cluster for everything that is shown."""
    info = cluster.describe()
    topics = cluster.metadata()
    reassigning: Mapping[Partition, Reassignment] = {}
    with suppress(WireError):  # only the controller tells of them, and it may have just died
        reassigning = cluster.reassignments() if info.controller >= 0 else {}
    view = compose(info, topics, _min_isr(cluster, list(topics)), reassigning, stored(cluster, info))
    return replace(view, level=cluster.feature(FEATURE))


def stored(cluster: Cluster, info: ClusterInfo) -> dict[int, list[LogDir] | None]:
    """What each broker has on disk."""
    dirs: dict[int, list[LogDir] | None] = {}
    for broker_id, node in info.brokers.items():
        try:
            dirs[broker_id] = cluster.log_dirs(node.endpoint)
        except Refused as error:
            if error.code is ErrorCode.cluster_authorization_failed:
                raise CommandFailed(
                    "this user may not see the state of brokers, which needs DESCRIBE on the cluster: "
                    "headrace acl add NAME --operation describe --on cluster"
                ) from None
            dirs[broker_id] = None
        except WireError:
            dirs[broker_id] = None
    return dirs


def _min_isr(cluster: Cluster, names: list[str]) -> dict[str, int]:
    found: dict[str, str] = {}
    for start in range(0, len(names), _TOPICS_AT_ONCE):
        found |= cluster.one_setting(names[start : start + _TOPICS_AT_ONCE], "min.insync.replicas")
    return {name: int(text) for name, text in found.items()}


@contextmanager
def connected(bootstrap: str) -> Iterator[Cluster]:
    """The cluster at `bootstrap`; what goes wrong with it is a sentence for the person at the terminal."""
    check_reachable(bootstrap)
    try:
        with Cluster(bootstrap, client_id="headrace-cli", timeouts=PATIENT) as cluster:
            yield cluster
    except BrokerUnreachable:
        raise CommandFailed(unreachable_text(bootstrap)) from None
    except WireError as error:
        raise CommandFailed(str(error)) from None


def named(partition: Partition) -> str:
    return f"{partition[0]}-{partition[1]}"
