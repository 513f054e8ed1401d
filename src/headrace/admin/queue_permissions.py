"""Whether a person may do something with a queue: the port to the rules of SQS, where ACLs and policies decide."""

from typing import Protocol

from headrace.model.acls import AclOperation
from headrace.queues.api import QueueInfo
from headrace.security.subject import Subject


class QueuePermissions(Protocol):
    def check(
        self, subject: Subject, operation: AclOperation, queue: str, actions: tuple[str, ...], *, is_named: bool = True
    ) -> None:
        """Raise the refusal unless the ACLs allow the operation or the queue's policy all actions, and neither denies.

        `is_named` is False if the error must not name the queue, because the request does not.
        """

    def sees(self, subject: Subject, info: QueueInfo) -> bool:
        """Whether a list may show the queue."""
