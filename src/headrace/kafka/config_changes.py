"""Setting changes for AlterConfigs and IncrementalAlterConfigs: resolves the resource and applies the change."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any, TypeVar

from kio.schema.errors import ErrorCode

from headrace.cluster.client_metrics import alter_client_metrics
from headrace.cluster.metadata import Metadata, SettingsEdit
from headrace.cluster.topics import check_name
from headrace.config.broker import BROKER_SETTINGS
from headrace.config.client_metrics import CLIENT_METRICS_SETTINGS
from headrace.config.group import GROUP_SETTINGS
from headrace.config.queue import QUEUE_SETTINGS
from headrace.config.schema_aliases import own_name, own_value
from headrace.config.settings import Setting
from headrace.config.topic import TOPIC_SETTINGS
from headrace.kafka.broker_loggers import change_levels, logger_level, logger_rows, set_levels
from headrace.kafka.config_entries import ConfigResourceType
from headrace.kafka.config_permissions import guarded, guarded_topic, require_alter
from headrace.kafka.dispatch import Context
from headrace.kafka.errors import error_code, error_message
from headrace.model.errors import HeadraceError, ProtocolError, SettingsError, UnknownTopic
from headrace.model.ids import TopicName
from headrace.model.image import TopicImage
from headrace.monitor.clients.subscriptions import subscription_of
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

_MAX_SUBSCRIPTION_NAME = 249
_TOPIC_ROWS = {**TOPIC_SETTINGS, **QUEUE_SETTINGS}


class AlterConfigOperation(IntEnum):
    """An operation of IncrementalAlterConfigs on one setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


R = TypeVar("R")

InForce = Callable[[str], str]
"""Returns the effective value of a setting as text: the base of an APPEND or SUBTRACT when the list was not set."""

MakeEdit = Callable[[Sequence[Any], Mapping[str, Setting], InForce], SettingsEdit]
"""Builds the edit from a resource's changes in the request, its settings and their effective values; raises
`HeadraceError` if the changes are not well formed."""


async def alter_resources(
    ctx: Context, request: Any, response: type[R], make_edit: MakeEdit, *, may_change_loggers: bool
) -> R:
    """Alter each resource independently, with one result for each."""
    counts = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    answers: list[Any] = []
    for resource in request.resources:
        error, message = ErrorCode.none, None
        try:
            if counts[resource.resource_type, resource.resource_name] > 1:
                raise ProtocolError("a resource must appear only once in a request")
            if resource.resource_type == ConfigResourceType.BROKER_LOGGER and not may_change_loggers:
                raise ProtocolError("the levels of loggers are changed one by one: use IncrementalAlterConfigs")
            require_alter(ctx, resource.resource_type, resource.resource_name)
            await _alter(ctx, resource, make_edit, validate_only=request.validate_only)
        except HeadraceError as failure:
            error, message = error_code(failure), error_message(failure)
        answers.append(
            make(
                ctx.schema.AlterConfigsResourceResponse,
                error_code=error,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return make(response, throttle_time=NO_THROTTLE, responses=tuple(answers))


async def _alter(ctx: Context, resource: Any, make_edit: MakeEdit, *, validate_only: bool) -> None:
    metadata = ctx.services.metadata
    names = Counter(config.name for config in resource.configs)
    if twice := [name for name, count in names.items() if count > 1]:
        raise ProtocolError(f"a setting must appear only once for a resource: {', '.join(twice)}")
    if resource.resource_type == ConfigResourceType.TOPIC:
        if not resource.resource_name:
            raise ProtocolError("settings of topics are changed topic by topic: name one")
        topic = existing_topic(metadata, check_name(resource.resource_name))
        settings = metadata.topic_settings(topic)
        edit = make_edit(
            _with_own_names(resource.configs),
            _TOPIC_ROWS,
            lambda name: _TOPIC_ROWS[name].render(settings.value(_TOPIC_ROWS[name])),
        )
        await metadata.alter_topic_settings(
            topic.name, guarded_topic(ctx, topic.name, edit), validate_only=validate_only
        )
    elif resource.resource_type == ConfigResourceType.GROUP:
        group_id = named_group(resource.resource_name)
        of_group = metadata.group_settings(group_id)
        edit = make_edit(
            resource.configs,
            GROUP_SETTINGS,
            lambda name: GROUP_SETTINGS[name].render(of_group.value(GROUP_SETTINGS[name])),
        )
        await metadata.alter_group_settings(group_id, edit, validate_only=validate_only)
    elif resource.resource_type == ConfigResourceType.BROKER_LOGGER:
        _alter_loggers(metadata, resource, make_edit, validate_only=validate_only)
    elif resource.resource_type == ConfigResourceType.CLIENT_METRICS:
        await _alter_client_metrics(metadata, resource, make_edit, validate_only=validate_only)
    else:
        broker_id = named_broker(metadata, resource.resource_type, resource.resource_name, may_be_another=True)
        edit = make_edit(
            resource.configs,
            BROKER_SETTINGS,
            lambda name: BROKER_SETTINGS[name].render(metadata.settings.value(name)),
        )
        await metadata.alter_broker_settings(broker_id, guarded(ctx, edit), validate_only=validate_only)


def _with_own_names(configs: Sequence[Any]) -> Sequence[Any]:
    """The changes of a topic's settings by our names; two names of one setting must not contradict each other."""
    changes: dict[str, Any] = {}
    for config in configs:
        value = None if config.value is None else own_value(config.name, config.value)
        change = replace(config, name=own_name(config.name), value=value)
        if changes.setdefault(change.name, change) != change:
            raise SettingsError(f"{config.name} contradicts another name of {change.name}: set one of them")
    return tuple(changes.values())


def _alter_loggers(metadata: Metadata, resource: Any, make_edit: MakeEdit, *, validate_only: bool) -> None:
    this_broker(metadata, resource.resource_name)
    if any(config.config_operation > AlterConfigOperation.DELETE for config in resource.configs):
        raise ProtocolError("the level of a logger is no list: set or delete it")
    before = set_levels()
    edit = make_edit(resource.configs, logger_rows(), logger_level)
    change_levels(before, edit(before), validate_only=validate_only)


async def _alter_client_metrics(metadata: Metadata, resource: Any, make_edit: MakeEdit, *, validate_only: bool) -> None:
    name, rows = named_subscription(resource.resource_name), CLIENT_METRICS_SETTINGS
    texts = metadata.image.client_metrics.get(name, {})
    edit = make_edit(resource.configs, rows, lambda each: texts.get(each) or rows[each].render(rows[each].default))
    await alter_client_metrics(metadata, name, edit, subscription_of, validate_only=validate_only)


def existing_topic(metadata: Metadata, name: str) -> TopicImage:
    topic = metadata.image.topics.get(TopicName(name))
    if topic is None:
        raise UnknownTopic(f"the topic {name} does not exist")
    return topic


def named_group(name: str) -> str:
    """Return the group that a resource names. It need not exist: settings may be set before the first member joins."""
    if not name:
        raise ProtocolError("settings of groups belong to one group: name it")
    return name


def named_broker(metadata: Metadata, resource_type: int, name: str, *, may_be_another: bool = False) -> int | None:
    """Return the broker that a resource names, or None for all. Another broker's settings can be altered here, but not
    described."""
    if resource_type != ConfigResourceType.BROKER:
        raise ProtocolError(
            f"settings of resource type {resource_type} are not supported: use topic (2), broker (4), broker logger "
            "(8), client metrics (16) or group (32)"
        )
    if not name:
        return None
    if name == str(metadata.broker_id):
        return metadata.broker_id
    if may_be_another:
        for broker_id in metadata.image.brokers:
            if name == str(broker_id):
                return broker_id
        raise ProtocolError(f"this is broker {metadata.broker_id}, and there is no broker {name} in its cluster")
    raise ProtocolError(f"this is broker {metadata.broker_id}: ask for it, or with an empty name for all brokers")


def this_broker(metadata: Metadata, name: str) -> None:
    """`ProtocolError` unless the name is that of this broker: only a broker itself knows its loggers."""
    if name != str(metadata.broker_id):
        raise ProtocolError(f"this is broker {metadata.broker_id}, and the loggers of broker {name!r} are there")


def named_subscription(name: str) -> str:
    """Return the client metrics subscription that a resource names."""
    if not name:
        raise ProtocolError("settings of client metrics belong to one subscription: name it")
    if len(name) > _MAX_SUBSCRIPTION_NAME or not name.isprintable() or "/" in name:
        raise ProtocolError(f"the name of a subscription has {_MAX_SUBSCRIPTION_NAME} printable characters, and no /")
    return name
