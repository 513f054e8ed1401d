"""The face of the package: one object for everything that is asked of a cluster."""

from collections.abc import Generator, Iterable, Mapping
from types import TracebackType

from headrace.model.ids import NO_PRODUCER, ProducerIdAndEpoch
from headrace.model.image import Endpoint
from headrace.protocol.fetch_response import FetchedRecords
from headrace.wire import (
    brokers,
    features,
    fetch,
    groups,
    produce,
    settings,
    share_groups,
    streams_groups,
    topics,
    transactions,
)
from headrace.wire.brokers import ClusterInfo, LogDir, Reassignment
from headrace.wire.connection import Timeouts
from headrace.wire.errors import Refused
from headrace.wire.features import Feature
from headrace.wire.fetch import LATEST, READ_UNCOMMITTED, OffsetAt
from headrace.wire.groups import GroupInfo
from headrace.wire.produce import ResumedTransaction, Transactions
from headrace.wire.range_reader import follow
from headrace.wire.router import LeaderRouter, Partition, Topic
from headrace.wire.settings import Resource, SettingInForce
from headrace.wire.share_groups import ShareGroupInfo
from headrace.wire.streams_groups import StreamsGroupInfo
from headrace.wire.transactions import TransactionInfo

DEFAULT_TIMEOUTS = Timeouts()
FETCH_BYTES = 8 * 1024 * 1024
BROKER_DEFAULT = -1


class Cluster:
    """Nothing is connected before the first question, so one may be made on a driver, pickled and used by workers.

    `bootstrap` is what Kafka calls bootstrap.servers. Passing errors (a broker that restarts, a leader that moves) are
    waited out for `timeouts.patience_s`; then, and for every other error, a `WireError` with a sentence is raised.
    """

    def __init__(self, bootstrap: str, *, client_id: str = "headrace", timeouts: Timeouts = DEFAULT_TIMEOUTS) -> None:
        self.bootstrap = bootstrap
        self._router = LeaderRouter(bootstrap, client_id=client_id, timeouts=timeouts)
        self._transactions = Transactions()
        self._idle: list[LeaderRouter] = []
        """Routers for `follow`, each with connections of its own, since a request of theirs may be under way."""

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection. A later question opens new ones."""
        for router in (self._router, *self._idle):
            router.close()

    # -- brokers

    def describe(self) -> ClusterInfo:
        """The cluster's id, its controller and its brokers, those that are away included."""
        return brokers.describe_cluster(self._router)

    def log_dirs(self, endpoint: Endpoint) -> list[LogDir]:
        """What the broker at `endpoint` stores: size and lag of each replica. Asked once, not patiently."""
        return brokers.log_dirs(self._router, endpoint)

    def reassign(self, targets: Mapping[Partition, tuple[int, ...] | None]) -> dict[Partition, Refused]:
        """Ask for these replicas of each partition, preferred leader first, or with None to cancel; what was refused.

        Returns when the cluster has taken the order, which is long before the copies are made: `reassignments` tells.
        """
        return brokers.reassign(self._router, targets)

    def reassignments(self) -> dict[Partition, Reassignment]:
        """The reassignments that are under way."""
        return brokers.reassignments(self._router)

    def elect_preferred(self, partitions: Iterable[Partition] | None = None) -> dict[Partition, Refused]:
        """Give leadership to the first replica of each of these partitions, or of all; those where it cannot be."""
        return brokers.elect_preferred(self._router, partitions)

    def broker_settings(self, broker_id: int) -> dict[str, str]:
        return brokers.broker_settings(self._router, broker_id)

    def set_broker_settings(self, broker_id: int | None, settings: Mapping[str, str | None]) -> None:
        """Change settings of one broker, or of all (None), as they run; a value of None takes a setting back."""
        brokers.set_broker_settings(self._router, broker_id, settings)

    def settings_of(self, resource: Resource, name: str) -> list[SettingInForce]:
        """The settings of a group, of a broker (its id as text) or of its loggers, with where each comes from."""
        return settings.settings_of(self._router, resource, name)

    def alter_settings(self, resource: Resource, name: str, changes: Mapping[str, str | None]) -> None:
        """Change settings, all of these or none; None takes one back. The name "" stands for all brokers."""
        settings.alter_settings(self._router, resource, name, changes)

    def feature(self, name: str, endpoint: Endpoint | None = None) -> Feature:
        """Which version of a feature is in force, and the highest that a broker knows: that at `endpoint`, or any."""
        return features.feature(self._router, name, endpoint)

    def upgrade_feature(self, name: str, version: int) -> None:
        """Raise a feature of the cluster to a version."""
        features.upgrade_feature(self._router, name, version)

    # -- topics

    def metadata(self, topics: Iterable[str] | None = None) -> dict[str, Topic]:
        """Those of `topics` that exist, by name, or all. One that does not exist is left out, never created."""
        return self._router.patiently(lambda: self._router.topics(topics))

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        settings: Mapping[str, str] | None = None,
    ) -> bool:
        """Whether it was made: False if it was there already."""
        return topics.create_topic(self._router, name, partitions, replication_factor, settings or {})

    def delete_topic(self, name: str) -> bool:
        """Whether it was there."""
        return topics.delete_topic(self._router, name)

    def add_partitions(self, name: str, count: int) -> None:
        """Give a topic `count` partitions in all."""
        topics.add_partitions(self._router, name, count)

    def topic_settings(self, name: str) -> dict[str, str]:
        return topics.topic_settings(self._router, name)

    def one_setting(self, topics: Iterable[str], setting: str) -> dict[str, str]:
        """The value of one setting for each of these topics that exists."""
        return brokers.topics_settings(self._router, topics, setting)

    def set_topic_settings(self, name: str, settings: Mapping[str, str]) -> None:
        topics.set_topic_settings(self._router, name, settings)

    def delete_records(self, before: Mapping[Partition, int]) -> None:
        """Remove what is before these offsets."""
        topics.delete_records(self._router, before)

    # -- reading

    def list_offsets(
        self, times_ms: Mapping[Partition, int] | Iterable[Partition], *, isolation: int = READ_UNCOMMITTED
    ) -> dict[Partition, OffsetAt]:
        """The first offset at or after a time (`EARLIEST`, `LATEST`), for each partition; without times the latest."""
        if not isinstance(times_ms, Mapping):
            times_ms = dict.fromkeys(times_ms, LATEST)
        return fetch.list_offsets(self._router, times_ms, isolation)

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = FETCH_BYTES,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        isolation: int = READ_UNCOMMITTED,
    ) -> FetchedRecords:
        """Record batches as they are stored, from the one that holds `offset`; the last may be cut off.

        One batch comes even if it is larger than `max_bytes`. Under `READ_COMMITTED` nothing past the last stable
        offset comes, and `aborted` says which records were taken back. An offset that is not there is
        `OffsetOutOfRange`.
        """
        return fetch.fetch(
            self._router,
            (topic, partition),
            offset,
            max_bytes=max_bytes,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            isolation=isolation,
        )

    def follow(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        *,
        max_bytes: int = FETCH_BYTES,
        isolation: int = READ_UNCOMMITTED,
        reuse: bool = False,
    ) -> Generator[FetchedRecords, None, None]:
        """Record batches with every record from `start` up to, not including, `end`, in pieces of about `max_bytes`.

        The next piece is on its way while one is worked on. Batches are whole but for the last of a piece; the first
        and the last may hold records outside of the range. What compaction or a transaction's marker left empty is
        passed over; what was removed, and a log that ends before `end`, is `OffsetOutOfRange`. With `reuse` the bytes
        of a piece are valid until the next one is asked for, and large buffers are not made again and again.
        """
        router = self._idle.pop() if self._idle else self._router.twin()
        try:
            yield from follow(
                router, (topic, partition), start, end, max_bytes=max_bytes, isolation=isolation, reuse=reuse
            )
        finally:
            self._idle.append(router)

    # -- writing

    def produce(
        self, batches: Mapping[Partition, bytes], *, transactional_id: str | None = None, timeout_ms: int = 30_000
    ) -> dict[Partition, int]:
        """Write one ready-made record batch to each partition with acks=all; the offsets of their first records.

        Tried again for as long as the errors are passing ones. Batches that carry a producer id and a sequence are
        written once however often they are sent (an offset of -1 then says: written before, place unknown); others may
        be written twice. With a transactional id the batches must have its producer id and epoch and the transactional
        bit; partitions are added to the transaction as the broker's transaction version wants it.
        """
        return produce.produce(
            self._router, self._transactions, batches, transactional_id=transactional_id, timeout_ms=timeout_ms
        )

    def init_producer_id(
        self,
        transactional_id: str | None = None,
        *,
        timeout_ms: int = 60_000,
        two_phase: bool = False,
        claimed: ProducerIdAndEpoch = NO_PRODUCER,
    ) -> ProducerIdAndEpoch:
        """A producer. With a transactional id: its predecessor is fenced, and what that had open is aborted first.

        `timeout_ms` is how long a transaction may stay open before the broker aborts it. With `two_phase` it may stay
        open for as long as it takes, where the broker offers that (KIP-939); where it does not, the timeout holds. Who
        says by `claimed` who it is, is `Fenced` if it is not that any more (KIP-360).
        """
        return produce.init_producer_id(
            self._router, self._transactions, transactional_id, timeout_ms, two_phase=two_phase, claimed=claimed
        )

    def resume_txn(
        self, transactional_id: str, *, timeout_ms: int = 60_000, claimed: ProducerIdAndEpoch = NO_PRODUCER
    ) -> ResumedTransaction:
        """Take over a transactional id with what it has open (KIP-939; `Unsupported` where the broker cannot).

        The predecessor is fenced. Its transaction stays as it is: end it with the producer that is returned. Who says
        by `claimed` who it is, is `Fenced` if it is not that any more.
        """
        return produce.resume_txn(self._router, self._transactions, transactional_id, timeout_ms, claimed)

    def end_txn(self, transactional_id: str, producer: ProducerIdAndEpoch, *, committed: bool) -> ProducerIdAndEpoch:
        """End the transaction that `producer` has open; who the producer is for its next one.

        Any process may call it, and again with the same `producer`: what was decided stays decided and gives the same
        answer, until a newer producer has the id (`Fenced`). The opposite of what was decided, or a commit where
        nothing was written, is `TransactionLost`.
        """
        return produce.end_txn(self._router, self._transactions, transactional_id, producer, committed=committed)

    def list_transactions(self, states: Iterable[str] = ()) -> list[str]:
        """The transactional ids that any broker knows, or those of them in one of these states ("Ongoing" …)."""
        return transactions.list_transactions(self._router, states)

    def describe_transaction(self, transactional_id: str) -> TransactionInfo | None:
        """What its coordinator knows of a transactional id; None if nobody has it."""
        return transactions.describe_transaction(self._router, transactional_id)

    # -- groups

    def commit_offsets(self, group: str, offsets: Mapping[Partition, int], *, metadata: str = "") -> None:
        """Commit offsets for a group without members, so that tools can see how far somebody is."""
        fetch.commit_offsets(self._router, group, offsets, metadata)

    def committed_offsets(self, group: str) -> dict[Partition, int]:
        """Everything that a group has committed."""
        return fetch.committed_offsets(self._router, group)

    def groups(self) -> list[GroupInfo]:
        """The groups of all types, by name. `Unsupported` where brokers do not know of types (Kafka before 3.8)."""
        return groups.all_groups(self._router)

    def share_groups(self) -> dict[str, str]:
        """The share groups (KIP-932), each with its state."""
        return groups.list_groups(self._router, "share")

    def describe_share_group(self, group: str) -> ShareGroupInfo | None:
        """Who is in a share group, and how far it is; None if there is none of this name."""
        return share_groups.describe_share_group(self._router, group)

    def set_share_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Let a share group, which must have no members, go on from these offsets."""
        share_groups.set_share_offsets(self._router, group, offsets)

    def streams_groups(self) -> dict[str, str]:
        """The streams groups (KIP-1071), each with its state."""
        return groups.list_groups(self._router, "streams")

    def describe_streams_group(self, group: str) -> StreamsGroupInfo | None:
        """Who is in a streams group, and works on what; None if there is none of this name."""
        return streams_groups.describe_streams_group(self._router, group)
