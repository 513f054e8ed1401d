"""A request that was refused for lack of a permission."""

from dataclasses import dataclass

from headrace.model.acls import AclOperation, Resource
from headrace.security.subject import Subject


@dataclass(frozen=True, slots=True)
class Denial:
    """A request that was refused, for the audit log."""

    subject: Subject
    client_id: str
    action: str
    """The API or action, as its protocol names it: Produce, SendMessage."""
    operation: AclOperation
    resource: Resource
    reason: str
