"""The parts of a broker that the HTTP API uses, wired together in `app`."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from headrace.admin.kafka_calls import KafkaCalls
from headrace.admin.live_views import LiveViews
from headrace.admin.queue_permissions import QueuePermissions
from headrace.admin.schema_decoder import SchemaDecoders
from headrace.admin.sessions import SessionStore
from headrace.admin.streams import OpenStreams
from headrace.cluster.access import AccessControl
from headrace.cluster.metadata import Metadata
from headrace.mirror.links import Links
from headrace.monitor.health.service import HealthService
from headrace.monitor.monitor import Monitor
from headrace.monitor.pipelines.service import PipelineReports
from headrace.queues.service import QueueService
from headrace.runtime.clock import Clock
from headrace.schemas.service import RegistryService
from headrace.security.authenticator import Authenticator
from headrace.security.security import Security

SCANS_AT_A_TIME = 4


@dataclass(frozen=True, slots=True)
class AdminServices:
    metadata: Metadata
    security: Security
    access: AccessControl
    clock: Clock
    authenticator: Callable[[], Awaitable[Authenticator]]
    """The authenticator, which is made at the first use on a broker whose listeners need none."""
    monitor: Monitor
    """What this broker and the cluster are doing."""
    health: HealthService
    """The problems of the cluster."""
    kafka: KafkaCalls
    queues: QueueService
    queue_access: QueuePermissions
    pipelines: PipelineReports
    registry: RegistryService
    links: Links
    sessions: SessionStore
    decoders: SchemaDecoders
    """Decode messages that have a schema."""
    streams: OpenStreams = field(default_factory=OpenStreams)
    live: LiveViews = field(default_factory=LiveViews)
    scanning: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(SCANS_AT_A_TIME))
    """Held while a topic is scanned for messages."""
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held between a check and the change that depends on it, so that requests at the same time cannot both pass."""

    @property
    def has_users(self) -> bool:
        """Whether there are users, besides the one as which brokers log in to each other."""
        brokers = self.metadata.settings.inter_broker_user
        return any(name != brokers for name in self.security.image.users)
