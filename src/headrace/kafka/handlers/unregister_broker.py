"""UnregisterBroker (64), version 0: remove a broker from the cluster permanently.

An unknown broker is BROKER_ID_NOT_REGISTERED, as in Kafka. A broker of the cluster is removed by draining and stopping
it, so that no replica is lost: INVALID_REQUEST says how, where Kafka unregisters it at once.

Permissions: ALTER on the cluster, else CLUSTER_AUTHORIZATION_FAILED.
"""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.kafka.permissions import ALTER_CLUSTER, not_authorized
from headrace.model.ids import BrokerId
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest
    from kio.schema.unregister_broker.v0.response import UnregisterBrokerResponse

KEY = 64


@handles(KEY, 0, 0, needs=(ALTER_CLUSTER,))
def unregister_broker(ctx: Context, request: "UnregisterBrokerRequest") -> "UnregisterBrokerResponse":
    broker_id = BrokerId(request.broker_id)
    if not ctx.allows(ALTER_CLUSTER):
        error, message = ErrorCode.cluster_authorization_failed, str(not_authorized(ALTER_CLUSTER))
    elif broker_id in ctx.services.metadata.image.brokers:
        error, message = (
            ErrorCode.invalid_request,
            (
                f"broker {broker_id} leaves the cluster when it is stopped after its replicas were moved away: set "
                "broker.draining=true on it, wait until it has none, and stop it"
            ),
        )
    else:
        error, message = ErrorCode.broker_id_not_registered, f"there is no broker {broker_id} in the cluster"
    return make(ctx.schema.UnregisterBrokerResponse, throttle_time=NO_THROTTLE, error_code=error, error_message=message)
