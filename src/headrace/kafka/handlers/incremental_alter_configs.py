"""IncrementalAlterConfigs (44), versions 0-1: change single settings of a topic, a group, a running broker or
its loggers.

- SET sets a value, DELETE reverts to the default, APPEND and SUBTRACT add to and remove from list settings; a list that
  was not set starts from its effective value.
- Each resource succeeds or fails as a whole: an unknown or invalid setting is INVALID_CONFIG with the reason. Deleting
  one that is unknown or not set succeeds: tools delete what they may have set. A resource or a setting named twice, a
  missing value and an unknown operation are INVALID_REQUEST.
- Kafka's settings without effect here (`config/kafka_only.py`) are stored and shown like any other.
- Only settings that take effect without a restart can be changed on a broker.
- Log levels (BROKER_LOGGER) are changed on the broker that gets the request, until it restarts. A subscription
  to metrics of clients (CLIENT_METRICS) that has no settings left is deleted.

Permissions: ALTER_CONFIGS on the topic or on the group, else TOPIC_ or GROUP_AUTHORIZATION_FAILED; on the cluster for
all others, else CLUSTER_AUTHORIZATION_FAILED. A change of `authorization.enable` or `allow.everyone.if.no.acl.found`
also needs ALTER on the cluster. On a topic, a change of `queue.attributes` also needs ALTER on the topic, a new
`queue.dead.letter` WRITE on that queue, and `encryption.at.rest=shredded` DELETE on the topic.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.cluster.metadata import SettingsEdit
from headrace.config.settings import Kind, Setting, did_you_mean
from headrace.kafka.config_changes import AlterConfigOperation, InForce, alter_resources
from headrace.kafka.config_permissions import ALTER_NEEDS
from headrace.kafka.dispatch import Context, handles
from headrace.model.errors import InvalidSettings, ProtocolError

if TYPE_CHECKING:
    from kio.schema.incremental_alter_configs.v1.request import AlterableConfig, IncrementalAlterConfigsRequest
    from kio.schema.incremental_alter_configs.v1.response import IncrementalAlterConfigsResponse

KEY = 44


@handles(KEY, 0, 1, needs=ALTER_NEEDS)
async def incremental_alter_configs(
    ctx: Context, request: "IncrementalAlterConfigsRequest"
) -> "IncrementalAlterConfigsResponse":
    response: type[IncrementalAlterConfigsResponse] = ctx.schema.IncrementalAlterConfigsResponse
    return await alter_resources(ctx, request, response, _change_some, may_change_loggers=True)


def _change_some(configs: "Sequence[AlterableConfig]", rows: Mapping[str, Setting], in_force: InForce) -> SettingsEdit:
    changes: list[tuple[str, str, AlterConfigOperation]] = []
    for config in configs:
        number = int(config.config_operation)
        if number not in list(AlterConfigOperation):
            raise ProtocolError(f"{config.name}: there is no operation {number}")
        operation = AlterConfigOperation(number)
        if config.value is None and operation is not AlterConfigOperation.DELETE:
            raise ProtocolError(f"{config.name}: a value is missing")
        changes.append((config.name, config.value or "", operation))

    def edit(current: Mapping[str, str]) -> Mapping[str, str]:
        changed = dict(current)
        for name, value, operation in changes:
            row = rows.get(name)
            if operation is AlterConfigOperation.DELETE:
                changed.pop(name, None)
            elif row is None and name not in current:
                raise InvalidSettings(f"unknown setting {name}{did_you_mean(name, rows)}")
            elif operation is AlterConfigOperation.SET or row is None:
                changed[name] = value
            else:
                before = current[name] if name in current else in_force(name)
                changed[name] = _merge(row, before, value, operation)
        return changed

    return edit


def _merge(row: Setting, before: str, change: str, operation: AlterConfigOperation) -> str:
    if row.kind is not Kind.LIST:
        verb = "appended to" if operation is AlterConfigOperation.APPEND else "subtracted from"
        raise InvalidSettings(f"{row.name} is not a list: nothing can be {verb} it")
    items, named = _items(before), _items(change)
    if operation is AlterConfigOperation.APPEND:
        return ",".join(dict.fromkeys(items + named))
    return ",".join(item for item in items if item not in named)


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
