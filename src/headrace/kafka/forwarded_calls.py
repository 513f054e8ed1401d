"""Requests of Kafka's APIs that the HTTP API makes for a person, on this broker or on another one.

A request is handled as if the person had sent it over a connection: the same handler, with the same permissions, audit
events and errors. To another broker it travels in an Envelope together with the principal, which that broker believes
because it accepts Envelopes from brokers only, on their listener. A broker that does not know the call yet refuses it.

Limits: only the APIs in `FORWARDED`, none of which holds state of a connection; an answer of at most
`MAX_ANSWER_BYTES`.
"""

import asyncio
from types import CoroutineType
from typing import Any

import msgspec

from headrace.kafka.answers import encode_answer
from headrace.kafka.audited import route
from headrace.kafka.dispatch import Context, Peer
from headrace.kafka.outbox import FileRange
from headrace.kafka.services import Services
from headrace.model.errors import PeerUnavailable, PolicyViolation, ProtocolError
from headrace.model.features import SECURITY_LEVEL
from headrace.model.ids import BrokerId
from headrace.model.image import Endpoint
from headrace.protocol.client_codec import read_response, read_response_header, write_request
from headrace.protocol.codec import api_name, peek_api, read_request_header
from headrace.replication.calls import Call, answer_to, ask, unknown_call
from headrace.replication.peers import Peers
from headrace.runtime.deferred import Deferred
from headrace.runtime.disk import Buffer
from headrace.security.subject import Subject

MAX_ANSWER_BYTES = 16 * 1024 * 1024
FORWARDED = frozenset(
    {
        0,  # Produce
        1,  # Fetch
        2,  # ListOffsets
        3,  # Metadata
        8,  # OffsetCommit
        9,  # OffsetFetch
        10,  # FindCoordinator
        15,  # DescribeGroups
        16,  # ListGroups
        19,  # CreateTopics
        20,  # DeleteTopics
        21,  # DeleteRecords
        22,  # InitProducerId
        29,  # DescribeAcls
        30,  # CreateAcls
        31,  # DeleteAcls
        32,  # DescribeConfigs
        35,  # DescribeLogDirs
        37,  # CreatePartitions
        42,  # DeleteGroups
        43,  # ElectLeaders
        44,  # IncrementalAlterConfigs
        45,  # AlterPartitionReassignments
        46,  # ListPartitionReassignments
        47,  # OffsetDelete
        50,  # DescribeUserScramCredentials
        51,  # AlterUserScramCredentials
        61,  # DescribeProducers
        65,  # DescribeTransactions
        66,  # ListTransactions
        69,  # ConsumerGroupDescribe
        77,  # ShareGroupDescribe
        89,  # StreamsGroupDescribe
        90,  # DescribeShareGroupOffsets
        91,  # AlterShareGroupOffsets
        92,  # DeleteShareGroupOffsets
    }
)
"""The keys of the APIs that may be forwarded."""

CLIENT_ID = "dashboard"
_SOFTWARE = "headrace-http"
_LANE, _WAITING_LANE = "forwarded", "forwarded-waiting"
_TIMEOUT_S = 30.0


class ForwardedCall(Call, frozen=True):
    """A request of one of Kafka's APIs, with its header and without the length, and who makes it."""

    request: bytes
    principal: str
    host: str
    mechanism: str
    listener: str

    level = SECURITY_LEVEL


_decode_call = msgspec.msgpack.Decoder(ForwardedCall).decode


async def serve_forwarded(services: Services, call: bytes) -> bytes:
    """Handle the request that another broker has received over HTTP; the encoded answer."""
    try:
        asked = _decode_call(call)
    except msgspec.MsgspecError as error:
        return unknown_call(error)
    subject = Subject(asked.principal, asked.host, asked.mechanism, asked.listener)
    return await answer_to(lambda: _perform(services, subject, asked.request))


class ForwardedCalls:
    """Implements `admin.kafka_calls.KafkaCalls`."""

    def __init__(self, services: Services, peers: Peers | None) -> None:
        """`peers` is None on a single node."""
        self._services = services
        self._peers = peers

    async def call(
        self,
        subject: Subject,
        request: Any,
        *,
        broker_id: int | None = None,
        client_id: str = CLIENT_ID,
        wait_s: float = 0,
    ) -> Any:
        """The response entity to a kio request entity. `broker_id` is None for this broker."""
        key, version = request.__api_key__, request.__version__
        frame = write_request(request, 0, client_id)
        if broker_id is None or broker_id == self._services.metadata.broker_id:
            answer = await _perform(self._services, subject, frame)
        else:
            answer = await self._ask(BrokerId(broker_id), ForwardedCall(frame, *subject), wait_s)
        _, body_at = read_response_header(key, version, answer)
        return read_response(key, version, answer, body_at)

    async def _ask(self, broker_id: BrokerId, call: ForwardedCall, wait_s: float) -> bytes:
        if self._peers is None or not self._services.metadata.image.is_alive(broker_id):
            raise PeerUnavailable(f"broker {broker_id} is down")
        lane = _WAITING_LANE if wait_s else _LANE
        return await ask(self._peers, broker_id, call, bytes, lane=lane, timeout_s=_TIMEOUT_S + wait_s)


async def _perform(services: Services, subject: Subject, frame: bytes) -> bytes:
    """The encoded answer of a request's handler, with its header."""
    key, version, _ = peek_api(frame)
    found = route(key, version) if key in FORWARDED else None
    if found is None:
        raise ProtocolError(f"{api_name(key)} version {version} is not forwarded")
    header = read_request_header(frame, flexible=found.flexible)
    peer = Peer(
        f"{subject.host}:0",
        Endpoint("", 0),
        client_software=_SOFTWARE,
        subject=subject,
        listener=services.broker_listener,
    )
    context = Context(header, peer, services)
    result = found.handler(context, found.read(frame, header))
    if isinstance(result, CoroutineType):
        result = await result
    if isinstance(result, Deferred):
        result = await _settled(result)
    parts = encode_answer(context, result)
    if sum(map(len, parts)) > MAX_ANSWER_BYTES:
        raise PolicyViolation(f"the answer to {api_name(key)} has more than {MAX_ANSWER_BYTES} bytes: ask for less")
    ranges = [part for part in parts if isinstance(part, FileRange)]
    if not ranges:
        return b"".join([part for part in parts if not isinstance(part, FileRange)])
    loop = asyncio.get_running_loop()
    return b"".join(await loop.run_in_executor(services.workers, lambda: [_bytes_of(part) for part in parts]))


async def _settled(deferred: Deferred[Any]) -> Any:
    """Wait for an answer; a caller that goes away ends the wait of the handler."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    deferred.then(lambda answer: None if future.done() else future.set_result(answer))
    try:
        return await future
    except asyncio.CancelledError:
        deferred.hurry()
        raise


def _bytes_of(part: Buffer | FileRange) -> Buffer:
    return part.file.read(part.position, part.length) if isinstance(part, FileRange) else part
