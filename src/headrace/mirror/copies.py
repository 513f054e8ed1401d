"""Stores what a link brings besides topics, each with a note that the link has brought it, in one transaction.

A transaction holds only while the link exists and is as it was: so nothing arrives after a sync was switched off, or
from a controller that is none any more.
"""

from collections.abc import Sequence
from uuid import UUID

from headrace.cluster.layout_links import copied_key, encode_copied, link_key
from headrace.cluster.layout_quotas import encode_quotas, quota_key
from headrace.cluster.layout_security import access_key_key, acl_key, encode_acl, encode_user, user_key
from headrace.cluster.metadata import Metadata
from headrace.cluster.quota_changes import MAX_ENTITIES
from headrace.cluster.store import Compare, DeleteKey, Put, Write
from headrace.mirror.acl_plan import AclChange
from headrace.mirror.quota_plan import QuotaPlan, planned_quotas
from headrace.mirror.user_plan import Credentials
from headrace.model.errors import PolicyViolation, UnknownLink, UnsupportedFeature
from headrace.model.features import QUOTAS_LEVEL, SECURITY_LEVEL, needed
from headrace.model.image import ClusterImage
from headrace.model.links import MAX_COPIED, Copied, Link
from headrace.model.quotas import QuotaEntity, QuotaValues
from headrace.model.users import User

_CHANGES_PER_COMMIT = 40
"""Each has two keys, and etcd allows 128 operations in a transaction."""


class Copies:
    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    async def change_acls(self, link: Link, changes: Sequence[AclChange]) -> None:
        """Create and remove ACLs, in this order; what fits in one transaction is in force at once."""
        for first in range(0, len(changes), _CHANGES_PER_COMMIT):
            await self._change_some_acls(link, changes[first : first + _CHANGES_PER_COMMIT])

    async def _change_some_acls(self, link: Link, changes: Sequence[AclChange]) -> None:
        async def attempt() -> None:
            image = self._metadata.image
            if image.feature_level < SECURITY_LEVEL:
                raise UnsupportedFeature(needed("access control", SECURITY_LEVEL, image.feature_level))
            keys: list[str] = []
            writes: list[Write] = []
            for change in changes:
                key, acl = acl_key(change.acl), change.acl
                note = image.copied.get(key)
                if change.is_removal and note is not None and note.link_id == link.link_id:
                    writes += [DeleteKey(key), DeleteKey(copied_key(key))]
                elif not change.is_removal and acl not in image.security.acls:
                    writes += [Put(key, encode_acl(acl)), self._note(key, Copied(link.link_id))]
                else:
                    continue  # A person has changed it meanwhile.
                keys.append(key)
            added = sum(isinstance(write, Put) for write in writes) // 2
            await self._commit(image, link, keys, writes, added=added)

        await self._metadata.decide(attempt)

    async def change_quotas(self, link: Link, entity: QuotaEntity, wanted: QuotaValues) -> QuotaPlan:
        """Let an entity have these quotas of the source, besides those that were set here; what was done."""
        key = quota_key(entity)

        async def attempt() -> QuotaPlan:
            image = self._metadata.image
            if image.feature_level < QUOTAS_LEVEL:
                raise UnsupportedFeature(needed("a client quota", QUOTAS_LEVEL, image.feature_level))
            present, note = image.quotas.get(entity, {}), image.copied.get(key)
            is_own = note is not None and note.link_id == link.link_id
            brought = note.quotas if note is not None and is_own else {}
            if note is not None and not is_own:
                return QuotaPlan(present, {})  # Those of another link.
            plan = planned_quotas(wanted, present, brought)
            if plan.values == present and plan.brought == brought:
                return plan
            if not present and plan.values and len(image.quotas) >= MAX_ENTITIES:
                raise PolicyViolation(f"there are quotas for {MAX_ENTITIES} entities already")
            noted = self._note(key, Copied(link.link_id, plan.brought))
            writes: list[Write] = [
                Put(key, encode_quotas(entity, plan.values)) if plan.values else DeleteKey(key),
                noted if plan.brought else DeleteKey(noted.key),
            ]
            await self._commit(image, link, [key], writes, added=note is None and bool(plan.brought))
            return plan

        return await self._metadata.decide(attempt)

    async def change_user(self, link: Link, name: str, credentials: Credentials | None) -> bool:
        """Let a user have these credentials, or remove it with its access keys if there are none; False if a person
        has changed it meanwhile."""
        key = user_key(name)

        def is_free(image: ClusterImage) -> bool:
            if image.feature_level < SECURITY_LEVEL:
                raise UnsupportedFeature(needed("access control", SECURITY_LEVEL, image.feature_level))
            note = image.copied.get(key)
            return name not in image.security.users or (note is not None and note.link_id == link.link_id)

        async def put() -> bool:
            image = self._metadata.image
            if not is_free(image):
                return False
            noted = self._note(key, Copied(link.link_id))
            writes = [Put(key, encode_user(User(name, credentials or {}))), noted]
            await self._commit(image, link, [key], writes, added=key not in image.copied)
            return True

        async def remove_some() -> bool:
            """Access keys go with the user, so that a later one of the name does not have them; False if it is gone."""
            image = self._metadata.image
            if not is_free(image) or name not in image.security.users:
                return False
            mine = [each.key_id for each in image.security.access_keys.values() if each.user == name]
            writes: list[Write] = [DeleteKey(access_key_key(each)) for each in mine[:_CHANGES_PER_COMMIT]]
            if len(mine) <= _CHANGES_PER_COMMIT:
                writes += [DeleteKey(key), DeleteKey(copied_key(key))]
            await self._commit(image, link, [key], writes, added=0)
            return True

        if credentials:
            return await self._metadata.decide(put)
        is_removed = False
        while await self._metadata.decide(remove_some):
            is_removed = True
        return is_removed

    async def release(self, link_id: UUID) -> None:
        """Delete the notes of a link that was deleted; what it has brought stays, as if it were made here."""

        async def attempt() -> None:
            keys = [key for key, note in self._metadata.image.copied.items() if note.link_id == link_id]
            for first in range(0, len(keys), _CHANGES_PER_COMMIT):
                some = keys[first : first + _CHANGES_PER_COMMIT]
                await self._metadata.commit([], [DeleteKey(copied_key(key)) for key in some])

        await self._metadata.decide(attempt)

    def _note(self, key: str, copied: Copied) -> Put:
        return Put(copied_key(key), encode_copied(copied))

    async def _commit(
        self, image: ClusterImage, link: Link, keys: Sequence[str], writes: Sequence[Write], *, added: int
    ) -> None:
        """Commit these changes of `keys`, with `added` notes more."""
        if image.links.get(link.name) != link:
            raise UnknownLink(f"the link {link.name} was changed meanwhile")
        if not writes:
            return
        if len(image.copied) + added > MAX_COPIED and added:
            raise PolicyViolation(
                f"links have brought {len(image.copied):,} ACLs, quotas and users; {MAX_COPIED:,} is the most"
            )
        unchanged = self._metadata.unchanged
        compares: list[Compare] = [unchanged(link_key(link.name))]
        compares += [unchanged(each) for key in keys for each in (key, copied_key(key))]
        await self._metadata.commit(compares, writes)
