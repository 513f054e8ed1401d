"""The registry of this cluster, for links that copy schemas."""

from collections.abc import Callable, Iterable, Sequence
from typing import cast

from headrace.mirror.link_audit import LinkAudit, LinkChange
from headrace.mirror.schema_sync import LinkSchemaSource, SchemaRound
from headrace.mirror.source_topic import KeyAndValue
from headrace.model.errors import HeadraceError
from headrace.model.links import Link
from headrace.schemas.link_plan import LinkOwner
from headrace.schemas.link_source import LinkNames, SourceRegistry
from headrace.schemas.link_sync import LinkedRegistry
from headrace.schemas.service import RegistryService

_ACTION = "SyncSchemas"


class LinkSourceSchemas:
    """The registry of a source, as far as it was read."""

    def __init__(self) -> None:
        self.registry = SourceRegistry()

    def replay(self, records: Sequence[KeyAndValue]) -> None:
        for key, value in records:
            self.registry.replay(key, value)


class LinkSchemas:
    def __init__(self, registry: RegistryService, audit: LinkAudit) -> None:
        self._registry = registry
        self._linked = LinkedRegistry(registry)
        self._audit = audit

    async def prepare(self) -> None:
        await self._registry.prepare()

    def is_here(self) -> bool:
        try:
            return self._registry.is_here and self._registry.machine is not None
        except HeadraceError:
            return False

    def new_source(self) -> LinkSchemaSource:
        return LinkSourceSchemas()

    async def sync(self, link: Link, source: LinkSchemaSource, topic_id: str, check: Callable[[], None]) -> SchemaRound:
        owner = LinkOwner(str(link.link_id), link.name, LinkNames(link.name, link.prefix), topic_id)
        await self._audit.room()
        found = await self._linked.sync(owner, cast(LinkSourceSchemas, source).registry, check)
        self._audit.record(link.name, _ACTION, (_change(*each) for each in found.changed.items()))
        return SchemaRound(found.problem, found.brought)

    async def release(self, active: Iterable[Link]) -> None:
        for scope, link in (await self._linked.release(str(each.link_id) for each in active)).items():
            self._audit.record(link, _ACTION, [_change(scope, "released: clients may register again")])


def _change(scope: str, words: str) -> LinkChange:
    return LinkChange("SUBJECT", scope, "ALTER", words)
