"""The tree of domain errors. Each is mapped to a wire error code once, in `kafka/errors.py`.

HeadraceError
├── SettingsError             an unknown setting, or an invalid value
├── StartupError              the broker cannot start; the message is one sentence for the operator
├── MissingExtra              an optional dependency is not installed; the message says how to install it
├── ProtocolError             malformed bytes from a client
├── RecordError
│   ├── CorruptBatch          a record batch fails its length, magic or checksum
│   ├── InvalidRecord         a well-formed batch that this topic does not accept
│   ├── InvalidTimestamp      a record's timestamp is outside the topic's bounds
│   ├── UnsupportedCodec      an unknown compression codec, or one too new for the client's request version
│   └── RecordTooLarge        larger than max.message.bytes, or than a segment
├── ProducerStateError
│   ├── OutOfOrderSequence    a gap in an idempotent producer's sequence
│   ├── DuplicateSequence     an old duplicate whose offset is no longer known
│   ├── UnknownProducer       a sequence without the producer state it needs
│   ├── FencedProducer        an epoch older than the current one
│   └── FencedCoordinator     a marker of a superseded transaction coordinator
├── LogError
│   ├── OffsetOutOfRange      before the log's start or past its end
│   ├── LogClosed             the log was closed or deleted
│   ├── DiskFull              no space left; retriable, writes resume by themselves
│   └── StorageFailed         the log directory failed (EIO, failed fsync): permanent for this process
├── EncryptionError
│   ├── DataKeyMissing        a key that is needed to read or write an encrypted topic is not available here
│   ├── TopicShredded         a write to a topic whose data keys were destroyed
│   └── NotAuthentic          an encrypted batch was changed, or is not in its place
├── TopicError
│   ├── UnknownTopic
│   ├── UnknownTopicId
│   ├── UnknownPartition
│   ├── TopicExists
│   ├── InvalidTopicName
│   ├── InvalidPartitions
│   ├── InvalidReplicationFactor
│   ├── InvalidReplicaAssignment
│   ├── InvalidSettings        a topic or broker setting refused, with the reason
│   └── PolicyViolation        valid, but past a limit of this broker
│       ├── MirrorIsReadOnly       a mirror topic of a link, which only the link writes to
│       ├── BacklogFull            the backlog is at its bound, and the policy is refuse
│       └── StorageQuotaExceeded   topics with a prefix store as much as they may
├── NoBrokerReady             no broker accepts replicas yet: retry
├── ElectionNotNeeded         the requested leader is already the leader
├── PreferredLeaderNotAvailable  the first replica is not up, or not in sync
├── NoEligibleLeader          no in-sync replica is up
├── NoReassignment            no reassignment of the partition is in progress
├── FeatureUpdateRefused      the feature level cannot be changed as requested
├── InvalidFeatureLevel       a feature, or a version of it, that this broker does not support
├── FencedLeaderEpoch         the client's epoch is older than the leader's
├── UnknownLeaderEpoch        the client's epoch is newer than the leader's
├── NotLeader                 another broker leads this partition, or none does
├── OffsetNotAvailable        the new leader's high watermark is not known yet: retry
├── StaleBrokerEpoch          a fetch of a replica whose broker has registered again since
├── NotEnoughReplicas         fewer replicas are in sync than min.insync.replicas
├── NotEnoughReplicasAfterAppend  the same, detected after the append
├── BacklogBlocked            the backlog is at its bound, and the policy is block: nothing was written, retry
├── QuotaError
│   ├── InvalidQuota          a quota, or a question about quotas, that makes no sense
│   └── QuotaExceeded         the client has used up its quota of changes: retry after the throttle time
├── InvalidRequiredAcks       acks is none of -1, 0 and 1
├── TransactionError
│   ├── InvalidTransaction        the transaction's state does not allow the request
│   ├── TransactionAbortable      the transaction cannot continue: abort it and retry
│   ├── ConcurrentTransactions    the previous transaction is still being completed: retry
│   ├── InvalidProducerMapping    the transactional id belongs to another producer id, or to none
│   ├── SupersededProducer        a newer instance has taken over the transactional id
│   ├── TransactionalIdNotFound   an unknown transactional id
│   ├── InvalidTransactionTimeout  longer than transaction.max.timeout.ms
│   └── TwoPhaseCommitRefused a transaction without a timeout, which the settings do not allow
├── CoordinatorError
│   ├── CoordinatorLoading    the coordinator's state is being loaded: retry
│   ├── CoordinatorNotAvailable  there is no coordinator yet, or it could not write: retry
│   └── NotCoordinator        another broker coordinates this key
├── GroupError
│   ├── InvalidGroupId        empty where a group id is required
│   ├── GroupNotFound         an unknown group
│   ├── GroupNotEmpty         the group has members
│   ├── GroupFull             the group has group.max.size members already
│   ├── UnknownMember         not a member, or no longer one: rejoin
│   ├── FencedInstance        another member has this static member's instance id
│   ├── MemberIdRequired      rejoin with the member id in this error
│   ├── IllegalGeneration     the group is at another generation
│   ├── RebalanceInProgress   the group is rebalancing: rejoin
│   ├── InconsistentProtocol  no assignment protocol that all members support
│   ├── FencedMemberEpoch     the member is at another epoch: revoke everything and rejoin
│   ├── StaleMemberEpoch      the member is at another epoch: heartbeat and retry
│   ├── UnreleasedInstance    the instance id is in use by another static member
│   ├── UnsupportedAssignor   no assignor of this name
│   ├── InvalidRegularExpression  an invalid topic pattern
│   ├── InvalidTopology       a streams topology that can never have tasks, or differs from the group's
│   ├── InvalidTopologyEpoch  a topology newer than the group's, while the group has members
│   ├── InvalidSessionTimeout outside of group.min/max.session.timeout.ms
│   ├── SubscribedToTopic     a member of the group subscribes to this topic
│   ├── OffsetMetadataTooLarge  longer than offset.metadata.max.bytes
│   └── UnstableOffset        an open transaction may still change this offset
├── QueueError
│   ├── UnknownQueue          there is no queue of this name
│   │   └── QueueElsewhere    its home is another cluster, from which it is mirrored
│   ├── QueueExists           there is one, with other settings
│   ├── QueueDeletedRecently  deleted less than sqs.recreate.wait.ms ago: wait
│   ├── InvalidReceipt        not a receipt of this queue
│   ├── NotInFlight           the message is not in flight, or was received again since
│   ├── LeaseTooLong          the extension exceeds the maximum time in flight
│   ├── TooManyInFlight       queue.max.in.flight messages are in flight
│   ├── PurgeInProgress       the last purge was less than a minute ago
│   ├── QueueUnavailable      the queue is loading, or has no leader: retry
│   ├── StaleQueueLeader      another broker leads the queue now
│   ├── InvalidMessage        a message that this queue does not accept
│   ├── UnknownMove           an unknown move task
│   └── InvalidRecordState    a share group member acknowledges a record that it has not acquired
├── PipelineReportError
│   ├── UnknownPipeline       no pipeline of this name has reported
│   ├── PipelineNotListening  no process of the pipeline reports, so none can be asked for anything
│   ├── PipelineBusy          the pipeline's state does not allow the request
│   └── TooManyPipelines      more pipelines report than a cluster stores
├── LinkError
│   ├── UnknownLink           there is no link of this name
│   ├── LinkExists            there is one already
│   ├── InvalidLink           a link that makes no sense, or a change that its mirror topics do not allow
│   ├── SourceUnavailable     the source cluster cannot be reached, or refuses the link: the message says why
│   ├── NotMirrored           the topic is no mirror topic, or not any more
│   └── MirrorNotReady        a promotion waited for the source in vain, or its leaders do not answer
├── TelemetryError
│   ├── TelemetryThrottled    a client asks or pushes before its push interval is over
│   ├── UnknownSubscription   a push for a subscription that the client does not have any more
│   ├── TelemetryTooLarge     more than telemetry.max.bytes
│   └── InvalidMetrics        pushed metrics that cannot be read
├── PeerUnavailable           another broker cannot be reached, or did not respond: retry
├── SchemasUnavailable        the leader of the schema registry did not answer in time: retry
├── LoginFailed               a broker refused this client's credentials
├── AccessError
│   ├── UnknownUser           an unknown user, or one without this credential
│   ├── UnknownAccessKey
│   ├── AccessKeyExists
│   └── NotAuthorized         the client lacks a permission, on a resource of this type:
│       ├── TopicNotAuthorized
│       ├── GroupNotAuthorized
│       ├── ClusterNotAuthorized
│       └── TransactionalIdNotAuthorized
├── UnsupportedFeature        needs a higher feature level than the cluster has
└── StoreConflict             a compare-and-set failed because of a concurrent change
"""


class HeadraceError(Exception):
    """The base of all domain errors. `str(error)` is a message for people."""


class SettingsError(HeadraceError): ...


class StartupError(HeadraceError): ...


class MissingExtra(HeadraceError): ...


class ProtocolError(HeadraceError): ...


class RecordError(HeadraceError): ...


class CorruptBatch(RecordError): ...


class InvalidRecord(RecordError):
    """`record_errors` are the batch positions of the invalid records with the reasons, if these differ."""

    def __init__(
        self, message: str, record_indexes: tuple[int, ...] = (), record_errors: tuple[tuple[int, str], ...] = ()
    ) -> None:
        super().__init__(message)
        self.record_indexes = record_indexes
        self.record_errors = record_errors or tuple((index, message) for index in record_indexes)


class InvalidTimestamp(RecordError): ...


class UnsupportedCodec(RecordError): ...


class RecordTooLarge(RecordError): ...


class ProducerStateError(HeadraceError): ...


class OutOfOrderSequence(ProducerStateError): ...


class DuplicateSequence(ProducerStateError): ...


class UnknownProducer(ProducerStateError): ...


class FencedProducer(ProducerStateError): ...


class FencedCoordinator(ProducerStateError): ...


class LogError(HeadraceError): ...


class OffsetOutOfRange(LogError): ...


class LogClosed(LogError): ...


class DiskFull(LogError): ...


class StorageFailed(LogError): ...


class EncryptionError(HeadraceError): ...


class DataKeyMissing(EncryptionError): ...


class TopicShredded(EncryptionError): ...


class NotAuthentic(EncryptionError): ...


class TopicError(HeadraceError): ...


class UnknownTopic(TopicError): ...


class UnknownTopicId(TopicError): ...


class UnknownPartition(TopicError): ...


class TopicExists(TopicError): ...


class InvalidTopicName(TopicError): ...


class InvalidPartitions(TopicError): ...


class InvalidReplicationFactor(TopicError): ...


class InvalidReplicaAssignment(TopicError): ...


class InvalidSettings(TopicError): ...


class PolicyViolation(TopicError): ...


class MirrorIsReadOnly(PolicyViolation):
    """Nothing was written: the topic mirrors one of another cluster, and was not promoted."""


class BacklogFull(PolicyViolation):
    """Nothing was written, because the backlog is at its bound."""


class StorageQuotaExceeded(PolicyViolation):
    """Nothing was written, because topics with a prefix store as much as their quota allows."""


class BacklogBlocked(HeadraceError):
    """Nothing was written, because the backlog is at its bound, for longer than a request waits. Retriable."""


class FencedLeaderEpoch(HeadraceError): ...


class UnknownLeaderEpoch(HeadraceError): ...


class NotLeader(HeadraceError): ...


class OffsetNotAvailable(HeadraceError): ...


class StaleBrokerEpoch(HeadraceError): ...


class NotEnoughReplicas(HeadraceError): ...


class NotEnoughReplicasAfterAppend(HeadraceError): ...


class InvalidRequiredAcks(HeadraceError): ...


class TransactionError(HeadraceError): ...


class InvalidTransaction(TransactionError): ...


class TransactionAbortable(TransactionError): ...


class ConcurrentTransactions(TransactionError): ...


class InvalidProducerMapping(TransactionError): ...


class SupersededProducer(TransactionError): ...


class TransactionalIdNotFound(TransactionError): ...


class InvalidTransactionTimeout(TransactionError): ...


class TwoPhaseCommitRefused(TransactionError): ...


class CoordinatorError(HeadraceError): ...


class CoordinatorLoading(CoordinatorError): ...


class CoordinatorNotAvailable(CoordinatorError): ...


class NotCoordinator(CoordinatorError): ...


class GroupError(HeadraceError): ...


class InvalidGroupId(GroupError): ...


class GroupNotFound(GroupError): ...


class GroupNotEmpty(GroupError): ...


class GroupFull(GroupError): ...


class UnknownMember(GroupError): ...


class FencedInstance(GroupError): ...


class MemberIdRequired(GroupError):
    """`member_id` is the id to join with."""

    def __init__(self, message: str, member_id: str = "") -> None:
        super().__init__(message)
        self.member_id = member_id


class IllegalGeneration(GroupError): ...


class RebalanceInProgress(GroupError): ...


class InconsistentProtocol(GroupError): ...


class FencedMemberEpoch(GroupError): ...


class StaleMemberEpoch(GroupError): ...


class UnreleasedInstance(GroupError): ...


class UnsupportedAssignor(GroupError): ...


class InvalidRegularExpression(GroupError): ...


class InvalidTopology(GroupError): ...


class InvalidTopologyEpoch(GroupError): ...


class InvalidSessionTimeout(GroupError): ...


class SubscribedToTopic(GroupError): ...


class OffsetMetadataTooLarge(GroupError): ...


class UnstableOffset(GroupError): ...


class PipelineReportError(HeadraceError): ...


class UnknownPipeline(PipelineReportError): ...


class PipelineNotListening(PipelineReportError): ...


class PipelineBusy(PipelineReportError): ...


class TooManyPipelines(PipelineReportError): ...


class LinkError(HeadraceError): ...


class UnknownLink(LinkError): ...


class LinkExists(LinkError): ...


class InvalidLink(LinkError): ...


class SourceUnavailable(LinkError): ...


class SourceLacksApi(SourceUnavailable):
    """The source answers, and does not have the API."""


class NotMirrored(LinkError): ...


class MirrorNotReady(LinkError): ...


class PeerUnavailable(HeadraceError):
    may_have_arrived = False
    """True if the other broker may have executed the request, or may still do so."""


class ApiNotServed(PeerUnavailable):
    """The other broker does not have the API, or not in this version."""


class SchemasUnavailable(HeadraceError): ...


class NoBrokerReady(HeadraceError): ...


class ElectionNotNeeded(HeadraceError): ...


class PreferredLeaderNotAvailable(HeadraceError): ...


class NoEligibleLeader(HeadraceError): ...


class NoReassignment(HeadraceError): ...


class FeatureUpdateRefused(HeadraceError): ...


class InvalidFeatureLevel(HeadraceError): ...


class LoginFailed(HeadraceError): ...


class AccessError(HeadraceError): ...


class UnknownUser(AccessError): ...


class UnknownAccessKey(AccessError): ...


class AccessKeyExists(AccessError): ...


class NotAuthorized(AccessError): ...


class TopicNotAuthorized(NotAuthorized): ...


class GroupNotAuthorized(NotAuthorized): ...


class ClusterNotAuthorized(NotAuthorized): ...


class TransactionalIdNotAuthorized(NotAuthorized): ...


class UnsupportedFeature(HeadraceError): ...


class QuotaError(HeadraceError): ...


class InvalidQuota(QuotaError): ...


class QuotaExceeded(QuotaError): ...


class StoreConflict(HeadraceError): ...


class QueueError(HeadraceError): ...


class UnknownQueue(QueueError): ...


class QueueElsewhere(UnknownQueue): ...


class QueueExists(QueueError):
    """The queue exists with other settings than requested."""


class QueueDeletedRecently(QueueError): ...


class InvalidReceipt(QueueError): ...


class NotInFlight(QueueError): ...


class LeaseTooLong(QueueError):
    """A message would be in flight for longer than allowed since its receive, over all extensions."""


class TooManyInFlight(QueueError): ...


class PurgeInProgress(QueueError): ...


class QueueUnavailable(QueueError):
    """The queue is loading, or has no leader. Retriable."""


class StaleQueueLeader(QueueError):
    """Another broker leads the queue now: this one's decisions are fenced."""


class InvalidMessage(QueueError): ...


class UnknownMove(QueueError): ...


class InvalidRecordState(QueueError): ...


class TelemetryError(HeadraceError): ...


class TelemetryThrottled(TelemetryError): ...


class UnknownSubscription(TelemetryError): ...


class TelemetryTooLarge(TelemetryError): ...


class InvalidMetrics(TelemetryError): ...
