"""Envelope (58), version 0: calls between brokers that Kafka's own APIs do not have.

- `request_data` is a call (`replication/calls.py`) and `response_data` its answer; principal and host are ignored. The
  table below has the service that carries out each call.
- Kafka uses it to forward a client's request to the controller. Here `forwarded_calls.py` forwards requests of the HTTP
  API, with the principal in the call.
- Listed in ApiVersions only on connections that identified as brokers or links, and accepted only from brokers, on the
  listener of brokers among themselves; from any other client it is CLUSTER_AUTHORIZATION_FAILED. The exceptions are the
  calls of links, which are clients of another cluster: `AskQueueState` (`replication/link_calls.py`), for any client
  that may read the queue, and `AskVerifiers`, which has conditions of its own (`kafka/link_verifiers.py`).
- Permissions: CLUSTER_ACTION on the cluster, else CLUSTER_AUTHORIZATION_FAILED; for `AskQueueState` READ on the queue's
  topic, else the answer of the call says so.
- A call that waits (a long poll) is *dispatched*: later calls on the same connection are answered after it. If the
  connection is lost, the call is cancelled.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from kio.schema.errors import ErrorCode

from headrace.kafka.audit_topic import AuditCall
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.forwarded_calls import ForwardedCall, serve_forwarded
from headrace.kafka.link_verifiers import answer_link
from headrace.kafka.permissions import CLUSTER_ACTION, READ_TOPIC
from headrace.kafka.services import Services
from headrace.mirror.reports import AskVerifiers, LinkCall
from headrace.model.queue_state import StateChangesPage
from headrace.monitor.calls import MonitorCall
from headrace.monitor.pipelines.calls import AnyPipelineCall
from headrace.protocol.codec import make
from headrace.queues.service import ServedQueueCall
from headrace.replication.calls import Serve, answer_to, call_name, call_names, serve_unknown, unknown_call
from headrace.replication.link_calls import AskQueueState
from headrace.replication.peers import BROKER_SOFTWARE, CLIENT_SOFTWARE
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
    (LinkCall, lambda services: services.links.serve),
    (MonitorCall, lambda services: services.monitor.serve),
    (ServedQueueCall, lambda services: services.queues.serve),
)
_SERVICES = {name: service for calls, service in _ROWS for name in call_names(calls)}
"""The service that carries out each call, by the name of the call."""
_LINK_CALLS = frozenset(call_names(AskQueueState))
"""The calls of links, which are clients."""
_decode_link_call = msgspec.msgpack.Decoder(AskQueueState).decode


@handles(KEY, 0, 0, needs=(CLUSTER_ACTION, READ_TOPIC))
def envelope(ctx: Context, request: "EnvelopeRequest") -> "EnvelopeResponse | Deferred[EnvelopeResponse]":
    software = ctx.peer.client_software.partition(" ")[0]
    call, loop = bytes(request.request_data), asyncio.get_running_loop()
    if call_name(call) in _LINK_CALLS:
        return _later(ctx, loop.create_task(_serve_link(ctx, call)))
    if software == CLIENT_SOFTWARE and call_name(call) == AskVerifiers.__name__:
        return _later(ctx, loop.create_task(answer_link(ctx, call)))
    is_broker = software == BROKER_SOFTWARE
    is_among_brokers = ctx.peer.listener == ctx.services.broker_listener
    if not (is_broker and is_among_brokers and ctx.allows(CLUSTER_ACTION)):
        return _answer(ctx, None, ErrorCode.cluster_authorization_failed)
    service = _SERVICES.get(call_name(call))
    serve = serve_unknown if service is None else service(ctx.services)
    return _later(ctx, loop.create_task(serve(call)))


async def _serve_link(ctx: Context, call: bytes) -> bytes:
    try:
        asked = _decode_link_call(call)
    except msgspec.MsgspecError as error:
        return unknown_call(error)

    async def work() -> StateChangesPage:
        ctx.require(READ_TOPIC, asked.queue)
        return await ctx.services.queues.state_changes(asked.queue, asked.topic_id, asked.position)

    return await answer_to(work)


def _later(ctx: Context, task: "asyncio.Task[bytes]") -> "Deferred[EnvelopeResponse]":
    """The answer to a call, once the task has it encoded."""
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


def _cancel(task: "asyncio.Future[bytes]") -> None:
    task.cancel()
