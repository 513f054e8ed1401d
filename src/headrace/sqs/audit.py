"""The audit log of requests over HTTP: administrative actions with their outcome, and sends and receives if asked for.

Denials are recorded where permissions are checked (`access.py`). Of signatures only the wrong ones are: each request
has one.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.model.acls import AclOperation
from headrace.model.errors import HeadraceError
from headrace.security.audit.event import ANY, AuditClass, clip
from headrace.security.audit.log import AuditLog
from headrace.security.authenticator import Login
from headrace.sqs import errors
from headrace.sqs.access import Caller
from headrace.sqs.auth import MECHANISM

if TYPE_CHECKING:
    import msgspec

    Work = Callable[[], Awaitable[msgspec.Struct | None]]


class _Recorded(NamedTuple):
    kind: AuditClass
    operation: AclOperation


def _change(operation: AclOperation) -> _Recorded:
    return _Recorded(AuditClass.ADMIN, operation)


_SEND = _Recorded(AuditClass.PRODUCE, AclOperation.WRITE)
_RECEIVE = _Recorded(AuditClass.CONSUME, AclOperation.READ)
RECORDED: Mapping[str, _Recorded] = {
    "CreateQueue": _change(AclOperation.CREATE),
    "DeleteQueue": _change(AclOperation.DELETE),
    "PurgeQueue": _change(AclOperation.DELETE),
    "SetQueueAttributes": _change(AclOperation.ALTER_CONFIGS),
    "AddPermission": _change(AclOperation.ALTER),
    "RemovePermission": _change(AclOperation.ALTER),
    "TagQueue": _change(AclOperation.ALTER),
    "UntagQueue": _change(AclOperation.ALTER),
    "StartMessageMoveTask": _change(AclOperation.ALTER),
    "CancelMessageMoveTask": _change(AclOperation.ALTER),
    "SendMessage": _SEND,
    "SendMessageBatch": _SEND,
    "ReceiveMessage": _RECEIVE,
    # Calls of the SDK that have other names than the actions.
    "AlterQueue": _change(AclOperation.ALTER_CONFIGS),
    "Purge": _change(AclOperation.DELETE),
    "StartMove": _change(AclOperation.ALTER),
    "CancelMove": _change(AclOperation.ALTER),
    "Send": _SEND,
    "Receive": _RECEIVE,
}


class SqsAudit:
    def __init__(self, log: AuditLog) -> None:
        self._log = log

    def records(self, action: str) -> bool:
        """Whether an action may be recorded by the rules in force."""
        classes = self._log.rules.classes
        return bool(classes) and (recorded := RECORDED.get(action)) is not None and recorded.kind in classes

    def watched(
        self, action: str, request: Any, caller: Callable[[], Caller], work: "Work"
    ) -> "Awaitable[msgspec.Struct | None]":
        """Begin the work of an action, which records it where the audit log does."""
        recorded = RECORDED.get(action)
        if recorded is None or recorded.kind not in self._log.rules.classes:
            return work()
        if recorded.kind is not AuditClass.ADMIN:
            self._used(recorded.kind, action, request, caller())
            return work()
        sender = caller()
        if not self._log.wants(AuditClass.ADMIN, sender.subject.principal):
            return work()
        return self._changing(action, recorded.operation, request, sender, work)

    async def _changing(
        self,
        action: str,
        operation: AclOperation,
        request: Any,
        sender: Caller,
        work: "Work",
    ) -> "msgspec.Struct | None":
        await self._log.room()
        code = ""
        try:
            return await work()
        except errors.SqsError as error:
            code = error.code
            raise
        except HeadraceError as error:
            code = errors.sqs_error(error, queue_of(request)).code
            raise
        except Exception:
            code = errors.internal_failure().code
            raise
        finally:
            if code != errors.ACCESS_DENIED:
                self._record(action, operation, request, sender, code)

    def _record(self, action: str, operation: AclOperation, request: Any, sender: Caller, code: str) -> None:
        self._log.changed(
            sender.subject,
            sender.user_agent,
            action,
            resource_type="QUEUE",
            resource_name=queue_of(request),
            operation=operation.name,
            error=code,
            details=_details(request),
        )

    def refused(self, sender: Caller, key_id: str, error: errors.SqsError) -> None:
        """Record a request whose signature is missing or wrong."""
        reason = f"{error.code}, by the access key {clip(key_id)}" if key_id else error.code
        subject = sender.subject
        self._log.logged_in(
            Login(
                "",
                subject.host,
                MECHANISM,
                subject.listener,
                has_succeeded=False,
                reason=reason,
                client_id=sender.user_agent,
            )
        )

    def _used(self, kind: AuditClass, action: str, request: Any, sender: Caller) -> None:
        if self._log.is_sampled():
            self._log.used(kind, sender.subject, sender.user_agent, action, queue_of(request))


def queue_of(request: Any) -> str:
    """The name of the queue that a request is about."""
    for name in ("QueueUrl", "QueueName", "queue"):
        if text := getattr(request, name, None):
            return str(text).rpartition("/")[2]
    for name in ("SourceArn", "source"):
        if text := getattr(request, name, None):
            return str(text).rpartition(":")[2]
    return ANY


def _details(request: Any) -> dict[str, Any]:
    """The names of what is changed. Values may be anything, and are left out."""
    details: dict[str, Any] = {}
    for shown, names in (("attributes", ("Attributes", "settings")), ("tags", ("Tags", "tags", "TagKeys"))):
        for name in names:
            if given := getattr(request, name, None):
                details[shown] = sorted(clip(str(each)) for each in given)
    for shown, name in (("label", "Label"), ("accounts", "AWSAccountIds"), ("actions", "Actions")):
        if given := getattr(request, name, None):
            details[shown] = clip(given) if isinstance(given, str) else [clip(str(each)) for each in given][:20]
    for name in ("DestinationArn", "destination"):
        if given := getattr(request, name, None):
            details["destination"] = clip(str(given).rpartition(":")[2])
    return details
