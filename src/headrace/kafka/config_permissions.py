"""Permissions for settings: of the topic or the group that they belong to, or of the cluster for brokers' settings."""

from collections.abc import Mapping

from headrace.cluster.metadata import SettingsEdit
from headrace.kafka.config_entries import ResourceType
from headrace.kafka.dispatch import Context
from headrace.kafka.permissions import (
    ALTER_CLUSTER,
    ALTER_CLUSTER_CONFIGS,
    ALTER_GROUP_CONFIGS,
    ALTER_TOPIC_CONFIGS,
    DESCRIBE_CLUSTER_CONFIGS,
    DESCRIBE_GROUP_CONFIGS,
    DESCRIBE_TOPIC_CONFIGS,
)

ACCESS_SETTINGS = ("authorization.enable", "allow.everyone.if.no.acl.found")
"""Settings that decide whether ACLs count. A client that can change them can give itself any permission, as one that
can change ACLs, so it needs the same permission."""


def require_describe(ctx: Context, resource_type: int, name: str) -> None:
    """Raise `NotAuthorized` unless the client may see the settings of the resource."""
    if resource_type == ResourceType.TOPIC:
        ctx.require(DESCRIBE_TOPIC_CONFIGS, name)
    elif resource_type == ResourceType.GROUP:
        ctx.require(DESCRIBE_GROUP_CONFIGS, name)
    else:
        ctx.require(DESCRIBE_CLUSTER_CONFIGS)


def require_alter(ctx: Context, resource_type: int, name: str) -> None:
    """Raise `NotAuthorized` unless the client may change the settings of the resource."""
    if resource_type == ResourceType.TOPIC:
        ctx.require(ALTER_TOPIC_CONFIGS, name)
    elif resource_type == ResourceType.GROUP:
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
