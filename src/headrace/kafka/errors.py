"""The mapping of domain errors to Kafka's error codes: one table, looked up along the error class's ancestors.

A code is chosen by the client's reaction: it retries a retriable one by itself (a full disk, a log that is being
closed or deleted), and raises any other in the application.
"""

from collections.abc import Mapping

from kio.schema.errors import ErrorCode

from headrace.cluster.store import StoreRefused, StoreUnavailable
from headrace.kafka.fetch_sessions import InvalidSessionEpoch, SessionNotFound, SessionTopicIdMismatch
from headrace.kafka.share_sessions import InvalidShareSessionEpoch, ShareSessionLimit, ShareSessionNotFound
from headrace.model import errors

_CODES: Mapping[type[BaseException], ErrorCode] = {
    errors.SettingsError: ErrorCode.invalid_config,
    errors.ProtocolError: ErrorCode.invalid_request,
    # Records
    errors.CorruptBatch: ErrorCode.corrupt_message,
    errors.InvalidRecord: ErrorCode.invalid_record,
    errors.InvalidTimestamp: ErrorCode.invalid_timestamp,
    errors.UnsupportedCodec: ErrorCode.unsupported_compression_type,
    errors.RecordTooLarge: ErrorCode.message_too_large,
    # Producers
    errors.OutOfOrderSequence: ErrorCode.out_of_order_sequence_number,
    errors.DuplicateSequence: ErrorCode.duplicate_sequence_number,
    errors.UnknownProducer: ErrorCode.unknown_producer_id,
    errors.FencedProducer: ErrorCode.invalid_producer_epoch,
    errors.FencedCoordinator: ErrorCode.transaction_coordinator_fenced,
    # Transactions
    errors.InvalidTransaction: ErrorCode.invalid_txn_state,
    errors.TransactionAbortable: ErrorCode.transaction_abortable,
    errors.ConcurrentTransactions: ErrorCode.concurrent_transactions,
    errors.InvalidProducerMapping: ErrorCode.invalid_producer_id_mapping,
    errors.SupersededProducer: ErrorCode.producer_fenced,
    errors.TransactionalIdNotFound: ErrorCode.transactional_id_not_found,
    errors.InvalidTransactionTimeout: ErrorCode.invalid_transaction_timeout,
    errors.TwoPhaseCommitRefused: ErrorCode.transactional_id_authorization_failed,
    # Producing
    errors.InvalidRequiredAcks: ErrorCode.invalid_required_acks,
    errors.NotEnoughReplicas: ErrorCode.not_enough_replicas,
    errors.NotEnoughReplicasAfterAppend: ErrorCode.not_enough_replicas_after_append,
    # To a producer: nothing was appended, try again.
    errors.SchemasUnavailable: ErrorCode.not_enough_replicas,
    errors.BacklogBlocked: ErrorCode.not_enough_replicas,
    # Logs
    errors.OffsetOutOfRange: ErrorCode.offset_out_of_range,
    errors.LogClosed: ErrorCode.not_leader_or_follower,
    errors.DiskFull: ErrorCode.kafka_storage_error,
    errors.StorageFailed: ErrorCode.kafka_storage_error,
    errors.EncryptionError: ErrorCode.kafka_storage_error,
    errors.TopicShredded: ErrorCode.policy_violation,
    errors.NotAuthentic: ErrorCode.corrupt_message,
    errors.FencedLeaderEpoch: ErrorCode.fenced_leader_epoch,
    errors.UnknownLeaderEpoch: ErrorCode.unknown_leader_epoch,
    errors.NotLeader: ErrorCode.not_leader_or_follower,
    errors.OffsetNotAvailable: ErrorCode.offset_not_available,
    errors.StaleBrokerEpoch: ErrorCode.stale_broker_epoch,
    # Topics
    errors.UnknownTopic: ErrorCode.unknown_topic_or_partition,
    errors.UnknownTopicId: ErrorCode.unknown_topic_id,
    errors.UnknownPartition: ErrorCode.unknown_topic_or_partition,
    errors.TopicExists: ErrorCode.topic_already_exists,
    errors.InvalidTopicName: ErrorCode.invalid_topic_exception,
    errors.InvalidPartitions: ErrorCode.invalid_partitions,
    errors.InvalidReplicationFactor: ErrorCode.invalid_replication_factor,
    errors.InvalidReplicaAssignment: ErrorCode.invalid_replica_assignment,
    errors.InvalidSettings: ErrorCode.invalid_config,
    errors.PolicyViolation: ErrorCode.policy_violation,
    # To a producer, POLICY_VIOLATION says that there is no room now; this is final.
    errors.MirrorIsReadOnly: ErrorCode.invalid_request,
    # The cluster
    errors.NoBrokerReady: ErrorCode.leader_not_available,
    errors.ElectionNotNeeded: ErrorCode.election_not_needed,
    errors.PreferredLeaderNotAvailable: ErrorCode.preferred_leader_not_available,
    errors.NoEligibleLeader: ErrorCode.eligible_leaders_not_available,
    errors.NoReassignment: ErrorCode.no_reassignment_in_progress,
    errors.FeatureUpdateRefused: ErrorCode.feature_update_failed,
    errors.InvalidFeatureLevel: ErrorCode.invalid_update_version,
    errors.CoordinatorLoading: ErrorCode.coordinator_load_in_progress,
    errors.CoordinatorNotAvailable: ErrorCode.coordinator_not_available,
    errors.NotCoordinator: ErrorCode.not_coordinator,
    errors.PeerUnavailable: ErrorCode.network_exception,
    # Groups
    errors.InvalidGroupId: ErrorCode.invalid_group_id,
    errors.GroupNotFound: ErrorCode.group_id_not_found,
    errors.GroupNotEmpty: ErrorCode.non_empty_group,
    errors.GroupFull: ErrorCode.group_max_size_reached,
    errors.UnknownMember: ErrorCode.unknown_member_id,
    errors.FencedInstance: ErrorCode.fenced_instance_id,
    errors.MemberIdRequired: ErrorCode.member_id_required,
    errors.IllegalGeneration: ErrorCode.illegal_generation,
    errors.RebalanceInProgress: ErrorCode.rebalance_in_progress,
    errors.InconsistentProtocol: ErrorCode.inconsistent_group_protocol,
    errors.FencedMemberEpoch: ErrorCode.fenced_member_epoch,
    errors.StaleMemberEpoch: ErrorCode.stale_member_epoch,
    errors.UnreleasedInstance: ErrorCode.unreleased_instance_id,
    errors.UnsupportedAssignor: ErrorCode.unsupported_assignor,
    errors.InvalidRegularExpression: ErrorCode.invalid_regular_expression,
    errors.InvalidTopology: ErrorCode.streams_invalid_topology,
    errors.InvalidTopologyEpoch: ErrorCode.streams_invalid_topology_epoch,
    errors.InvalidSessionTimeout: ErrorCode.invalid_session_timeout,
    errors.SubscribedToTopic: ErrorCode.group_subscribed_to_topic,
    errors.OffsetMetadataTooLarge: ErrorCode.offset_metadata_too_large,
    errors.UnstableOffset: ErrorCode.unstable_offset_commit,
    # Metrics of clients
    errors.TelemetryThrottled: ErrorCode.throttling_quota_exceeded,
    errors.UnknownSubscription: ErrorCode.unknown_subscription_id,
    errors.TelemetryTooLarge: ErrorCode.telemetry_too_large,
    errors.InvalidMetrics: ErrorCode.invalid_record,
    # Queues
    errors.UnknownQueue: ErrorCode.unknown_topic_or_partition,
    errors.QueueExists: ErrorCode.topic_already_exists,
    errors.QueueDeletedRecently: ErrorCode.policy_violation,
    errors.InvalidReceipt: ErrorCode.invalid_request,
    errors.NotInFlight: ErrorCode.invalid_record_state,
    errors.LeaseTooLong: ErrorCode.invalid_request,
    errors.TooManyInFlight: ErrorCode.policy_violation,
    errors.PurgeInProgress: ErrorCode.policy_violation,
    errors.QueueUnavailable: ErrorCode.coordinator_not_available,
    errors.StaleQueueLeader: ErrorCode.fenced_state_epoch,
    errors.InvalidMessage: ErrorCode.invalid_record,
    errors.UnknownMove: ErrorCode.resource_not_found,
    errors.InvalidRecordState: ErrorCode.invalid_record_state,
    # Pipelines
    errors.UnknownPipeline: ErrorCode.resource_not_found,
    errors.PipelineNotListening: ErrorCode.invalid_request,
    errors.PipelineBusy: ErrorCode.invalid_request,
    errors.TooManyPipelines: ErrorCode.policy_violation,
    # Links
    errors.UnknownLink: ErrorCode.resource_not_found,
    errors.LinkExists: ErrorCode.duplicate_resource,
    errors.InvalidLink: ErrorCode.invalid_request,
    errors.SourceUnavailable: ErrorCode.network_exception,
    errors.NotMirrored: ErrorCode.invalid_request,
    errors.MirrorNotReady: ErrorCode.request_timed_out,
    # Access control
    errors.UnknownUser: ErrorCode.resource_not_found,
    errors.UnknownAccessKey: ErrorCode.resource_not_found,
    errors.AccessKeyExists: ErrorCode.duplicate_resource,
    errors.TopicNotAuthorized: ErrorCode.topic_authorization_failed,
    errors.GroupNotAuthorized: ErrorCode.group_authorization_failed,
    errors.ClusterNotAuthorized: ErrorCode.cluster_authorization_failed,
    errors.TransactionalIdNotAuthorized: ErrorCode.transactional_id_authorization_failed,
    errors.UnsupportedFeature: ErrorCode.unsupported_version,
    errors.InvalidQuota: ErrorCode.invalid_request,
    errors.QuotaExceeded: ErrorCode.throttling_quota_exceeded,
    # The metadata store
    errors.StoreConflict: ErrorCode.not_controller,
    StoreUnavailable: ErrorCode.request_timed_out,
    StoreRefused: ErrorCode.policy_violation,
    # Fetch sessions
    SessionNotFound: ErrorCode.fetch_session_id_not_found,
    InvalidSessionEpoch: ErrorCode.invalid_fetch_session_epoch,
    SessionTopicIdMismatch: ErrorCode.fetch_session_topic_id_error,
    # Share sessions
    ShareSessionNotFound: ErrorCode.share_session_not_found,
    InvalidShareSessionEpoch: ErrorCode.invalid_share_session_epoch,
    ShareSessionLimit: ErrorCode.share_session_limit_reached,
}


def error_code(error: BaseException) -> ErrorCode:
    """Return Kafka's code for an error; UNKNOWN_SERVER_ERROR for one that is not in the table."""
    for ancestor in type(error).__mro__:
        code = _CODES.get(ancestor)
        if code is not None:
            return code
    return ErrorCode.unknown_server_error


def error_message(error: BaseException) -> str:
    """Return the message for the client: that of a domain error, and no details of any other."""
    if isinstance(error, errors.HeadraceError):
        return str(error)
    return "the broker met an unexpected error; its log says which"
