"""Errors of the SQS API, and how errors of Headrace map to them.

`kind` is what the JSON protocol calls an error, `code` what the query protocol does; clients of either know both.
"""

from headrace.cluster.store import StoreUnavailable
from headrace.model.errors import (
    BacklogBlocked,
    DiskFull,
    EncryptionError,
    HeadraceError,
    InvalidMessage,
    InvalidSettings,
    InvalidTopicName,
    NoBrokerReady,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    PeerUnavailable,
    PolicyViolation,
    PurgeInProgress,
    QueueDeletedRecently,
    QueueElsewhere,
    QueueError,
    QueueExists,
    QueueUnavailable,
    RecordTooLarge,
    SettingsError,
    StaleQueueLeader,
    StoreConflict,
    TooManyInFlight,
    UnknownMove,
    UnknownQueue,
)

_SQS = "com.amazonaws.sqs#"
_CORAL = "com.amazon.coral.service#"
ACCESS_DENIED = "AccessDenied"
_PREFIX = "AWS.SimpleQueueService."
MISSING_PARAMETER = "MissingParameter"


class SqsError(Exception):
    """An error answer. `str(error)` is its message."""

    def __init__(self, kind: str, code: str, message: str, status: int = 400, *, own_words: str = "") -> None:
        super().__init__(message)
        self.own_words = own_words or message
        """The message for clients that are not AWS's."""
        self.kind = kind
        self.code = code
        self.status = status

    @property
    def is_senders_fault(self) -> bool:
        return self.status < 500


def queue_does_not_exist(error: UnknownQueue | None = None) -> SqsError:
    """With the words of `error` if the queue's home is another cluster."""
    words = f": {error}" if isinstance(error, QueueElsewhere) else "."
    text = f"The specified queue does not exist{words}"
    return SqsError(f"{_SQS}QueueDoesNotExist", f"{_PREFIX}NonExistentQueue", text)


def queue_name_exists(message: str) -> SqsError:
    return SqsError(f"{_SQS}QueueNameExists", "QueueAlreadyExists", message)


def queue_deleted_recently(wait_s: int) -> SqsError:
    return SqsError(
        f"{_SQS}QueueDeletedRecently",
        f"{_PREFIX}QueueDeletedRecently",
        f"You must wait {wait_s} seconds after deleting a queue before you can create another with the same name.",
    )


def purge_in_progress(queue: str) -> SqsError:
    return SqsError(
        f"{_SQS}PurgeQueueInProgress",
        f"{_PREFIX}PurgeQueueInProgress",
        f"Only one PurgeQueue operation on {queue} is allowed every 60 seconds.",
        403,
    )


def receipt_is_invalid(receipt: str) -> SqsError:
    message = f'The input receipt handle "{receipt}" is not a valid receipt handle.'
    return SqsError(f"{_SQS}ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid", message)


def receipt_has_expired(receipt: str) -> SqsError:
    return invalid_value(receipt, "ReceiptHandle", "The receipt handle has expired.")


def visibility_cannot_change(receipt: str) -> SqsError:
    """AWS documents MessageNotInflight for this, and answers otherwise."""
    return invalid_value(
        receipt, "ReceiptHandle", "Message does not exist or is not available for visibility timeout change."
    )


def visibility_too_long(visibility_s: int) -> SqsError:
    return invalid_value(
        visibility_s,
        "VisibilityTimeout",
        "Total VisibilityTimeout for the message is beyond the limit [43200 seconds]",
    )


def over_limit(message: str) -> SqsError:
    return SqsError(f"{_SQS}OverLimit", "OverLimit", message, 403)


def request_throttled(message: str) -> SqsError:
    """SQS clients retry it by themselves, with a growing delay."""
    return SqsError(f"{_SQS}RequestThrottled", "RequestThrottled", message)


def unsupported_operation(message: str) -> SqsError:
    return SqsError(f"{_SQS}UnsupportedOperation", f"{_PREFIX}UnsupportedOperation", message)


def resource_not_found(message: str) -> SqsError:
    return SqsError(f"{_SQS}ResourceNotFoundException", "ResourceNotFoundException", message, 404)


def invalid_attribute_name(name: str) -> SqsError:
    return SqsError(f"{_SQS}InvalidAttributeName", "InvalidAttributeName", f"Unknown Attribute {name}.")


def encryption_twice() -> SqsError:
    return SqsError(
        f"{_SQS}InvalidAttributeName",
        "InvalidAttributeName",
        "You can use one type of server-side encryption (SSE) at one time. You can either enable KMS SSE or SQS SSE.",
    )


def attribute_of_fifo_queues(name: str) -> SqsError:
    return SqsError(
        f"{_SQS}InvalidAttributeName",
        "InvalidAttributeName",
        f"You can specify the {name} only when FifoQueue is set to true.",
    )


def invalid_attribute_value(name: str, reason: str = "") -> SqsError:
    message = f"Invalid value for the parameter {name}."
    if reason:
        message += f" Reason: {reason}"
    return SqsError(f"{_SQS}InvalidAttributeValue", "InvalidAttributeValue", message)


def invalid_message_contents(message: str) -> SqsError:
    return SqsError(f"{_SQS}InvalidMessageContents", "InvalidMessageContents", message)


def invalid_parameter(message: str) -> SqsError:
    return SqsError(f"{_CORAL}InvalidParameterValueException", "InvalidParameterValue", message)


def invalid_value(value: object, parameter: str, reason: str) -> SqsError:
    return invalid_parameter(f"Value {value} for parameter {parameter} is invalid. Reason: {reason}")


def missing_queue_name() -> SqsError:
    return invalid_parameter("Value for parameter QueueName is invalid. Reason: Must specify a queue name.")


def malformed_arn(parameter: str) -> SqsError:
    return invalid_parameter(
        f"You must use this format to specify the {parameter}: "
        "arn:<partition>:<service>:<region>:<account-id>:<resource-id>"
    )


def not_between(parameter: str, low: int, high: int) -> SqsError:
    """As the actions on message move tasks word it."""
    return invalid_parameter(
        f"Value for parameter {parameter} is invalid. Reason: You must enter a number that's between {low} and {high}."
    )


def missing_parameter(name: str) -> SqsError:
    return SqsError(
        f"{_CORAL}MissingRequiredParameterException",
        MISSING_PARAMETER,
        f"The request must contain the parameter {name}.",
    )


def batch_error(kind: str, message: str) -> SqsError:
    """An error that only batches have."""
    return SqsError(_SQS + kind, _PREFIX + kind, message)


def unknown_operation(name: str) -> SqsError:
    return SqsError(
        f"{_CORAL}UnknownOperationException", "InvalidAction", f"The action {name} is not valid for this endpoint."
    )


def missing_action() -> SqsError:
    return SqsError(
        f"{_CORAL}UnknownOperationException", "MissingAction", "The request must contain the parameter Action.", 404
    )


def key_not_found(message: str) -> SqsError:
    """A key that encrypts the queue is missing here, or was destroyed."""
    return SqsError(f"{_SQS}KmsNotFound", "KMS.NotFoundException", message)


def malformed(message: str) -> SqsError:
    return SqsError(f"{_CORAL}SerializationException", "MalformedInput", message)


def too_large(limit_bytes: int) -> SqsError:
    return SqsError(
        f"{_CORAL}RequestEntityTooLargeException",
        "RequestEntityTooLarge",
        f"The request is longer than {limit_bytes} bytes.",
        413,
    )


def access_denied(message: str, own_words: str) -> SqsError:
    return SqsError(f"{_CORAL}AccessDeniedException", ACCESS_DENIED, message, 403, own_words=own_words)


def missing_token() -> SqsError:
    return SqsError(
        f"{_CORAL}MissingAuthenticationTokenException",
        "MissingAuthenticationToken",
        "Request is missing Authentication Token",
        403,
        own_words="queues of this broker need an access key: make one with `headrace user key create`, and give it as "
        "access_key (HEADRACE_ACCESS_KEY=ID:SECRET)",
    )


def wrong_password() -> SqsError:
    return SqsError(
        f"{_CORAL}UnrecognizedClientException", "InvalidClientTokenId", "The user name or the password is wrong.", 403
    )


def password_without_tls() -> SqsError:
    return SqsError(
        f"{_CORAL}UnrecognizedClientException", "InvalidClientTokenId", "Passwords are accepted over TLS only.", 403
    )


def too_many_logins() -> SqsError:
    return SqsError(
        f"{_CORAL}ServiceUnavailable", "ServiceUnavailable", "Too many clients log in at the same time.", 503
    )


def unknown_key() -> SqsError:
    return SqsError(
        f"{_CORAL}UnrecognizedClientException",
        "InvalidClientTokenId",
        "The security token included in the request is invalid.",
        403,
    )


def incomplete_signature(message: str) -> SqsError:
    return SqsError(f"{_CORAL}IncompleteSignatureException", "IncompleteSignature", message)


def wrong_signature(message: str) -> SqsError:
    return SqsError(f"{_CORAL}InvalidSignatureException", "SignatureDoesNotMatch", message, 403)


def unavailable() -> SqsError:
    """A temporary error, which SQS clients retry by themselves."""
    return SqsError(
        f"{_CORAL}ServiceUnavailableException",
        "ServiceUnavailable",
        "The queue is not available for a moment. Try again.",
        503,
    )


def internal_failure() -> SqsError:
    return SqsError(
        f"{_CORAL}InternalFailure",
        "InternalFailure",
        "The request processing has failed because of an unknown error, exception or failure.",
        500,
    )


PASSING = (
    QueueUnavailable,
    StaleQueueLeader,
    NotLeader,
    PeerUnavailable,
    NoBrokerReady,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    StoreConflict,
    StoreUnavailable,
    DiskFull,
)
"""Temporary errors."""


def sqs_error(error: HeadraceError, queue: str) -> SqsError:
    """The SQS error for an error of Headrace, about this queue."""
    match error:
        case UnknownQueue():
            return queue_does_not_exist(error)
        case QueueExists():
            return queue_name_exists(str(error))
        case QueueDeletedRecently():
            return queue_deleted_recently(60)
        case TooManyInFlight():
            return over_limit("Too many messages in flight.")
        case PurgeInProgress():
            return purge_in_progress(queue)
        case UnknownMove():
            return resource_not_found("Task does not exist.")
        case InvalidMessage() | RecordTooLarge() | InvalidSettings() | SettingsError() | InvalidTopicName():
            return invalid_parameter(f"One or more parameters are invalid. Reason: {error}.")
        case EncryptionError():
            return key_not_found(str(error))
        case PolicyViolation():
            return over_limit(str(error))
        case BacklogBlocked():
            return request_throttled(str(error))
        case _ if isinstance(error, PASSING):
            return unavailable()
        case QueueError():
            return invalid_parameter(str(error))
        case _:
            return internal_failure()
