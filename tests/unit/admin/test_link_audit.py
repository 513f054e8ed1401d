"""Changes of links in the audit log: which link or mirror topic, not only which route."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from headrace.admin import links as link_routes
from headrace.admin.audit import recorded
from headrace.admin.routes import ROUTES, AdminRequest
from headrace.mirror.reports import LinkSummary, PromotionReport
from headrace.model.errors import UnknownLink
from headrace.model.links import Link

CREATED = b'{"name": "eu", "bootstrap": ["a:9092"]}'


class Links:
    """A service that creates and promotes what it is asked for, and knows no link."""

    async def create(self, link: Link, *, dry_run: bool) -> Link:
        return link

    async def alter(self, name: str, edit: Callable[[Link], Link], *, dry_run: bool) -> Link:
        return edit(Link(name, UUID(int=0), ("a:9092",)))

    def summaries(self) -> tuple[LinkSummary, ...]:
        return ()

    async def delete(self, name: str) -> None:
        raise UnknownLink(name)

    async def failover(self, topic: str, *, dry_run: bool) -> PromotionReport:
        return PromotionReport(topic, dry_run, 0, 0.0, 1.0)


def recorded_change(handler: Any, parameters: dict[str, str], body: bytes = b"{}") -> tuple[str, str, str]:
    """The kind and name of the resource, and the error, that a request leaves in the log."""
    changes: list[dict[str, Any]] = []

    async def room() -> None:
        pass

    audit = SimpleNamespace(wants=lambda *_: True, room=room, changed=lambda *_, **change: changes.append(change))
    services: Any = SimpleNamespace(links=Links(), security=SimpleNamespace(audit=audit))
    subject: Any = SimpleNamespace(principal="User:alice")
    route = next(each for each in ROUTES if each.handler is handler)
    with suppress(UnknownLink):
        asyncio.run(recorded(route, AdminRequest(services, subject, parameters, body)))
    (change,) = changes
    return change["resource_type"], change["resource_name"], change["error"]


def test_links_and_mirror_topics_are_named() -> None:
    assert recorded_change(link_routes.create_link, {}, CREATED) == ("LINK", "eu", "")
    assert recorded_change(link_routes.alter_link, {"link": "eu"}) == ("LINK", "eu", "")
    assert recorded_change(link_routes.delete_link, {"link": "us"}) == ("LINK", "us", "unknown_link")
    assert recorded_change(link_routes.fail_over_mirror, {"topic": "orders"}) == ("TOPIC", "orders", "")
