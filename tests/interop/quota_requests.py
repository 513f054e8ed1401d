"""Quotas set and described as Kafka's tools do it, over a plain connection."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from . import raw_client
from .raw_client import Connection, Error

Entity = Mapping[str, str | None]


def alter(
    connection: Connection, entity: Entity, quotas: Mapping[str, float | None], *, validate_only: bool = False
) -> Any:
    """Set quotas of an entity, or remove those that are None; its part of the answer."""
    entry = {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
        "ops": [{"key": key, "value": float(value or 0), "remove": value is None} for key, value in quotas.items()],
    }
    (answer,) = connection.call(raw_client.ALTER_CLIENT_QUOTAS, 1, entries=[entry], validate_only=validate_only).entries
    return answer


def described(connection: Connection, *, strict: bool = False, **components: tuple[int, str | None]) -> dict[Any, Any]:
    """The quotas that match: entity to quotas. Components by entity type, with _ for -: match type and name."""
    wanted = [
        {"entity_type": kind.replace("_", "-"), "match_type": match, "match": name}
        for kind, (match, name) in components.items()
    ]
    answer = connection.call(raw_client.DESCRIBE_CLIENT_QUOTAS, 1, components=wanted, strict=strict)
    assert answer.error_code == Error.none, answer
    return {
        tuple((each.entity_type, each.entity_name) for each in entry.entity): {
            each.key: each.value for each in entry.values
        }
        for entry in answer.entries
    }


@contextmanager
def quota(bootstrap: str, entity: Entity, **quotas: float) -> Iterator[None]:
    """These quotas are in force within the block."""
    with Connection(bootstrap) as connection:
        answer = alter(connection, entity, quotas)
        assert answer.error_code == Error.none, answer
        try:
            yield
        finally:
            alter(connection, entity, dict.fromkeys(quotas))
