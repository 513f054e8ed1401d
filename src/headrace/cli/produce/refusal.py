"""Why a broker has refused a message: its answer has the reason, but librdkafka does not show it.

Refused messages are checked again here, by the settings of their topic and the schemas of the registry, with the
broker's own rules. Nothing is sent a second time: it could be stored by now.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

from headrace.cli.cluster.view import connected
from headrace.cli.errors import CommandFailed
from headrace.cli.lines import Header
from headrace.cli.payloads import schema_cache
from headrace.client.errors import ClientError, SchemaFailed
from headrace.client.schemas.cache import SchemaCache
from headrace.client.schemas.registry import quoted
from headrace.config.topic import topic_settings
from headrace.model.errors import HeadraceError
from headrace.schemas.payload.errors import InvalidPayload
from headrace.schemas.payload.frames import frame_of
from headrace.schemas.record_rules import SchemaRule, rules_of

_SETTINGS = ("cleanup.policy",) + tuple(
    f"{part}.{name}" for part in ("key", "value") for name in ("schema.validation", "subject.name.strategy")
)

_NO_SUCH_SCHEMA = frozenset({40403, 42201})
"""Unknown, or not usable. Other refusals of the registry, such as a permission, say nothing about a message."""


class RefusedLine(NamedTuple):
    """The number of a line, and the message that was made of it."""

    number: int
    message: Any


def refusal_reason(bootstrap: str, topic: str, lines: Sequence[RefusedLine]) -> str | None:
    """The first of these lines with something wrong, and what it is; None if that cannot be found out."""
    try:
        with connected(bootstrap) as cluster:
            found = cluster.topic_settings(topic)
        settings = topic_settings({name: found[name] for name in _SETTINGS if name in found})
        rules, schemas = rules_of(topic, settings), schema_cache(bootstrap)
        belongs = cache(partial(_belongs, schemas))
        for number, message in lines:
            key, headers = message.key(), message.headers() or ()
            if settings.compacts and key is None:
                return f"line {number}: a compacted topic needs a key in every message"
            for rule in rules:
                data = key if rule.is_key else message.value()
                if data is not None and (problem := _problem(schemas, belongs, rule, data, headers)) is not None:
                    return f"line {number}: {rule.part}: {problem}"
    except (CommandFailed, ClientError, HeadraceError):
        # The refusal itself is what matters: a user may write to a topic without the permission to read its settings.
        return None
    return None


def _problem(
    schemas: SchemaCache,
    belongs: Callable[[int, str], bool],
    rule: SchemaRule,
    data: bytes,
    headers: Sequence[Header],
) -> str | None:
    try:
        frame = frame_of(data, headers, is_key=rule.is_key)
        codec = schemas.codec(frame.schema)
        if rule.checks_payload:
            indexes, body = frame.split(codec.type)
            codec.check(body, indexes)
    except InvalidPayload as error:
        return str(error)
    except SchemaFailed as error:
        if error.code not in _NO_SUCH_SCHEMA:
            raise
        return str(error)
    if rule.topic_subject is None or not isinstance(frame.schema, int):
        return None
    if belongs(frame.schema, rule.topic_subject):
        return None
    return f"the schema {frame.schema} does not belong to the subject {rule.topic_subject}"


def _belongs(schemas: SchemaCache, number: int, subject: str) -> bool:
    """Whether a subject, or the one it is an alias of, has a schema."""
    found = schemas.calls.call("GET", f"/schemas/ids/{number}/subjects")
    if subject in found:
        return True
    try:
        return schemas.calls.call("GET", f"/config/{quoted(subject)}").get("alias") in found
    except SchemaFailed:
        return False  # it has no settings
