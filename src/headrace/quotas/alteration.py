"""Changes of quotas and questions about them, checked as Kafka checks them. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from math import inf
from typing import NamedTuple

from headrace.model.errors import InvalidQuota, UnsupportedFeature
from headrace.model.quotas import (
    ACCESS_KEY,
    CLIENT_ID,
    CLIENT_ID_PREFIX,
    ENTITY_TYPES,
    IP,
    MAX_NAME_CHARS,
    QUEUE,
    TOPIC_PREFIX,
    USER,
    ClusterQuotas,
    QuotaEntity,
    QuotaKind,
    QuotaValues,
    entity_text,
)

_LONG_MAX, _INT_MAX = 2**63 - 1, 2**31 - 1
_FRACTION_MAX = 1e-6
_CLIENT_KINDS = (QuotaKind.PRODUCE, QuotaKind.FETCH, QuotaKind.REQUEST, QuotaKind.MUTATION)
_WHOLE_MAX = {
    QuotaKind.PRODUCE: _LONG_MAX,
    QuotaKind.FETCH: _LONG_MAX,
    QuotaKind.CONNECTION: _INT_MAX,
    QuotaKind.STORED: _LONG_MAX,
}
"""The quotas that are whole numbers, each with its largest value."""
_SQS_KINDS = (QuotaKind.SQS_REQUESTS, QuotaKind.SQS_MESSAGES)
_ALONE = (IP, QUEUE, ACCESS_KEY, TOPIC_PREFIX)
"""The types that are not combined with others."""
_KINDS_ALONE: Mapping[str, tuple[QuotaKind, ...]] = {
    IP: (QuotaKind.CONNECTION,),
    QUEUE: _SQS_KINDS,
    ACCESS_KEY: _SQS_KINDS,
    TOPIC_PREFIX: (QuotaKind.STORED,),
}
MATCH_EXACT, MATCH_DEFAULT, MATCH_ANY = range(3)

QuotaChange = tuple[str, float | None]
"""A quota's name and its new value; None removes it."""


def checked_entity(pairs: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """The entity of a request, in the order of `ENTITY_TYPES`. Raises `InvalidQuota`."""
    names: dict[str, str | None] = {}
    for kind, name in pairs:
        # Kafka's last pair of a type replaces the ones before it.
        names[kind] = name
    for kind, name in names.items():
        if kind not in ENTITY_TYPES:
            raise InvalidQuota(f"there are no quotas for entities of type {kind!r}: use {', '.join(ENTITY_TYPES)}")
        if name == "":
            raise InvalidQuota(f"the name of a {kind} must not be empty; null stands for the default")
        if name is not None and len(name) > MAX_NAME_CHARS:
            raise InvalidQuota(f"the name of a {kind} has more than {MAX_NAME_CHARS} characters")
    _check_combination(names)
    return tuple((kind, names[kind]) for kind in ENTITY_TYPES if kind in names)


def _check_combination(names: Mapping[str, str | None]) -> None:
    if not names:
        raise InvalidQuota(f"a quota needs an entity: one of {', '.join(ENTITY_TYPES)}")
    if len(names) > 1 and (alone := next((each for each in _ALONE if each in names), None)):
        raise InvalidQuota(f"the quota of an {alone} cannot be combined with users or client ids")
    if CLIENT_ID in names and CLIENT_ID_PREFIX in names:
        raise InvalidQuota("a quota is for a client-id or for a client-id-prefix, not for both")
    if CLIENT_ID_PREFIX in names and names[CLIENT_ID_PREFIX] is None:
        raise InvalidQuota("a client-id-prefix has no default: use the default of client-id")
    if TOPIC_PREFIX in names and names[TOPIC_PREFIX] is None:
        raise InvalidQuota("a topic-prefix has no default: name a prefix")
    address = names.get(IP)
    if address is not None:
        try:
            ip_address(address)
        except ValueError:
            raise InvalidQuota(f"{address} is not an IP address") from None


def altered(entity: QuotaEntity, old: QuotaValues, changes: Sequence[QuotaChange]) -> dict[str, float]:
    """The quotas of an entity after changes. Raises `InvalidQuota`; then none of them is made."""
    counts = Counter(name for name, _ in changes)
    if twice := next((name for name, count in counts.items() if count > 1), None):
        raise InvalidQuota(f"the quota {twice} appears more than once for {entity_text(entity)}")
    kinds = _KINDS_ALONE.get(entity[0][0], _CLIENT_KINDS)
    new = dict(old)
    for name, value in changes:
        if value is None:
            new.pop(name, None)
            continue
        if name not in kinds:
            raise InvalidQuota(f"{entity_text(entity)} has no quota {name!r}: use {', '.join(kinds)}")
        new[name] = _checked_value(QuotaKind(name), value)
    return new


def _checked_value(kind: QuotaKind, value: float) -> float:
    if not value > 0:
        raise InvalidQuota(f"{kind} must be greater than 0; remove the quota to allow any rate")
    if value == inf:
        raise InvalidQuota(f"{kind} must be finite; remove the quota to allow any rate")
    most = _WHOLE_MAX.get(kind)
    if most is None:
        return value
    if value > most:
        raise InvalidQuota(f"{kind} must not be greater than {most}")
    if value % 1.0 > _FRACTION_MAX:
        raise InvalidQuota(f"{kind} must be a whole number")
    return value


class EntityFilter(NamedTuple):
    """One component of a question: a type, how to match its name, and the name."""

    kind: str
    match: int
    name: str | None


def matching(quotas: ClusterQuotas, filters: Sequence[EntityFilter], *, strict: bool) -> dict[QuotaEntity, QuotaValues]:
    """The quotas of entities that match every component, and with `strict` have no other types.

    Raises `InvalidQuota`, and `UnsupportedFeature` for a type that does not exist.
    """
    _check_filters(filters)
    return {
        entity: values
        for entity, values in quotas.items()
        if (not strict or len(entity) == len(filters)) and _matches(dict(entity), filters)
    }


def _check_filters(filters: Sequence[EntityFilter]) -> None:
    kinds: set[str] = set()
    for kind, match, name in filters:
        if not kind:
            raise InvalidQuota("an entity type must not be empty")
        if kind in kinds:
            raise InvalidQuota(f"the entity type {kind} appears more than once in the filter")
        kinds.add(kind)
        if kind not in ENTITY_TYPES:
            raise UnsupportedFeature(f"there are no entities of type {kind}: use {', '.join(ENTITY_TYPES)}")
        if match not in (MATCH_EXACT, MATCH_DEFAULT, MATCH_ANY):
            raise InvalidQuota(f"there is no match type {match}: 0 is an exact name, 1 the default, 2 any name")
        if match == MATCH_EXACT and name is None:
            raise InvalidQuota("an exact match needs a name; the default is match type 1")
        if match != MATCH_EXACT and name is not None:
            raise InvalidQuota(f"match type {match} has no name")
    if IP in kinds and kinds & {USER, CLIENT_ID, CLIENT_ID_PREFIX}:
        raise InvalidQuota("an ip cannot be combined with users or client ids in a filter")


def _matches(names: Mapping[str, str | None], filters: Sequence[EntityFilter]) -> bool:
    return all(kind in names and (match == MATCH_ANY or names[kind] == name) for kind, match, name in filters)
