"""The audit log of what links change here: no client has asked for it by a request, so a link is its own principal."""

from collections.abc import Iterable
from typing import NamedTuple

from headrace.model.links import link_principal
from headrace.security.audit.event import AuditClass
from headrace.security.audit.log import AuditLog
from headrace.security.subject import Subject

_MAX_EVENTS = 1_000
"""Of one round; how many more there are is one more event."""


class LinkChange(NamedTuple):
    """A change that a link has made. It names no secret."""

    resource_type: str
    resource_name: str
    operation: str
    change: str
    """What was done, in words."""


class LinkAudit:
    def __init__(self, audit: AuditLog) -> None:
        self._audit = audit

    async def room(self) -> None:
        """Wait before changes while the audit log is full, if it is set to be complete."""
        await self._audit.room()

    def record(self, link: str, action: str, changes: Iterable[LinkChange]) -> None:
        principal = link_principal(link)
        made = list(changes)
        if not made or not self._audit.wants(AuditClass.ADMIN, principal):
            return
        if (left := len(made) - _MAX_EVENTS) > 0:
            last = made[-1]
            made = [*made[:_MAX_EVENTS], last._replace(resource_name="", change=f"{left} more changes")]
        for each in made:
            self._audit.changed(
                Subject(principal),
                "",
                action,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
                operation=each.operation,
                details={"link": link, "change": each.change},
            )
