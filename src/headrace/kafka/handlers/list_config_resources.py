"""ListConfigResources (74), versions 0-1: the resources whose settings DescribeConfigs shows.

- These are topics, brokers, their loggers, groups with settings, and subscriptions to metrics of clients.
- Version 0 lists client metrics only. No types mean all; a type that Kafka does not list is UNSUPPORTED_VERSION.
- Permissions: DESCRIBE_CONFIGS on the cluster, else CLUSTER_AUTHORIZATION_FAILED.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.config_entries import ConfigResourceType
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.permissions import DESCRIBE_CLUSTER_CONFIGS
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
    from kio.schema.list_config_resources.v1.response import ListConfigResourcesResponse

KEY = 74
LISTED = frozenset(map(int, ConfigResourceType))


@handles(KEY, 0, 1, needs=(DESCRIBE_CLUSTER_CONFIGS,))
def list_config_resources(ctx: Context, request: "ListConfigResourcesRequest") -> "ListConfigResourcesResponse":
    schema = ctx.schema
    types = frozenset(getattr(request, "resource_types", (ConfigResourceType.CLIENT_METRICS,))) or LISTED
    known = types <= LISTED
    if not ctx.allows(DESCRIBE_CLUSTER_CONFIGS):
        return make(
            schema.ListConfigResourcesResponse,
            throttle_time=NO_THROTTLE,
            error_code=ErrorCode.cluster_authorization_failed,
            config_resources=(),
        )
    return make(
        schema.ListConfigResourcesResponse,
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none if known else ErrorCode.unsupported_version,
        config_resources=tuple(
            make(schema.ConfigResource, resource_name=name, resource_type=int(kind))
            for name, kind in _resources(ctx)
            if known and kind in types
        ),
    )


def _resources(ctx: Context) -> Iterator[tuple[str, ConfigResourceType]]:
    image = ctx.services.metadata.image
    for broker_id in sorted(image.brokers):
        yield str(broker_id), ConfigResourceType.BROKER
        yield str(broker_id), ConfigResourceType.BROKER_LOGGER
    for name in sorted(image.topics):
        yield name, ConfigResourceType.TOPIC
    for group_id in sorted(image.settings_by_group):
        yield group_id, ConfigResourceType.GROUP
    for subscription in sorted(image.client_metrics):
        yield subscription, ConfigResourceType.CLIENT_METRICS
