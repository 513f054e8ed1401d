"""A request that needs permissions, for the matrix in `test_permissions.py`.

Each API needs at least one case, and its cases together all permissions that its handler declares.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kio.schema.errors import ErrorCode

from headrace.kafka.permissions import Need
from headrace.model.acls import ResourceType

from .secured import TOPIC, Secured

Fields = dict[str, Any]
TOPIC_DENIED = ErrorCode.topic_authorization_failed
CLUSTER_DENIED = ErrorCode.cluster_authorization_failed


@dataclass(frozen=True)
class Case:
    """A request, and the permissions with which it succeeds."""

    key: int
    fields: Callable[[Secured, int], Fields]
    """Build the request of a version, as nested dicts."""
    needs: tuple[Need, ...]
    """All of these are needed."""
    name: str = ""
    or_else: tuple[tuple[Need, ...], ...] = ()
    """Other permissions that suffice in place of `needs`."""
    optional: tuple[Need, ...] = ()
    """Permissions that only decide how much the answer shows."""
    topic: str = TOPIC
    """The topic that permissions are given for."""
    codes: Mapping[Need, ErrorCode] = field(default_factory=dict)
    """The error for a missing permission, where it is not that of the resource type."""
    others: frozenset[ErrorCode] = frozenset()
    """Errors that the answer has for another reason."""
    is_denied: Callable[[Any, int], bool] | None = None
    """Whether the answer of a version shows nothing, where it has no error."""
    changes: bool = False
    """Whether the request changes something when it is allowed."""
    from_version: int = 0

    def __str__(self) -> str:
        return f"{self.key}{self.name and '-'}{self.name}"


ERRORS = {
    ResourceType.TOPIC: TOPIC_DENIED,
    ResourceType.GROUP: ErrorCode.group_authorization_failed,
    ResourceType.CLUSTER: CLUSTER_DENIED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.transactional_id_authorization_failed,
}
