"""Client quotas: listed, set and removed."""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from headrace.model.quotas import ClusterQuotas, QuotaEntity, entity_text
from headrace.protocol.codec import make
from headrace.wire.errors import check
from headrace.wire.router import LeaderRouter

_DESCRIBE, _ALTER = 48, 49
_VERSION, _LOWEST = 1, 0


def list_quotas(router: LeaderRouter) -> ClusterQuotas:
    """All quotas of the cluster."""

    def build(schema: ModuleType) -> Any:
        return make(schema.DescribeClientQuotasRequest, components=(), strict=False)

    def attempt() -> ClusterQuotas:
        answer = router.any_broker(lambda connection: connection.call(_DESCRIBE, _VERSION, build, lowest=_LOWEST))
        check("listing the quotas", answer.error_code, answer.error_message)
        return {
            tuple((each.entity_type, each.entity_name) for each in entry.entity): {
                each.key: float(each.value) for each in entry.values
            }
            for entry in answer.entries or ()
        }

    return router.patiently(attempt)


def alter_quotas(router: LeaderRouter, entity: QuotaEntity, changes: Mapping[str, float | None]) -> None:
    """Set quotas of an entity, and remove those that are None."""

    def build(schema: ModuleType) -> Any:
        entry: Any = make(
            schema.EntryData,
            entity=tuple(make(schema.EntityData, entity_type=kind, entity_name=name) for kind, name in entity),
            ops=tuple(
                make(schema.OpData, key=key, value=value or 0.0, remove=value is None) for key, value in changes.items()
            ),
        )
        return make(schema.AlterClientQuotasRequest, entries=(entry,), validate_only=False)

    def attempt() -> None:
        answer = router.any_broker(lambda connection: connection.call(_ALTER, _VERSION, build, lowest=_LOWEST))
        for result in answer.entries:
            check(f"changing the quotas of {entity_text(entity)}", result.error_code, result.error_message)

    router.patiently(attempt)
