"""Which quotas a link sets and removes here so that those of its source are in force. Pure.

A quota belongs to the link if the link has set it and it still has that value. Others are left alone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headrace.model.errors import InvalidQuota
from headrace.model.quotas import QUEUE, TOPIC_PREFIX, QuotaEntity, QuotaValues, entity_text
from headrace.quotas.alteration import altered, checked_entity

_OF_TOPICS = (QUEUE, TOPIC_PREFIX)
"""The types of entities whose names are those of topics."""
_MAX_SHOWN_CHARS = 200


@dataclass(frozen=True, slots=True)
class SourceQuotas:
    """The quotas of a source cluster, by entities as they are here."""

    quotas: Mapping[QuotaEntity, QuotaValues]
    unusable: tuple[str, ...] = ()
    """Why quotas of the source cannot be set here, each in words."""


@dataclass(frozen=True, slots=True)
class QuotaPlan:
    """The quotas of one entity after a change."""

    values: QuotaValues
    """All of them; the entity is removed if there are none."""
    brought: QuotaValues
    """Those that belong to the link."""
    retained: tuple[str, ...] = field(default=())
    """Names of quotas that have another value at the source, and are left alone since they were set here."""


def planned_quotas(wanted: QuotaValues, present: QuotaValues, brought: QuotaValues) -> QuotaPlan:
    """The quotas of an entity. `wanted` has it at the source, `brought` is what the link has set here before."""
    own = {name for name, value in brought.items() if present.get(name) == value}
    local = {name: value for name, value in present.items() if name not in own}
    copied = {name: value for name, value in wanted.items() if name not in local}
    retained = tuple(sorted(name for name, value in wanted.items() if local.get(name, value) != value))
    return QuotaPlan({**local, **copied}, copied, retained)


def read_quotas(
    entries: Iterable[tuple[Iterable[tuple[str, str | None]], Iterable[tuple[str, float]]]], prefix: str
) -> SourceQuotas:
    """The quotas of a source, entity by entity, without those that are not possible here.

    Entities that are about topics are about their mirrors, whose names have the prefix.
    """
    found: dict[QuotaEntity, QuotaValues] = {}
    unusable: list[str] = []
    for pairs, quotas in entries:
        values: dict[str, float] = {}
        try:
            entity = checked_entity((kind, _local_name(kind, name, prefix)) for kind, name in pairs)
        except InvalidQuota as error:
            unusable.append(str(error)[:_MAX_SHOWN_CHARS])
            continue
        for name, value in quotas:
            try:
                values = altered(entity, values, [(name, value)])
            except InvalidQuota as error:
                unusable.append(str(error)[:_MAX_SHOWN_CHARS])
        if values:
            found[entity] = values
    return SourceQuotas(found, tuple(unusable))


def problem_with_quotas(source: SourceQuotas, retained: Mapping[QuotaEntity, Iterable[str]]) -> str:
    """What of the source is not in force here, in one sentence; empty if everything is."""
    if source.unusable:
        return f"{len(source.unusable)} quotas of the source are not possible here, for example: {source.unusable[0]}"
    if retained:
        entity, names = next(iter(retained.items()))
        what = f"{', '.join(names)} of {entity_text(entity)}"[:_MAX_SHOWN_CHARS]
        return (
            f"quotas of {len(retained)} entities were set here and differ from those of the source, for example "
            f"{what}: remove them here to follow the source"
        )
    return ""


def _local_name(kind: str, name: str | None, prefix: str) -> str | None:
    return prefix + name if kind in _OF_TOPICS and name else name
