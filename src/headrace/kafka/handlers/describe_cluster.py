"""DescribeCluster (60), versions 0-2: the cluster's id, controller and brokers.

- From v1 on the request selects brokers or controllers. Controllers have no endpoints of their own here:
  MISMATCHED_ENDPOINT_TYPE, and UNSUPPORTED_ENDPOINT_TYPE for an unknown type.
- v2 may include fenced brokers: those that are not alive, or have not been admitted since they started.
- Permissions: none for the brokers, as in Kafka; without DESCRIBE on the cluster its authorized operations are 0.
"""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka import authorized_operations, views
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.permissions import DESCRIBE_CLUSTER
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
    from kio.schema.describe_cluster.v2.response import DescribeClusterResponse

KEY = 60
BROKERS, CONTROLLERS = 1, 2


@handles(KEY, 0, 2, needs=(DESCRIBE_CLUSTER,))
def describe_cluster(ctx: Context, request: "DescribeClusterRequest") -> "DescribeClusterResponse":
    schema = ctx.schema
    endpoint_type = getattr(request, "endpoint_type", BROKERS)
    if endpoint_type != BROKERS:
        return make(
            schema.DescribeClusterResponse,
            throttle_time=NO_THROTTLE,
            error_code=(
                ErrorCode.mismatched_endpoint_type
                if endpoint_type == CONTROLLERS
                else ErrorCode.unsupported_endpoint_type
            ),
            error_message="this is an endpoint of a broker: ask it for brokers (endpoint type 1)",
            endpoint_type=BROKERS,
            cluster_id="",
            brokers=(),
        )
    image = ctx.services.metadata.image
    return make(
        schema.DescribeClusterResponse,
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        endpoint_type=BROKERS,
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        brokers=tuple(
            make(
                schema.DescribeClusterBroker,
                broker_id=broker.broker_id,
                host=endpoint.host,
                port=endpoint.port,
                rack=broker.rack,
                is_fenced=broker.is_fenced,
            )
            for broker, endpoint in views.brokers(ctx, image, are_all=True)
            if not broker.is_fenced or getattr(request, "include_fenced_brokers", False)
        ),
        cluster_authorized_operations=authorized_operations.on_cluster(
            ctx, request.include_cluster_authorized_operations
        ),
    )
