"""The audit log of the registry: each request that changes something, with its outcome and without its schema."""

from collections.abc import Awaitable, Callable

import msgspec

from headrace.model.acls import AclOperation
from headrace.schemas.operations.all_operations import FoundOperation
from headrace.schemas.requests import RegistryReply, RegistryRequest
from headrace.security.audit.event import AuditClass, clip
from headrace.security.audit.log import AuditLog
from headrace.security.subject import Subject


class _RefusedBody(msgspec.Struct):
    error_code: int = 0


class RegistryAudit:
    def __init__(self, audit: AuditLog) -> None:
        self._audit = audit

    async def recorded(
        self,
        found: FoundOperation,
        request: RegistryRequest,
        subject: Subject,
        work: Callable[[], Awaitable[RegistryReply]],
    ) -> RegistryReply:
        """Carry out a request, and record it if it changes something."""
        needs = found.operation.needs
        if needs is None or needs.operation is AclOperation.DESCRIBE:
            return await work()
        if not self._audit.wants(AuditClass.ADMIN, subject.principal):
            return await work()
        await self._audit.room()
        reply = await work()
        code = ""
        if reply.status >= 400:
            code = str(msgspec.json.decode(reply.body, type=_RefusedBody).error_code)
        name = found.names.get("subject", "")
        self._audit.changed(
            subject,
            "",
            f"{request.method} /{'/'.join(found.operation.path)}",
            resource_type="SUBJECT" if name else "CLUSTER",
            resource_name=clip(name) if name else "kafka-cluster",
            operation=needs.operation.name,
            error=code,
        )
        return reply
