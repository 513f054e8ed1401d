"""The errors of the HTTP API: a status, a code for programs, and a sentence for people."""

from collections.abc import Mapping
from types import MappingProxyType

from kio.schema.errors import ErrorCode

from headrace.cluster.store import StoreUnavailable
from headrace.model import errors
from headrace.model.errors import HeadraceError


class AdminError(Exception):
    """A request that is refused."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = headers


_STATUS: dict[type[HeadraceError], tuple[int, str]] = {
    errors.UnknownUser: (404, "unknown_user"),
    errors.UnknownAccessKey: (404, "unknown_access_key"),
    errors.AccessKeyExists: (409, "access_key_exists"),
    errors.InvalidSettings: (409, "invalid_settings"),
    errors.SettingsError: (409, "invalid_settings"),
    errors.StartupError: (400, "invalid_request"),
    errors.UnsupportedFeature: (409, "unsupported_feature"),
    errors.FeatureUpdateRefused: (409, "unsupported_feature"),
    errors.UnknownQueue: (404, "unknown_queue"),
    errors.UnknownTopic: (404, "unknown_topic"),
    errors.UnknownMove: (404, "unknown_redrive"),
    errors.QueueExists: (409, "queue_exists"),
    errors.QueueDeletedRecently: (409, "queue_deleted_recently"),
    errors.PurgeInProgress: (409, "purge_in_progress"),
    errors.InvalidMessage: (400, "invalid_message"),
    errors.InvalidTopicName: (400, "invalid_name"),
    errors.TopicError: (409, "invalid_request"),
    errors.QueueUnavailable: (503, "unavailable"),
    errors.StaleQueueLeader: (503, "unavailable"),
    errors.QueueError: (409, "invalid_request"),
    errors.UnknownPipeline: (404, "unknown_pipeline"),
    errors.PipelineNotListening: (409, "not_reporting"),
    errors.PipelineBusy: (409, "busy"),
    errors.TooManyPipelines: (409, "too_many_pipelines"),
    errors.UnknownLink: (404, "unknown_link"),
    errors.LinkExists: (409, "link_exists"),
    errors.InvalidLink: (409, "invalid_request"),
    errors.SourceUnavailable: (503, "source_unavailable"),
    errors.NotMirrored: (409, "not_mirrored"),
    errors.MirrorNotReady: (503, "not_ready"),
    errors.NotAuthorized: (403, "forbidden"),
    errors.NotLeader: (503, "unavailable"),
    errors.CoordinatorError: (503, "unavailable"),
    errors.PeerUnavailable: (503, "broker_unavailable"),
    errors.PolicyViolation: (409, "policy_violation"),
    errors.BacklogBlocked: (503, "backlog_full"),
    errors.DiskFull: (503, "disk_full"),
    errors.NotEnoughReplicas: (503, "unavailable"),
    errors.NotEnoughReplicasAfterAppend: (503, "unavailable"),
    errors.NoBrokerReady: (503, "unavailable"),
    errors.StoreConflict: (503, "unavailable"),
    errors.RecordError: (422, "unreadable_records"),
    StoreUnavailable: (503, "store_unavailable"),
}


def admin_error(error: HeadraceError) -> AdminError:
    """The refusal for an error of the broker; 500 for one that a request should not meet."""
    for ancestor in type(error).__mro__:
        if ancestor in _STATUS:
            status, code = _STATUS[ancestor]
            return AdminError(status, code, str(error))
    return AdminError(500, "internal_error", "the broker could not do this; its log says why")


_NOT_FOUND = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.group_id_not_found,
        ErrorCode.transactional_id_not_found,
        ErrorCode.resource_not_found,
        ErrorCode.broker_id_not_registered,
    }
)
_FORBIDDEN = frozenset(
    {
        ErrorCode.topic_authorization_failed,
        ErrorCode.group_authorization_failed,
        ErrorCode.cluster_authorization_failed,
        ErrorCode.transactional_id_authorization_failed,
    }
)
_CONFLICT = frozenset(
    {
        ErrorCode.topic_already_exists,
        ErrorCode.non_empty_group,
        ErrorCode.unknown_member_id,
        ErrorCode.policy_violation,
        ErrorCode.invalid_txn_state,
        ErrorCode.group_subscribed_to_topic,
        ErrorCode.no_reassignment_in_progress,
        ErrorCode.duplicate_resource,
        ErrorCode.unsupported_version,
    }
)
_SENTENCES = {
    ErrorCode.unknown_topic_or_partition: "there is no such topic or partition",
    ErrorCode.group_id_not_found: "there is no such group",
    ErrorCode.non_empty_group: "the group has members: stop them first",
    ErrorCode.unknown_member_id: "the group has members: stop them first",
    ErrorCode.group_subscribed_to_topic: "the group has members that consume the topic: stop them first",
    ErrorCode.transactional_id_not_found: "there is no such transactional id",
    ErrorCode.not_leader_or_follower: "the partition has no leader at the moment: try again",
    ErrorCode.offset_out_of_range: "the partition does not have that offset",
    ErrorCode.topic_already_exists: "there is a topic of that name",
}


def kafka_error(code: ErrorCode, message: str | None = None) -> AdminError:
    """The refusal for an error of one of Kafka's APIs."""
    sentence = message or _SENTENCES.get(code) or f"the broker answers {code.name.upper()}"
    if code in _FORBIDDEN:
        return forbidden(message or f"you lack a permission that this needs ({code.name.upper()})")
    if code in _NOT_FOUND:
        return AdminError(404, code.name, sentence)
    if code in _CONFLICT:
        return AdminError(409, code.name, sentence)
    if code is ErrorCode.throttling_quota_exceeded:
        return AdminError(429, code.name, sentence, {"retry-after": "1"})
    if code.retriable:
        return AdminError(503, code.name, sentence, {"retry-after": "1"})
    return AdminError(400, code.name, sentence)


def check_kafka(code: ErrorCode, message: str | None = None) -> None:
    """Raise the refusal for an error code, unless it means success."""
    if code is not ErrorCode.none:
        raise kafka_error(code, message)


def unauthorized(message: str) -> AdminError:
    return AdminError(401, "unauthorized", message, {"www-authenticate": 'Basic realm="headrace", charset="UTF-8"'})


def forbidden(message: str) -> AdminError:
    return AdminError(403, "forbidden", message)
