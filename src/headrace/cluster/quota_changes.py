"""Changes to client quotas: each is a transaction of the metadata store, in force here when it returns."""

from collections.abc import Sequence

from headrace.cluster.layout_links import copied_key
from headrace.cluster.layout_quotas import encode_quotas, quota_key
from headrace.cluster.metadata import Metadata
from headrace.cluster.store import DeleteKey, Put, Write
from headrace.model.errors import PolicyViolation, UnsupportedFeature
from headrace.model.features import QUOTAS_LEVEL, needed
from headrace.model.quotas import QuotaEntity
from headrace.quotas.alteration import QuotaChange, altered

MAX_ENTITIES = 10_000
"""Every broker has all of them in memory."""


class QuotaChanges:
    """Changes the quotas of the cluster, through this broker's metadata."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    async def alter(self, entity: QuotaEntity, changes: Sequence[QuotaChange], *, validate_only: bool = False) -> None:
        """Set and remove quotas of an entity, all or none. Raises `InvalidQuota`."""

        async def attempt() -> None:
            image = self._metadata.image
            if image.feature_level < QUOTAS_LEVEL:
                raise UnsupportedFeature(needed("a client quota", QUOTAS_LEVEL, image.feature_level))
            old = image.quotas.get(entity, {})
            new = altered(entity, old, changes)
            if not old and new and len(image.quotas) >= MAX_ENTITIES:
                raise PolicyViolation(f"there are quotas for {MAX_ENTITIES} entities already: use defaults or prefixes")
            if validate_only or new == old:
                return
            key = quota_key(entity)
            writes: list[Write] = [Put(key, encode_quotas(entity, new)) if new else DeleteKey(key)]
            if not new and key in image.copied:
                writes.append(DeleteKey(copied_key(key)))
            await self._metadata.commit([self._metadata.unchanged(key)], writes)

        await self._metadata.decide(attempt)
