"""Permissions for settings: of the topic or the group that they belong to, or of the cluster for brokers' settings."""

from collections.abc import Collection, Mapping

from headrace.cluster.metadata import SettingsEdit
from headrace.kafka.config_entries import ConfigResourceType
from headrace.kafka.dispatch import Context
from headrace.kafka.permissions import (
    ALTER_CLUSTER,
    ALTER_CLUSTER_CONFIGS,
    ALTER_GROUP_CONFIGS,
    ALTER_TOPIC,
    ALTER_TOPIC_CONFIGS,
    DELETE_TOPIC,
    DESCRIBE_CLUSTER_CONFIGS,
    DESCRIBE_GROUP_CONFIGS,
    DESCRIBE_TOPIC_CONFIGS,
    WRITE_TOPIC,
)

ACCESS_SETTINGS = ("authorization.enable", "allow.everyone.if.no.acl.found")
"""Settings that decide whether ACLs count. A client that can change them can give itself any permission, as one that
can change ACLs, so it needs the same permission."""

PUBLIC_SETTINGS = frozenset({"http.listeners"})
"""Settings of a broker that every client may see, as it sees the addresses of brokers in Metadata, if it asks for these
by their names only: where a broker serves queues over HTTP, which asks for permissions of its own."""

ALTER_NEEDS = (
    ALTER_CLUSTER_CONFIGS,
    ALTER_TOPIC_CONFIGS,
    ALTER_GROUP_CONFIGS,
    ALTER_CLUSTER,
    ALTER_TOPIC,
    WRITE_TOPIC,
    DELETE_TOPIC,
)
"""The permissions that a change of settings may need."""


def require_describe(ctx: Context, resource_type: int, name: str, keys: Collection[str] = ()) -> None:
    """Raise `NotAuthorized` unless the client may see these settings of the resource, or all without any."""
    if resource_type == ConfigResourceType.BROKER and name and keys and PUBLIC_SETTINGS.issuperset(keys):
        return
    if resource_type == ConfigResourceType.TOPIC:
        ctx.require(DESCRIBE_TOPIC_CONFIGS, name)
    elif resource_type == ConfigResourceType.GROUP:
        ctx.require(DESCRIBE_GROUP_CONFIGS, name)
    else:
        ctx.require(DESCRIBE_CLUSTER_CONFIGS)


def require_alter(ctx: Context, resource_type: int, name: str) -> None:
    """Raise `NotAuthorized` unless the client may change the settings of the resource."""
    if resource_type == ConfigResourceType.TOPIC:
        ctx.require(ALTER_TOPIC_CONFIGS, name)
    elif resource_type == ConfigResourceType.GROUP:
        ctx.require(ALTER_GROUP_CONFIGS, name)
    else:
        ctx.require(ALTER_CLUSTER_CONFIGS)


def guarded(ctx: Context, edit: SettingsEdit) -> SettingsEdit:
    """Return the edit of a broker's settings such that changing an access setting needs ALTER on the cluster."""

    def checked(before: Mapping[str, str]) -> Mapping[str, str]:
        after = edit(before)
        if any(before.get(name) != after.get(name) for name in ACCESS_SETTINGS):
            ctx.require(ALTER_CLUSTER)
        return after

    return checked


def require_values(ctx: Context, topic: str, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Raise `NotAuthorized` unless the client may also give a topic these settings for their effect: as over SQS, the
    attributes of a queue have its policy, and its dead letters are written to another queue."""

    def is_new(name: str) -> bool:
        return before.get(name) != after.get(name)

    if is_new("queue.attributes"):
        ctx.require(ALTER_TOPIC, topic)
    if is_new("queue.dead.letter") and after.get("queue.dead.letter"):
        ctx.require(WRITE_TOPIC, after["queue.dead.letter"])
    if is_new("encryption.at.rest") and after.get("encryption.at.rest") == "shredded":
        ctx.require(DELETE_TOPIC, topic)


def guarded_topic(ctx: Context, topic: str, edit: SettingsEdit) -> SettingsEdit:
    """Return the edit of a topic's settings such that their values are checked, too (`require_values`)."""

    def checked(before: Mapping[str, str]) -> Mapping[str, str]:
        after = edit(before)
        require_values(ctx, topic, before, after)
        return after

    return checked
