"""AlterConfigs (33), versions 0-2: replace all settings that are set on a topic, a group or a running broker.

Settings that the request does not name revert to their defaults. Each resource succeeds or fails as a whole; an unknown
or invalid setting is INVALID_CONFIG with the reason, and nothing of that resource changes. Only settings that take
effect without a restart can be changed on a broker. Log levels cannot be replaced, as in Kafka: INVALID_REQUEST.

Permissions: ALTER_CONFIGS on the topic or on the group, else TOPIC_ or GROUP_AUTHORIZATION_FAILED; on the cluster for
all others, else CLUSTER_AUTHORIZATION_FAILED. A change of `authorization.enable` or `allow.everyone.if.no.acl.found`
also needs ALTER on the cluster. On a topic, a change of `queue.attributes` also needs ALTER on the topic, a new
`queue.dead.letter` WRITE on that queue, and `encryption.at.rest=shredded` DELETE on the topic.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.cluster.metadata import SettingsEdit
from headrace.config.settings import Setting
from headrace.kafka.config_changes import InForce, alter_resources
from headrace.kafka.config_permissions import ALTER_NEEDS
from headrace.kafka.dispatch import Context, handles
from headrace.model.errors import ProtocolError

if TYPE_CHECKING:
    from kio.schema.alter_configs.v2.request import AlterableConfig, AlterConfigsRequest
    from kio.schema.alter_configs.v2.response import AlterConfigsResponse

KEY = 33


@handles(KEY, 0, 2, needs=ALTER_NEEDS)
async def alter_configs(ctx: Context, request: "AlterConfigsRequest") -> "AlterConfigsResponse":
    response: type[AlterConfigsResponse] = ctx.schema.AlterConfigsResponse
    return await alter_resources(ctx, request, response, _replace_all, may_change_loggers=False)


def _replace_all(configs: "Sequence[AlterableConfig]", rows: Mapping[str, Setting], in_force: InForce) -> SettingsEdit:
    if empty := [config.name for config in configs if config.value is None]:
        raise ProtocolError(f"a setting needs a value: {', '.join(empty)}")
    replacement = {config.name: config.value or "" for config in configs}
    return lambda _: replacement
