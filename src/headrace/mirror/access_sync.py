"""Copies the ACLs, quotas and users of a link's source here, if the link says so: one round, for the controller."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from itertools import islice

from headrace.cluster.layout_quotas import quota_key
from headrace.cluster.layout_security import acl_key, user_key
from headrace.cluster.metadata import Metadata
from headrace.mirror.acl_plan import AclChange, SourceAcls, planned_acls, problem_of
from headrace.mirror.copies import Copies
from headrace.mirror.link_audit import LinkAudit, LinkChange
from headrace.mirror.quota_plan import planned_quotas, problem_with_quotas
from headrace.mirror.source import SourceCluster
from headrace.mirror.source_access import acls_of, quotas_of
from headrace.mirror.source_users import verifiers_of
from headrace.mirror.user_plan import SourceUsers, planned_users, problem_with_users, read_verifiers
from headrace.model.acls import Acl
from headrace.model.errors import HeadraceError
from headrace.model.image import ClusterImage
from headrace.model.links import Link
from headrace.model.quotas import QuotaEntity, QuotaValues, entity_text

log = logging.getLogger(__name__)

_CHANGES_MAX = 1_000
"""Changes of one kind in a round; the others follow in the next ones."""


class AccessSync:
    """What one link copies besides topics."""

    def __init__(self, metadata: Metadata, audit: LinkAudit) -> None:
        self._metadata = metadata
        self._audit = audit
        self._copies = Copies(metadata)
        self._users: tuple[str, SourceUsers] = "", SourceUsers({})
        """The users of the source, with the digest of the answer that had them."""
        self.problems: dict[str, str] = {}
        """By what is copied: why it is not, or not all of it, as of the last round."""

    async def run(self, link: Link, source: SourceCluster) -> None:
        """Copy once what the link says. What fails is noted, and nothing else waits for it."""
        chosen: dict[str, Callable[[Link, SourceCluster], Awaitable[str]]] = {}
        if link.sync.acls:
            chosen["acls"] = self._sync_acls
        if link.sync.quotas:
            chosen["quotas"] = self._sync_quotas
        if link.sync.users:
            chosen["users"] = self._sync_users
        if chosen:
            await self._audit.room()
        problems: dict[str, str] = {}
        for kind, sync in chosen.items():
            try:
                problems[kind] = await sync(link, source)
            except HeadraceError as error:
                problems[kind] = str(error)
        self.problems = {kind: words for kind, words in problems.items() if words}

    async def _sync_acls(self, link: Link, source: SourceCluster) -> str:
        found = await acls_of(source)
        # In a thread: with ten thousand rules it takes a tenth of a second.
        changes = await asyncio.to_thread(_planned, found, self._metadata.image, link)
        some = changes[:_CHANGES_MAX]
        await self._copies.change_acls(link, some)
        self._audit.record(link.name, "SyncAcls", map(_acl_change, some))
        if some:
            removed = sum(change.is_removal for change in some)
            log.info("the link %s has created %d ACLs and removed %d", link.name, len(some) - removed, removed)
        return problem_of(found)

    async def _sync_quotas(self, link: Link, source: SourceCluster) -> str:
        found = await quotas_of(source, link.prefix)
        image = self._metadata.image
        brought = _copied_quotas(image, link)
        retained: dict[QuotaEntity, tuple[str, ...]] = {}
        changes = 0
        for entity in [*(brought.keys() - found.quotas.keys()), *found.quotas]:
            wanted, present = found.quotas.get(entity, {}), image.quotas.get(entity, {})
            plan = planned_quotas(wanted, present, brought.get(entity, {}))
            if (plan.values, plan.brought) != (present, brought.get(entity, {})):
                if changes == _CHANGES_MAX:
                    break
                changes += 1
                plan = await self._copies.change_quotas(link, entity, wanted)
                made = LinkChange("CLUSTER", entity_text(entity), "ALTER_CONFIGS", f"quotas are {dict(plan.values)}")
                self._audit.record(link.name, "SyncQuotas", [made])
            if plan.retained:
                retained[entity] = plan.retained
        return problem_with_quotas(found, retained)

    async def _sync_users(self, link: Link, source: SourceCluster) -> str:
        digest, users = self._users
        answer = await verifiers_of(source, digest)
        if answer.verifiers is not None:
            users = read_verifiers(answer.verifiers)
            self._users = answer.digest, users
        image = self._metadata.image
        plan = planned_users(
            users, image.security.users, _copied_users(image, link), self._metadata.settings.super_user_principals
        )
        for name, credentials in islice(plan.changes.items(), _CHANGES_MAX):
            if await self._copies.change_user(link, name, credentials):
                words = "removed" if credentials is None else f"logs in as at the source: {', '.join(credentials)}"
                self._audit.record(link.name, "SyncUsers", [LinkChange("USER", name, "ALTER", words)])
        return problem_with_users(users, plan)


def _copied_users(image: ClusterImage, link: Link) -> set[str]:
    """The users here that the link has brought."""
    keys = {key for key, note in image.copied.items() if note.link_id == link.link_id}
    return {name for name in image.security.users if user_key(name) in keys} if keys else set()


def _acl_change(change: AclChange) -> LinkChange:
    acl, what = change.acl, "removed" if change.is_removal else "created"
    words = f"{what}: {acl.permission.name} {acl.operation.name} for {acl.principal} from {acl.host}"
    return LinkChange(acl.resource_type.name, acl.resource_name, "ALTER", f"{words}, {acl.pattern_type.name}")


def _copied_quotas(image: ClusterImage, link: Link) -> dict[QuotaEntity, QuotaValues]:
    """The quotas that the link has set here, by entity."""
    notes: Mapping[str, QuotaValues] = {
        key: note.quotas for key, note in image.copied.items() if note.link_id == link.link_id and note.quotas
    }
    keys = ((quota_key(entity), entity) for entity in image.quotas) if notes else ()
    return {entity: notes[key] for key, entity in keys if key in notes}


def _planned(found: SourceAcls, image: ClusterImage, link: Link) -> tuple[AclChange, ...]:
    return planned_acls(found, image.security.acls, _copied_acls(image, link), link.prefix)


def _copied_acls(image: ClusterImage, link: Link) -> set[Acl]:
    """The ACLs here that the link has brought."""
    keys = {key for key, note in image.copied.items() if note.link_id == link.link_id}
    return {acl for acl in image.security.acls if acl_key(acl) in keys} if keys else set()
