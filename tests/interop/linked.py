"""A broker that has a link to another, both in this process."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from uuid import UUID

from headrace.kafka.services import Services
from headrace.mirror.links import Links
from headrace.model.image import ClusterImage
from headrace.model.links import Link
from headrace.testing import Broker
from headrace.testing.process import BrokerProcess

PATIENCE_S = 60.0
T = TypeVar("T")


def services(broker: Broker) -> Services:
    found = broker._running_app()._services
    assert found is not None
    return found


def ask(broker: Broker, use: Callable[[Links], Awaitable[T]]) -> T:
    """What the service of links of a broker answers."""

    async def run() -> T:
        return await use(services(broker).links)

    assert broker._loop is not None
    return asyncio.run_coroutine_threadsafe(run(), broker._loop).result(PATIENCE_S)


def image(broker: Broker) -> ClusterImage:
    return services(broker).metadata.image


def link_to(source: Broker | BrokerProcess, **changes: Any) -> Link:
    return Link("eu", UUID(int=0), (source.bootstrap,), **changes)
