"""Checks of the permissions on topics that a request names, or that an answer would name."""

from collections.abc import Iterable

from headrace.kafka.dispatch import Context
from headrace.kafka.permissions import DESCRIBE_TOPIC, Need
from headrace.model.errors import TopicNotAuthorized

_NONE: frozenset[str] = frozenset()


def forbidden_topics(ctx: Context, need: Need, names: Iterable[str | None]) -> frozenset[str]:
    """Return the topics on which the client lacks a permission. Each is checked once, whether or not it exists; None
    stands for an unknown topic id. While authorization is off nothing is looked at."""
    if ctx.services.security.authorizer is None:
        return _NONE
    return frozenset(name for name in dict.fromkeys(names) if name is not None and not ctx.allows(need, name))


def check_described(ctx: Context, names: Iterable[str]) -> None:
    """Refuse to describe a group with topics that the client may not describe, without a word about which."""
    if forbidden_topics(ctx, DESCRIBE_TOPIC, names):
        raise TopicNotAuthorized("the group has topics that this client is not allowed to describe")
