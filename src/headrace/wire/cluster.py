"""The public interface of the package: one object for all requests to a cluster."""

from collections.abc import Collection, Generator, Iterable, Mapping
from types import TracebackType

from headrace.config.credentials import Credentials
from headrace.model.acls import Acl
from headrace.model.ids import NO_PRODUCER, ProducerIdAndEpoch
from headrace.model.image import Endpoint
from headrace.model.quotas import ClusterQuotas, QuotaEntity
from headrace.protocol.fetch_response import FetchedRecords
from headrace.security.acl_filter import AclFilter
from headrace.wire import (
    acls,
    brokers,
    features,
    fetch,
    groups,
    produce,
    quotas,
    settings,
    share_groups,
    streams_groups,
    topics,
    transactions,
    users,
)
from headrace.wire.acls import EVERY_ACL
from headrace.wire.brokers import ClusterInfo, LogDir, Reassignment
from headrace.wire.connection import Timeouts
from headrace.wire.errors import Refused
from headrace.wire.features import Feature
from headrace.wire.fetch import LATEST, READ_UNCOMMITTED, OffsetAt
from headrace.wire.groups import GroupInfo
from headrace.wire.produce import ResumedTransaction, Transactions
from headrace.wire.range_reader import follow
from headrace.wire.router import LeaderRouter, Partition, Topic
from headrace.wire.security import WireSecurity
from headrace.wire.settings import ConfigResource, SettingInForce
from headrace.wire.share_groups import ShareGroupInfo
from headrace.wire.streams_groups import StreamsGroupInfo
from headrace.wire.transactions import TransactionInfo
from headrace.wire.users import CredentialInfo

DEFAULT_TIMEOUTS = Timeouts()
FETCH_BYTES = 8 * 1024 * 1024
BROKER_DEFAULT = -1


class Cluster:
    """A client of one cluster. It connects at the first request, so a driver can make and pickle it for its workers.

    `bootstrap` is Kafka's bootstrap.servers. Retriable errors (a broker that restarts, a leader that moves) are retried
    for `timeouts.patience_s`; after that, and for every other error, a `WireError` is raised. Without `credentials`,
    those of the environment are used (`HEADRACE_USER` …, `HEADRACE_PROFILE`); `NO_CREDENTIALS` is none at all.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "headrace",
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        credentials: Credentials | None = None,
    ) -> None:
        self.bootstrap = bootstrap
        self.credentials = credentials
        self._router = LeaderRouter(
            bootstrap, client_id=client_id, timeouts=timeouts, security=WireSecurity(credentials)
        )
        self._transactions = Transactions()
        self._idle: list[LeaderRouter] = []
        """Routers for `follow`, each with its own connections, since one of its requests may be in flight."""

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection. A later request opens new ones."""
        for router in (self._router, *self._idle):
            router.close()

    # -- brokers

    def describe(self) -> ClusterInfo:
        """The cluster's id, its controller and its brokers, fenced ones included."""
        return brokers.describe_cluster(self._router)

    def log_dirs(self, endpoint: Endpoint) -> list[LogDir]:
        """The log directories of the broker at `endpoint`, with size and lag of each replica. Not retried."""
        return brokers.log_dirs(self._router, endpoint)

    def reassign(self, targets: Mapping[Partition, tuple[int, ...] | None]) -> dict[Partition, Refused]:
        """Start a reassignment of each partition to these replicas, preferred leader first, or cancel it (None).

        Returns the refusals as soon as the cluster has accepted the request, long before the replicas are copied:
        `reassignments` lists what is in progress.
        """
        return brokers.reassign(self._router, targets)

    def reassignments(self) -> dict[Partition, Reassignment]:
        """The reassignments in progress."""
        return brokers.reassignments(self._router)

    def elect_preferred(self, partitions: Iterable[Partition] | None = None) -> dict[Partition, Refused]:
        """Elect the preferred leader of each of these partitions, or of all. Returns the refusals."""
        return brokers.elect_preferred(self._router, partitions)

    def broker_settings(self, broker_id: int) -> dict[str, str]:
        return brokers.broker_settings(self._router, broker_id)

    def set_broker_settings(self, broker_id: int | None, settings: Mapping[str, str | None]) -> None:
        """Change settings of one running broker, or of all (None); a value of None resets a setting."""
        brokers.set_broker_settings(self._router, broker_id, settings)

    def settings_of(self, resource: ConfigResource, name: str) -> list[SettingInForce]:
        """The settings of a group, of a broker (its id as text) or of its loggers, with the source of each value."""
        return settings.settings_of(self._router, resource, name)

    def http_listeners(self) -> dict[Endpoint, str]:
        """Where each broker serves queues over HTTP, by its address. A broker that does not answer is left out."""
        return settings.http_listeners(self._router)

    def alter_settings(self, resource: ConfigResource, name: str, changes: Mapping[str, str | None]) -> None:
        """Change settings atomically; None resets one. The name "" stands for all brokers."""
        settings.alter_settings(self._router, resource, name, changes)

    def feature(self, name: str, endpoint: Endpoint | None = None) -> Feature:
        """The finalized version of a feature, and the highest that the broker at `endpoint` (or any) supports."""
        return features.feature(self._router, name, endpoint)

    def upgrade_feature(self, name: str, version: int) -> None:
        """Raise a feature of the cluster to a version."""
        features.upgrade_feature(self._router, name, version)

    # -- topics

    def metadata(self, topics: Iterable[str] | None = None) -> dict[str, Topic]:
        """The metadata of `topics`, or of all, by name. A topic that does not exist is left out, never created."""
        return self._router.patiently(lambda: self._router.topics(topics))

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        settings: Mapping[str, str] | None = None,
    ) -> bool:
        """Create a topic. False if it exists already."""
        return topics.create_topic(self._router, name, partitions, replication_factor, settings or {})

    def delete_topic(self, name: str) -> bool:
        """Delete a topic. False if it does not exist."""
        return topics.delete_topic(self._router, name)

    def add_partitions(self, name: str, count: int) -> None:
        """Raise the number of partitions of a topic to `count`."""
        topics.add_partitions(self._router, name, count)

    def topic_settings(self, name: str) -> dict[str, str]:
        return topics.topic_settings(self._router, name)

    def one_setting(self, topics: Iterable[str], setting: str) -> dict[str, str]:
        """The value of one setting for each of these topics that exists."""
        return brokers.topics_settings(self._router, topics, setting)

    def set_topic_settings(self, name: str, settings: Mapping[str, str]) -> None:
        topics.set_topic_settings(self._router, name, settings)

    def delete_records(self, before: Mapping[Partition, int]) -> None:
        """Delete the records before these offsets."""
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
        """Fetch record batches as they are stored, from the one that holds `offset`; the last may be cut off.

        One batch is returned even if it is larger than `max_bytes`. Under `READ_COMMITTED` nothing past the last stable
        offset is returned, and `aborted` lists the aborted transactions. An offset outside of the log raises
        `OffsetGone`.
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

        The next piece is fetched while the caller processes one. Batches are whole but for the last of a piece; the
        first and the last may hold records outside of the range. Offsets that compaction or a transaction marker left
        empty are skipped; deleted records, and a log that ends before `end`, raise `OffsetGone`. With `reuse` the bytes
        of a piece are valid until the next one is requested, and large buffers are reused.
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
        """Write one encoded record batch to each partition with acks=all. Returns their base offsets.

        Retriable errors are retried. Batches with a producer id and a sequence are written once, however often they are
        sent (an offset of -1 means: written before, offset unknown); others may be duplicated. With a transactional id
        the batches must have its producer id and epoch and the transactional bit; partitions are added to the
        transaction as the broker's transaction version requires.
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
        """Initialize a producer. With a transactional id: fence the previous producer and abort its open transaction.

        `timeout_ms` is how long a transaction may stay open before the broker aborts it. With `two_phase` it may stay
        open without limit if the broker supports that (KIP-939); otherwise the timeout holds. With `claimed`, the
        caller's current producer id and epoch, `ProducerFenced` is raised if they are not current (KIP-360).
        """
        return produce.init_producer_id(
            self._router, self._transactions, transactional_id, timeout_ms, two_phase=two_phase, claimed=claimed
        )

    def resume_txn(
        self, transactional_id: str, *, timeout_ms: int = 60_000, claimed: ProducerIdAndEpoch = NO_PRODUCER
    ) -> ResumedTransaction:
        """Take over a transactional id with its open transaction (KIP-939; `Unsupported` if the broker lacks it).

        The previous producer is fenced. Its transaction stays open: end it with the producer that is returned. With
        `claimed`, `ProducerFenced` is raised if that producer id and epoch are not current.
        """
        return produce.resume_txn(self._router, self._transactions, transactional_id, timeout_ms, claimed)

    def end_txn(self, transactional_id: str, producer: ProducerIdAndEpoch, *, committed: bool) -> ProducerIdAndEpoch:
        """End the open transaction of `producer`. Returns the producer id and epoch for its next one.

        Any process may call it, and repeat the call with the same `producer`: it is idempotent until a newer producer
        has the transactional id (`ProducerFenced`). The opposite of the decision, or a commit where nothing was
        written, raises `TransactionLost`.
        """
        return produce.end_txn(self._router, self._transactions, transactional_id, producer, committed=committed)

    def list_transactions(self, states: Iterable[str] = ()) -> list[str]:
        """The transactional ids of all brokers, or only those in one of these states ("Ongoing" …)."""
        return transactions.list_transactions(self._router, states)

    def describe_transaction(self, transactional_id: str) -> TransactionInfo | None:
        """The state of a transactional id at its coordinator; None if the id is unknown."""
        return transactions.describe_transaction(self._router, transactional_id)

    # -- groups

    def commit_offsets(self, group: str, offsets: Mapping[Partition, int], *, metadata: str = "") -> None:
        """Commit offsets for a group without members, so that tools can show its lag."""
        fetch.commit_offsets(self._router, group, offsets, metadata)

    def committed_offsets(self, group: str) -> dict[Partition, int]:
        """The committed offsets of a group."""
        return fetch.committed_offsets(self._router, group)

    def groups(self) -> list[GroupInfo]:
        """The groups of all types, by name. `Unsupported` if brokers have no group types (Kafka before 3.8)."""
        return groups.all_groups(self._router)

    def share_groups(self) -> dict[str, str]:
        """The share groups (KIP-932), each with its state."""
        return groups.list_groups(self._router, "share")

    def describe_share_group(self, group: str) -> ShareGroupInfo | None:
        """The members and offsets of a share group; None if it does not exist."""
        return share_groups.describe_share_group(self._router, group)

    def set_share_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Set the start offsets of a share group, which must have no members."""
        share_groups.set_share_offsets(self._router, group, offsets)

    def streams_groups(self) -> dict[str, str]:
        """The streams groups (KIP-1071), each with its state."""
        return groups.list_groups(self._router, "streams")

    def describe_streams_group(self, group: str) -> StreamsGroupInfo | None:
        """The members of a streams group and their tasks; None if it does not exist."""
        return streams_groups.describe_streams_group(self._router, group)

    # -- users and ACLs

    def users(self) -> dict[str, list[CredentialInfo]]:
        """The users with SCRAM credentials, by name."""
        return users.list_users(self._router)

    def set_password(self, user: str, password: str, mechanism: str) -> None:
        """Set the password of a user for one SCRAM mechanism; creates the user. The password itself is not sent."""
        users.set_password(self._router, user, password, mechanism)

    def delete_credential(self, user: str, mechanism: str) -> None:
        """Delete the credential of a user for one SCRAM mechanism; with the last one, the user."""
        users.delete_credential(self._router, user, mechanism)

    def quotas(self) -> ClusterQuotas:
        """The client quotas."""
        return quotas.list_quotas(self._router)

    def alter_quotas(self, entity: QuotaEntity, changes: Mapping[str, float | None]) -> None:
        """Set quotas of an entity, and remove those that are None."""
        quotas.alter_quotas(self._router, entity, changes)

    def acls(self, wanted: AclFilter = EVERY_ACL) -> list[Acl]:
        """The ACLs that a filter selects."""
        return acls.list_acls(self._router, wanted)

    def create_acls(self, created: Collection[Acl]) -> None:
        """Create ACLs; those that exist are left as they are."""
        acls.create_acls(self._router, created)

    def delete_acls(self, deleted: Collection[Acl]) -> list[Acl]:
        """Delete exactly these ACLs. Returns those that existed."""
        return acls.delete_acls(self._router, deleted)
