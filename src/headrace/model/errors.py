"""The tree of domain errors. Each is mapped to a wire error once, at the edge (`kafka/errors.py`).

HeadraceError
├── SettingsError             a setting is unknown or has a value that is not allowed
├── StartupError              the broker cannot start; the message is one sentence for the person at the terminal
├── MissingExtra              an optional dependency is not installed; the message says how to install it
├── ProtocolError             bytes from a client do not follow the protocol
├── RecordError
│   ├── CorruptBatch          a record batch fails its length, magic or checksum
│   ├── InvalidRecord         a well-formed batch that this topic does not accept
│   ├── InvalidTimestamp      a record's time lies outside the topic's bounds
│   ├── UnsupportedCodec      an unknown compression codec, or one too new for the client's request version
│   └── RecordTooLarge        larger than max.message.bytes, or than a segment
├── ProducerStateError
│   ├── OutOfOrderSequence    a gap in an idempotent producer's sequence
│   ├── DuplicateSequence     an old duplicate whose offset is no longer known
│   ├── UnknownProducer       a sequence that needs state which is gone
│   ├── FencedProducer        an epoch older than the current one
│   └── FencedCoordinator     a marker of a transaction coordinator that has a successor
├── LogError
│   ├── OffsetOutOfRange      before the log's start or past its end
│   ├── LogClosed             the log was closed or deleted meanwhile
│   ├── DiskFull              no room; retriable, writing resumes by itself
│   └── StorageFailed         the log directory failed (EIO, failed fsync): final for this process
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
│   └── PolicyViolation        well formed, yet past a limit of this broker
├── NoBrokerReady             no broker can take replicas yet: try again
├── ElectionNotNeeded         the leader is the one that was asked for
├── PreferredLeaderNotAvailable  the first replica is not up, or not in sync
├── NoEligibleLeader          nobody who is in sync is up
├── NoReassignment            the partition does not move
├── FeatureUpdateRefused      the feature level cannot be what was asked for, now or ever
├── InvalidFeatureLevel       a feature, or a level of it, that this broker does not know
├── FencedLeaderEpoch         the client's epoch is older than the leader's
├── UnknownLeaderEpoch        the client's epoch is newer than the leader's
├── NotLeader                 another broker leads this partition, or nobody does
├── OffsetNotAvailable        nobody here knows yet what is committed: try again
├── StaleBrokerEpoch          a replica speaks for a broker that has started anew since
├── NotEnoughReplicas         fewer replicas are in sync than min.insync.replicas
├── NotEnoughReplicasAfterAppend  the same, found after the records were written
├── InvalidRequiredAcks       acks is none of -1, 0 and 1
├── TransactionError
│   ├── InvalidTransaction        a request that the transaction's state does not allow
│   ├── TransactionAbortable      the transaction cannot go on: abort it, and begin anew
│   ├── ConcurrentTransactions    the last transaction is still being completed: try again
│   ├── InvalidProducerMapping    the transactional id belongs to another producer id, or to none
│   ├── SupersededProducer        a newer instance has taken over the transactional id
│   ├── TransactionalIdNotFound   nobody has this transactional id
│   ├── InvalidTransactionTimeout  longer than transaction.max.timeout.ms
│   └── TwoPhaseCommitRefused a transaction without a time limit, where the settings do not allow it
├── CoordinatorError
│   ├── CoordinatorLoading    the coordinator's state is being read: try again
│   ├── CoordinatorNotAvailable  there is no coordinator yet, or it could not write: try again
│   └── NotCoordinator        another broker, or another partition, is responsible
├── GroupError
│   ├── InvalidGroupId        empty where a group needs a name
│   ├── GroupNotFound         nobody knows this group
│   ├── GroupNotEmpty         it has members, and this needs one without
│   ├── GroupFull             group.max.size members are in it already
│   ├── UnknownMember         not a member (any more): join anew
│   ├── FencedInstance        another member has taken this static member's place
│   ├── MemberIdRequired      join again with the id that comes with this refusal
│   ├── IllegalGeneration     the group is at another generation
│   ├── RebalanceInProgress   the group is forming anew: join again
│   ├── InconsistentProtocol  no assignment protocol that everybody in the group speaks
│   ├── FencedMemberEpoch     the member is at another epoch: give up everything and join anew
│   ├── StaleMemberEpoch      the member is at another epoch: heartbeat, and ask again
│   ├── UnreleasedInstance    a static member with this instance id is still there
│   ├── UnsupportedAssignor   no assignor of this name
│   ├── InvalidRegularExpression  a topic pattern that cannot be understood
│   ├── InvalidSessionTimeout outside of group.min/max.session.timeout.ms
│   ├── SubscribedToTopic     a member of the group reads this topic
│   ├── OffsetMetadataTooLarge  longer than offset.metadata.max.bytes
│   └── UnstableOffset        an open transaction may still change this offset
├── QueueError
│   ├── UnknownQueue          there is no queue of this name
│   ├── QueueExists           there is one, with other settings
│   ├── QueueDeletedRecently  less than a minute ago: wait
│   ├── InvalidReceipt        no receipt of this queue
│   ├── NotInFlight           the message is not received now, or by somebody else since
│   ├── LeaseTooLong          longer in flight than a message may be
│   ├── TooManyInFlight       queue.max.in.flight messages are received and not deleted
│   ├── PurgeInProgress       less than a minute ago
│   ├── QueueUnavailable      loading, or nobody leads it: try again
│   ├── StaleQueueLeader      another broker has begun to lead the queue
│   ├── InvalidMessage        no message that this queue takes
│   ├── UnknownMove           no task that moves messages has this name
│   └── InvalidRecordState    a member of a share group acknowledges what does not belong to it
├── PeerUnavailable           another broker cannot be reached, or did not answer: try again
└── StoreConflict             a compare-and-set lost against another writer
"""


class HeadraceError(Exception):
    """Base of everything that Headrace raises on purpose. `str(error)` is a sentence for a person."""


class SettingsError(HeadraceError): ...


class StartupError(HeadraceError): ...


class MissingExtra(HeadraceError): ...


class ProtocolError(HeadraceError): ...


class RecordError(HeadraceError): ...


class CorruptBatch(RecordError): ...


class InvalidRecord(RecordError):
    """`record_indexes` are the positions in the batch of the records at fault, where single ones are known."""

    def __init__(self, message: str, record_indexes: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.record_indexes = record_indexes


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


class InvalidSessionTimeout(GroupError): ...


class SubscribedToTopic(GroupError): ...


class OffsetMetadataTooLarge(GroupError): ...


class UnstableOffset(GroupError): ...


class PeerUnavailable(HeadraceError):
    may_have_arrived = False
    """Whether what was asked of the other broker is perhaps done, or will be at any time from now on."""


class NoBrokerReady(HeadraceError): ...


class ElectionNotNeeded(HeadraceError): ...


class PreferredLeaderNotAvailable(HeadraceError): ...


class NoEligibleLeader(HeadraceError): ...


class NoReassignment(HeadraceError): ...


class FeatureUpdateRefused(HeadraceError): ...


class InvalidFeatureLevel(HeadraceError): ...


class StoreConflict(HeadraceError): ...


class QueueError(HeadraceError): ...


class UnknownQueue(QueueError): ...


class QueueExists(QueueError):
    """With other settings than those asked for."""


class QueueDeletedRecently(QueueError): ...


class InvalidReceipt(QueueError): ...


class NotInFlight(QueueError): ...


class LeaseTooLong(QueueError):
    """A message may be in flight for so long from its receive, however often that is extended."""


class TooManyInFlight(QueueError): ...


class PurgeInProgress(QueueError): ...


class QueueUnavailable(QueueError):
    """Nobody can serve the queue now: it is loading, or has no leader. To be tried again."""


class StaleQueueLeader(QueueError):
    """Another broker has begun to lead the queue: nothing that this one decides counts any more."""


class InvalidMessage(QueueError): ...


class UnknownMove(QueueError): ...


class InvalidRecordState(QueueError): ...
