"""The rules of SQS for the HTTP API: implements `admin.queue_permissions.QueuePermissions`."""

from headrace.admin.errors import forbidden
from headrace.model.acls import AclOperation
from headrace.model.errors import UnknownQueue
from headrace.queues.api import QueueInfo
from headrace.queues.service import QueueService
from headrace.security.subject import Subject
from headrace.sqs.access import Caller, QueueAccess, QueueAccessRequest
from headrace.sqs.errors import SqsError

_HTTPS = "https"
_AGENT = "dashboard"


class SqsPermissions:
    def __init__(self, access: QueueAccess, queues: QueueService) -> None:
        self._access = access
        self._queues = queues

    def check(
        self, subject: Subject, operation: AclOperation, queue: str, actions: tuple[str, ...], *, is_named: bool = True
    ) -> None:
        try:
            info = self._queues.find(queue)
        except UnknownQueue:
            info = None
        try:
            self._access.check(
                _caller(subject), QueueAccessRequest(actions[0], operation, actions, queue, info, is_named)
            )
        except SqsError as error:
            raise forbidden(error.own_words) from None

    def sees(self, subject: Subject, info: QueueInfo) -> bool:
        return self._access.sees(_caller(subject), info)


def _caller(subject: Subject) -> Caller:
    return Caller(subject, subject.listener == _HTTPS, _AGENT)
