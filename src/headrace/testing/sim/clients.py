"""Clients of a simulated cluster: producers that retry forever, and consumers that read everything in order.

A producer writes to one partition. It is idempotent, has up to five batches in flight, and after any failure resends
all unacknowledged batches in order, as Kafka's clients do. Every value is unique.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from itertools import islice
from random import Random
from typing import Any, NamedTuple

from headrace.model.image import Endpoint
from headrace.protocol.client_codec import read_response, read_response_header, request_schema, write_request
from headrace.protocol.fetch_response import FetchedRecords, read_fetch_response
from headrace.records.batch import iter_headers
from headrace.records.builder import build_batch
from headrace.records.reader import Record, iter_records
from headrace.testing.sim.network import SimChannel, SimTransport
from headrace.testing.sim.world import Process, ProcessClock

ACKS_ALL = -1
PRODUCE, FETCH = 0, 1
_PRODUCE_VERSION = 9
_FETCH_VERSION = 12
_IN_FLIGHT_MAX = 5
_REQUEST_LIMIT_S = 6.0
_ACK_WITHIN_MS = 3000
_FETCH_WAIT_MS = 500
_FINAL_AFTER_S = 10.0
"""Longer than a broker may be unaware that it has lost or regained leadership."""

OUT_OF_ORDER_SEQUENCE = 45
UNKNOWN_PRODUCER_ID = 59

Place = tuple[str, int]
"""A topic and a partition of it."""

LeaderOf = Callable[[Place], int]
EndpointOf = Callable[[int], Endpoint]


@dataclass(slots=True)
class SimSend:
    """One batch of a producer, and its acknowledgement."""

    place: Place
    producer: str
    sequence: int
    values: tuple[bytes, ...]
    acks: int
    offset: int | None = None
    """The acknowledged offset; None until then."""


class SimRead(NamedTuple):
    place: Place
    offset: int
    value: bytes
    consumer: str


class TransactionPhase(Enum):
    OPEN = "open"
    COMMITTING = "committing"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(eq=False, slots=True)
class SimTransaction:
    name: str
    state: TransactionPhase = TransactionPhase.OPEN
    values: dict[Place, list[bytes]] = field(default_factory=dict)


class Observer:
    """Callbacks for the results of clients. The checks override those that they need."""

    def acked(self, send: SimSend, broker_id: int) -> None: ...

    def read(self, read: SimRead) -> None: ...

    def read_committed(self, read: SimRead) -> None: ...

    def wrote(self, transaction: SimTransaction, values: Sequence[bytes]) -> None: ...

    def ended(self, transaction: SimTransaction) -> None: ...

    def leadership(self, place: Place) -> tuple[int, int]:
        """The leader of a partition and its epoch."""
        return (-1, -1)

    def forgotten(self, send: SimSend, broker_id: int) -> None:
        """A broker has lost the batches before this one, all of which were acknowledged."""


class SimClient:
    """A connection to the leader of a partition, according to the client's metadata."""

    def __init__(self, process: Process, transport: SimTransport, leader_of: LeaderOf, endpoint_of: EndpointOf) -> None:
        self.process = process
        self._transport = transport
        self._leader_of = leader_of
        self._endpoint_of = endpoint_of
        self._channel: SimChannel | None = None
        self._correlation = 0
        self.broker_id = -1

    async def connect(self, place: Place) -> SimChannel | None:
        """A channel to the presumed leader; None if it cannot be reached."""
        leader = self._leader_of(place)
        if self._channel is not None and not self._channel.is_closed and leader == self.broker_id:
            return self._channel
        self.disconnect()
        if leader < 0:
            return None
        try:
            self._channel = await self._transport.connect(self._endpoint_of(leader))
        except OSError:
            return None
        self.broker_id = leader
        return self._channel

    def disconnect(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def frame(self, request: Any) -> bytes:
        self._correlation += 1
        return write_request(request, self._correlation, self.process.name)


class SimProducer:
    """An idempotent producer to one partition."""

    def __init__(
        self,
        name: str,
        place: Place,
        client: SimClient,
        clock: ProcessClock,
        random: Random,
        observer: Observer,
        *,
        first_producer_id: int,
        acks: int,
    ) -> None:
        self.name = name
        self.place = place
        self.acks = acks
        self.sends: list[SimSend] = []
        self.is_finished = False
        self.last_problem = ""
        self._client = client
        self._clock = clock
        self._random = random
        self._observer = observer
        self._producer_id = first_producer_id
        self._sequence = 0
        self._is_known = False
        """True if a broker has acknowledged a batch of this producer id."""
        self._count = 0
        self._waiting: deque[tuple[SimSend, bytes]] = deque()
        """The unacknowledged batches, in order."""
        self._is_stopping = False
        self._refused_by = (-1, -1)
        self._refused_since_s = 0.0

    def stop(self) -> None:
        """Send nothing new; unacknowledged batches are resent until they are acknowledged."""
        self._is_stopping = True

    async def run(self) -> None:
        while self._waiting or not self._is_stopping:
            if not self._is_stopping:
                for _ in range(self._random.choice((1, 1, 2, 3, _IN_FLIGHT_MAX))):
                    if len(self._waiting) < _IN_FLIGHT_MAX:
                        self._make_batch()
            if self._waiting and not await self._send_waiting():
                await asyncio.sleep(self._random.uniform(0.01, 0.3))
            else:
                await asyncio.sleep(self._random.expovariate(1 / 0.35))
        self.is_finished = True
        self._client.disconnect()

    def _make_batch(self) -> None:
        values = []
        for _ in range(self._random.randint(1, 3)):
            values.append(f"{self.name}/{self._count}".encode() + b"." * self._random.randint(0, 60))
            self._count += 1
        now_ms = self._clock.wall_ms()
        batch = build_batch(
            [Record(0, now_ms, None, value) for value in values],
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=self._sequence,
        )
        send = SimSend(self.place, self.name, self._sequence, tuple(values), self.acks)
        self._sequence += len(values)
        self.sends.append(send)
        self._waiting.append((send, batch))

    async def _send_waiting(self) -> bool:
        """Send all waiting batches, in order; True if all were acknowledged."""
        channel = await self._client.connect(self.place)
        if channel is None:
            return False
        broker_id = self._client.broker_id
        # The first batch of a producer goes alone: a broker without its state accepts any sequence as the first.
        several = islice(self._waiting, _IN_FLIGHT_MAX if self._is_known else 1)
        in_flight = [
            (send, channel.send(self._client.frame(produce_request(self.place, batch, self.acks))))
            for send, batch in several
        ]
        is_good = True
        for send, answer in in_flight:
            try:
                async with asyncio.timeout(_REQUEST_LIMIT_S):
                    frame = await answer
            except (OSError, TimeoutError) as error:
                self.last_problem = f"broker {broker_id}: {error!r}"
                self._client.disconnect()
                return False
            code, offset = read_produced(frame)
            if code == 0 and self._waiting and self._waiting[0][0] is send:
                self._waiting.popleft()
                self._is_known = True
                send.offset = offset
                self._observer.acked(send, broker_id)
                continue
            if code in (OUT_OF_ORDER_SEQUENCE, UNKNOWN_PRODUCER_ID) and is_good and self._is_final(broker_id):
                self._start_over(send, broker_id)
                return False
            self.last_problem = f"broker {broker_id}: error {code}"
            is_good = False
        return is_good

    def __str__(self) -> str:
        return f"{self.name} of {self.place}: {len(self._waiting)} batches are not acked, last {self.last_problem}"

    def _is_final(self, broker_id: int) -> bool:
        """True if the leader has reported missing batches for so long that it cannot be a former leader."""
        leadership, now_s = self._observer.leadership(self.place), self._client.process.time()
        if leadership != self._refused_by or leadership[0] != broker_id:
            self._refused_by, self._refused_since_s = leadership, now_s
        return now_s - self._refused_since_s > _FINAL_AFTER_S

    def _start_over(self, send: SimSend, broker_id: int) -> None:
        """Continue as a new producer: the broker lacks batches before the first unacknowledged one."""
        if self.acks == ACKS_ALL:
            self._observer.forgotten(send, broker_id)
        self._client.disconnect()
        self._waiting.clear()
        self._producer_id += 1
        self._sequence = 0
        self._is_known = False


class Consumer:
    """Reads one partition from its start, and polls at its end."""

    isolation_level = 0

    def __init__(self, name: str, place: Place, client: SimClient, random: Random, observer: Observer) -> None:
        self.name = name
        self.place = place
        self.position = 0
        self._client = client
        self._random = random
        self._observer = observer

    async def run(self) -> None:
        while True:
            if not await self._poll():
                await asyncio.sleep(self._random.uniform(0.05, 0.5))

    async def _poll(self) -> bool:
        channel = await self._client.connect(self.place)
        if channel is None:
            return False
        try:
            frame = await channel.exchange(self._client.frame(self._request()), _REQUEST_LIMIT_S)
        except OSError:
            self._client.disconnect()
            return False
        _, at = read_response_header(FETCH, _FETCH_VERSION, frame)
        parts = read_fetch_response(_FETCH_VERSION, frame, at).parts
        if not parts or parts[0].error_code:
            return False
        self._take(parts[0])
        return True

    def _take(self, part: FetchedRecords) -> None:
        data = b"".join((part.records,)) if part.records else b""
        for at, header in iter_headers(data):
            if header.next_offset <= self.position:
                continue
            for record in iter_records(data[at : at + header.size]):
                if record.offset >= self.position:
                    assert record.value is not None
                    self._observer.read(SimRead(self.place, record.offset, record.value, self.name))
            self.position = header.next_offset

    def _request(self) -> Any:
        schema = request_schema(FETCH, _FETCH_VERSION)
        topic, index = self.place
        return schema.FetchRequest(
            max_wait=timedelta(milliseconds=_FETCH_WAIT_MS),
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=self.isolation_level,
            topics=(
                schema.FetchTopic(
                    topic=topic,
                    partitions=(
                        schema.FetchPartition(partition=index, fetch_offset=self.position, partition_max_bytes=1 << 20),
                    ),
                ),
            ),
            forgotten_topics_data=(),
        )


def produce_request(place: Place, batch: bytes, acks: int, *, transactional_id: str | None = None) -> Any:
    schema = request_schema(PRODUCE, _PRODUCE_VERSION)
    part = schema.PartitionProduceData(index=place[1], records=batch)
    return schema.ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout=timedelta(milliseconds=_ACK_WITHIN_MS),
        topic_data=(schema.TopicProduceData(name=place[0], partition_data=(part,)),),
    )


def read_produced_all(frame: bytes | memoryview) -> Sequence[tuple[str, int, int, int]]:
    """Topic, partition, error code and base offset of each partition in a Produce response."""
    _, at = read_response_header(PRODUCE, _PRODUCE_VERSION, frame)
    response = read_response(PRODUCE, _PRODUCE_VERSION, frame, at)
    return [
        (topic.name, part.index, part.error_code.value, part.base_offset)
        for topic in response.responses
        for part in topic.partition_responses
    ]


def read_produced(frame: memoryview) -> tuple[int, int]:
    (_, _, code, offset), *_ = read_produced_all(frame)
    return code, offset
