"""The health of a broker: which parts of it are checked."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

from headrace.app.node import Node
from headrace.kafka.services import Services
from headrace.monitor.health.facts import CertificateFact
from headrace.monitor.health.service import HealthService
from headrace.monitor.health.source import HealthParts, HealthSource
from headrace.security.tls.reload import ReloadingTls

_DAY_S = 86_400.0


def start_health(
    services: Services, node: Node | None, tls: ReloadingTls | None, undo: AsyncExitStack
) -> HealthService:
    """Check the health of this broker until `undo`."""
    assert node is not None, "listeners are opened by a node"
    source = HealthSource(
        HealthParts(
            metadata=services.metadata,
            monitor=services.monitor,
            pipelines=services.pipelines,
            security=services.security,
            clock=services.clock,
            membership=node.membership,
            failure=lambda: node.failure,
            locked_topics=lambda: [] if node.ciphers is None else node.ciphers.locked_topics(),
        )
    )
    if tls is not None:
        source.certificates = lambda: _certificates(tls)
    health = HealthService(source, services.monitor, services.clock)
    checking = asyncio.get_running_loop().create_task(health.run(), name="health")

    async def end() -> None:
        checking.cancel()
        await asyncio.wait((checking,))

    undo.push_async_callback(end)
    return health


def _certificates(tls: ReloadingTls) -> Sequence[CertificateFact]:
    days = tls.expires_in_days
    return [] if days is None else [CertificateFact(str(tls.files.cert_file), days * _DAY_S)]
