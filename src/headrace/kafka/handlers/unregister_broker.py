"""UnregisterBroker (64), version 0: take a broker out of the cluster for good.

A broker that is not of the cluster is BROKER_ID_NOT_REGISTERED, as in Kafka. One that is leaves the cluster by being
drained and stopped, so that no replica is lost with it: INVALID_REQUEST says how, where Kafka forgets it at once.
"""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.model.ids import BrokerId
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest
    from kio.schema.unregister_broker.v0.response import UnregisterBrokerResponse

KEY = 64


@handles(KEY, 0, 0)
def unregister_broker(ctx: Context, request: "UnregisterBrokerRequest") -> "UnregisterBrokerResponse":
    broker_id = BrokerId(request.broker_id)
    if broker_id in ctx.services.metadata.image.brokers:
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
