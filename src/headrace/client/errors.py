"""The exceptions of the SDK.

HeadraceError
└── ClientError
    ├── Unreachable           no broker answers
    ├── DeliveryFailed        a message was not acknowledged; it may or may not be stored
    ├── ConsumeFailed         reading cannot go on: no permission, a fatal error of the group
    ├── HandlerFailed         a handler failed for good and has no dead-letter topic; nothing was skipped
    ├── TopicFailed           a topic could not be created, altered or deleted
    │   └── NoSuchTopic
    ├── QueueFailed           a queue refused a request
    │   ├── NoSuchQueue
    │   └── LeaseLost         a message is not leased to us any more: its time was over, or it was purged
    └── TransactionFailed
        └── Fenced            another process with the same transactional id took over; this one must end

`Reject` and `Retry` go the other way: a handler or a worker raises them to decide what happens to a message.
"""

from headrace.model.errors import HeadraceError


class ClientError(HeadraceError):
    """Any failure of the SDK."""


class Unreachable(ClientError):
    """No broker answers at the address the client was given."""


class DeliveryFailed(ClientError):
    """Messages were not acknowledged: the broker refused them, or did not answer in time."""

    def __init__(self, text: str, *, code: str, count: int = 1) -> None:
        super().__init__(text)
        self.code = code
        """The name of the Kafka error, such as `MSG_SIZE_TOO_LARGE`."""
        self.count = count


class ConsumeFailed(ClientError):
    """Reading cannot go on."""


class HandlerFailed(ClientError):
    """A message could not be handled, and there is no dead-letter topic."""


class TransactionFailed(ClientError):
    """A transaction could not be committed, nor be tried again."""


class Fenced(TransactionFailed):
    """A newer process uses the same transactional id."""


class TopicFailed(ClientError):
    """The broker refused a request about a topic."""

    def __init__(self, text: str, *, code: str) -> None:
        super().__init__(text)
        self.code = code
        """The name of the Kafka error, such as `TOPIC_ALREADY_EXISTS`."""


class NoSuchTopic(TopicFailed):
    """There is no topic of this name."""


class QueueFailed(ClientError):
    """A queue refused a request."""

    def __init__(self, text: str, *, code: str) -> None:
        super().__init__(text)
        self.code = code
        """The name of the reason, such as `PurgeInProgress`."""


class NoSuchQueue(QueueFailed):
    """There is no queue of this name."""


class LeaseLost(QueueFailed):
    """A message is not leased to this receiver any more, so others may have it."""


class Reject(Exception):
    """Raised by a handler or a worker: this message can never be handled, so dead-letter it now instead of trying
    again."""


class Retry(Exception):
    """Raised by a worker of a queue: try this message again after `delay` seconds; without them, as the queue says."""

    def __init__(self, reason: str = "", *, delay: float | None = None) -> None:
        super().__init__(reason)
        self.delay = delay
