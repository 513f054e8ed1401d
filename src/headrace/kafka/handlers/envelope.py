"""Envelope (58), version 0: calls between brokers that Kafka's own APIs do not have.

- `request_data` is a call (`replication/calls.py`) and `response_data` its answer; principal and host are ignored. The
  table below has the service that carries out each call.
- Kafka uses it to forward a client's request to the controller. Here `forwarded_calls.py` forwards requests of the HTTP
  API, with the principal in the call.
- Listed in ApiVersions only on connections that identified as brokers, and accepted only from those, on the listener of
  brokers among themselves; from any other client it is CLUSTER_AUTHORIZATION_FAILED.
- Permissions: CLUSTER_ACTION on the cluster, else CLUSTER_AUTHORIZATION_FAILED.
- A call that waits (a long poll) is *dispatched*: later calls on the same connection are answered after it. If the
  connection is lost, the call is cancelled.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from headrace.kafka.audit_topic import AuditCall
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.forwarded_calls import ForwardedCall, serve_forwarded
from headrace.kafka.permissions import CLUSTER_ACTION
from headrace.kafka.services import Services
from headrace.monitor.calls import MonitorCall
from headrace.monitor.pipelines.calls import AnyPipelineCall
from headrace.protocol.codec import make
from headrace.queues.service import ServedQueueCall
from headrace.replication.calls import Serve, call_name, call_names, serve_unknown
from headrace.replication.peers import BROKER_SOFTWARE
from headrace.runtime.deferred import Deferred
from headrace.schemas.service import AnyRegistryCall

if TYPE_CHECKING:
    from kio.schema.envelope.v0.request import EnvelopeRequest
    from kio.schema.envelope.v0.response import EnvelopeResponse

log = logging.getLogger(__name__)

KEY = 58

_ROWS: tuple[tuple[Any, Callable[[Services], Serve]], ...] = (
    (AuditCall, lambda services: services.audit_topic.serve),
    (ForwardedCall, lambda services: partial(serve_forwarded, services)),
    (AnyPipelineCall, lambda services: services.pipelines.serve),
    (AnyRegistryCall, lambda services: services.registry.serve),
    (MonitorCall, lambda services: services.monitor.serve),
    (ServedQueueCall, lambda services: services.queues.serve),
)
_SERVICES = {name: service for calls, service in _ROWS for name in call_names(calls)}
"""The service that carries out each call, by the name of the call."""


@handles(KEY, 0, 0, needs=(CLUSTER_ACTION,))
def envelope(ctx: Context, request: "EnvelopeRequest") -> "EnvelopeResponse | Deferred[EnvelopeResponse]":
    is_broker = ctx.peer.client_software.partition(" ")[0] == BROKER_SOFTWARE
    is_among_brokers = ctx.peer.listener == ctx.services.broker_listener
    if not (is_broker and is_among_brokers and ctx.allows(CLUSTER_ACTION)):
        return _answer(ctx, None, ErrorCode.cluster_authorization_failed)
    call = bytes(request.request_data)
    service = _SERVICES.get(call_name(call))
    serve = serve_unknown if service is None else service(ctx.services)
    task = asyncio.get_running_loop().create_task(serve(call))
    later: Deferred[EnvelopeResponse] = Deferred(lambda: _cancel(task))

    def settled(done: "asyncio.Task[bytes]") -> None:
        if done.cancelled():
            later.resolve(_answer(ctx, None, ErrorCode.network_exception))
        elif (error := done.exception()) is not None:
            log.error("a call of another broker failed", exc_info=error)
            later.resolve(_answer(ctx, None, ErrorCode.unknown_server_error))
        else:
            later.resolve(_answer(ctx, done.result(), ErrorCode.none))

    task.add_done_callback(settled)
    return later


def _answer(ctx: Context, data: bytes | None, code: ErrorCode) -> "EnvelopeResponse":
    return make(ctx.schema.EnvelopeResponse, response_data=data, error_code=code)


def _cancel(task: "asyncio.Task[bytes]") -> None:
    task.cancel()
