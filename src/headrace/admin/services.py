"""The parts of a broker that the HTTP API uses, wired together in `app`."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from headrace.cluster.access import AccessControl
from headrace.cluster.metadata import Metadata
from headrace.monitor.monitor import Monitor
from headrace.security.authenticator import Authenticator
from headrace.security.security import Security


@dataclass(frozen=True, slots=True)
class AdminServices:
    metadata: Metadata
    security: Security
    access: AccessControl
    wall_ms: Callable[[], int]
    authenticator: Callable[[], Awaitable[Authenticator]]
    """The authenticator, which is made at the first use on a broker whose listeners need none."""
    create_admin: Callable[[str, str], Awaitable[None]]
    """Creates a user who may do everything, with this password."""
    monitor: Monitor
    """What this broker and the cluster are doing."""
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held between a check and the change that depends on it, so that requests at the same time cannot both pass."""

    @property
    def has_users(self) -> bool:
        """Whether there are users, besides the one as which brokers log in to each other."""
        brokers = self.metadata.settings.inter_broker_user
        return any(name != brokers for name in self.security.image.users)
