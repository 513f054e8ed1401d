"""Transactions in the simulation: a producer that commits some and aborts others, and a read_committed consumer.

The producer retries as long as it can find out a transaction's outcome. If it is fenced (after a timeout, say) before
its commit request, the transaction has failed; after it, the outcome is unknown. It has a new epoch for each
transaction (KIP-890): otherwise a very late EndTxn would end the next transaction, which no broker could detect.
"""

import asyncio
from datetime import timedelta
from random import Random
from typing import Any

from headrace.protocol.client_codec import read_response, read_response_header, request_schema, write_request
from headrace.protocol.fetch_response import FetchedRecords
from headrace.records.batch import iter_headers
from headrace.records.builder import build_batch
from headrace.records.markers import read_marker
from headrace.records.reader import Record, iter_records
from headrace.testing.sim.clients import (
    ACKS_ALL,
    Consumer,
    EndpointOf,
    LeaderOf,
    Observer,
    Place,
    SimRead,
    SimTransaction,
    TransactionPhase,
    produce_request,
    read_produced,
)
from headrace.testing.sim.network import SimChannel, SimTransport
from headrace.testing.sim.world import Process, ProcessClock

_FIND_COORDINATOR, _INIT_PRODUCER_ID, _ADD_PARTITIONS, _END = 10, 22, 24, 26
_VERSION, _END_VERSION = 3, 5
_LIMIT_S = 6.0
_TIMEOUT = timedelta(seconds=60)
_RETRIABLE = {3, 5, 6, 7, 14, 15, 16, 19, 20, 51, 56, 74, 75, 76, 100}
"""Among them: the leader or coordinator has moved, is loading, or is still completing the previous transaction."""


class _Fenced(Exception):
    """The coordinator has fenced this producer and ended its transaction."""


class SimTransactor:
    """A transactional producer to several partitions."""

    def __init__(
        self,
        name: str,
        places: list[Place],
        process: Process,
        transport: SimTransport,
        clock: ProcessClock,
        random: Random,
        observer: Observer,
        *,
        leader_of: LeaderOf,
        endpoint_of: EndpointOf,
        brokers: list[int],
    ) -> None:
        self.name = name
        self.transactions: list[SimTransaction] = []
        self.is_finished = False
        self.last_problem = ""
        self._places = places
        self._process = process
        self._transport = transport
        self._clock = clock
        self._random = random
        self._observer = observer
        self._leader_of = leader_of
        self._endpoint_of = endpoint_of
        self._brokers = brokers
        self._channels: dict[int, SimChannel] = {}
        self._coordinator = -1
        self._producer = (-1, -1)
        self._sequences: dict[Place, int] = {}
        self._count = 0
        self._correlation = 0
        self._is_stopping = False

    def __str__(self) -> str:
        return f"{self.name}: {len(self.transactions)} transactions, last problem {self.last_problem}"

    def stop(self) -> None:
        self._is_stopping = True

    async def run(self) -> None:
        while not self._is_stopping:
            await self._init()
            try:
                while not self._is_stopping:
                    await self._transact()
                    await asyncio.sleep(self._random.expovariate(1 / 0.5))
            except _Fenced:
                continue
        self.is_finished = True
        for channel in self._channels.values():
            channel.close()

    async def _transact(self) -> None:
        transaction = SimTransaction(f"{self.name}:{len(self.transactions)}")
        self.transactions.append(transaction)
        try:
            for place in self._random.sample(self._places, self._random.randint(1, len(self._places))):
                await self._add(place)
                for _ in range(self._random.randint(1, 2)):
                    await self._write(transaction, place)
            commits = self._random.random() < 0.7
            if commits:
                transaction.state = TransactionPhase.COMMITTING
            await self._end(committed=commits)
        except _Fenced:
            if transaction.state is TransactionPhase.OPEN:
                self._ended(transaction, TransactionPhase.ABORTED)
            raise
        self._ended(transaction, TransactionPhase.COMMITTED if commits else TransactionPhase.ABORTED)

    def _ended(self, transaction: SimTransaction, state: TransactionPhase) -> None:
        transaction.state = state
        self._observer.ended(transaction)

    # Requests

    async def _init(self) -> None:
        schema = request_schema(_INIT_PRODUCER_ID, _VERSION)
        request = schema.InitProducerIdRequest(transactional_id=self.name, transaction_timeout=_TIMEOUT)
        while True:
            response = await self._ask_coordinator(request)
            code = response.error_code.value
            if code == 0:
                self._use_producer(response)
                return
            await self._refused("init", code, may_be_fenced=False)

    def _use_producer(self, response: Any) -> None:
        self._producer = (response.producer_id, response.producer_epoch)
        self._sequences.clear()

    async def _add(self, place: Place) -> None:
        schema = request_schema(_ADD_PARTITIONS, _VERSION)
        producer_id, epoch = self._producer
        request = schema.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=(schema.AddPartitionsToTxnTopic(name=place[0], partitions=(place[1],)),),
        )
        while True:
            response = await self._ask_coordinator(request)
            (topic,) = response.results_by_topic_v3_and_below
            code = topic.results_by_partition[0].partition_error_code.value
            if code == 0:
                return
            await self._refused("add", code)

    async def _end(self, *, committed: bool) -> None:
        producer_id, epoch = self._producer
        request = request_schema(_END, _END_VERSION).EndTxnRequest(
            transactional_id=self.name, producer_id=producer_id, producer_epoch=epoch, committed=committed
        )
        while True:
            response = await self._ask_coordinator(request)
            code = response.error_code.value
            if code == 0:
                self._use_producer(response)
                return
            await self._refused("end", code)

    async def _write(self, transaction: SimTransaction, place: Place) -> None:
        values = []
        for _ in range(self._random.randint(1, 3)):
            values.append(f"{self.name}/{self._count}".encode())
            self._count += 1
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = sequence + len(values)
        transaction.values.setdefault(place, []).extend(values)
        self._observer.wrote(transaction, values)
        producer_id, epoch = self._producer
        batch = build_batch(
            [Record(0, self._clock.wall_ms(), None, value) for value in values],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
        request = produce_request(place, batch, ACKS_ALL, transactional_id=self.name)
        while True:
            leader = self._leader_of(place)
            frame = await self._exchange(leader, request) if leader >= 0 else None
            if frame is not None:
                code, _ = read_produced(frame)
                if code == 0:
                    return
                await self._refused("write", code)
            else:
                await self._pause()

    async def _ask_coordinator(self, request: Any) -> Any:
        """Send a request to the coordinator, retrying until there is a response."""
        key, version = request.__api_key__, request.__version__
        while True:
            if self._coordinator < 0:
                await self._find_coordinator()
            frame = await self._exchange(self._coordinator, request)
            if frame is not None:
                _, at = read_response_header(key, version, frame)
                return read_response(key, version, frame, at)
            self._coordinator = -1
            await self._pause()

    async def _find_coordinator(self) -> None:
        request = request_schema(_FIND_COORDINATOR, _VERSION).FindCoordinatorRequest(key=self.name, key_type=1)
        while True:
            frame = await self._exchange(self._random.choice(self._brokers), request)
            if frame is not None:
                _, at = read_response_header(_FIND_COORDINATOR, _VERSION, frame)
                response = read_response(_FIND_COORDINATOR, _VERSION, frame, at)
                if response.error_code.value == 0:
                    self._coordinator = response.node_id
                    return
                self.last_problem = f"find: {response.error_code!r}"
            await self._pause()

    async def _refused(self, what: str, code: int, *, may_be_fenced: bool = True) -> None:
        """Back off before a retry; `_Fenced` if the error is not retriable."""
        self.last_problem = f"{what}: error {code}"
        if code not in _RETRIABLE and may_be_fenced:
            raise _Fenced
        if what != "write":
            self._coordinator = -1
        await self._pause()

    async def _exchange(self, broker_id: int, request: Any) -> memoryview | None:
        """The response of a broker; None if there is none, and the outcome is unknown."""
        self._correlation += 1
        try:
            channel = self._channels.get(broker_id)
            if channel is None or channel.is_closed:
                channel = self._channels[broker_id] = await self._transport.connect(self._endpoint_of(broker_id))
            return await channel.exchange(write_request(request, self._correlation, self.name), _LIMIT_S)
        except OSError as error:
            self.last_problem = f"{error!r}"
            return None

    async def _pause(self) -> None:
        await asyncio.sleep(self._random.uniform(0.02, 0.3))


class CommittedConsumer(Consumer):
    """A read_committed consumer: skips the aborted transactions that the broker lists."""

    isolation_level = 1

    def _take(self, part: FetchedRecords) -> None:
        aborted = sorted(part.aborted, key=lambda entry: entry.first_offset)
        aborting: set[int] = set()
        data = bytes(part.records)
        for at, header in iter_headers(data):
            while aborted and aborted[0].first_offset <= header.last_offset:
                aborting.add(aborted.pop(0).producer_id)
            if header.next_offset <= self.position:
                continue
            batch = data[at : at + header.size]
            if header.is_control:
                if read_marker(batch, header) is not None:
                    aborting.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborting):
                for record in iter_records(batch):
                    if record.offset >= self.position:
                        assert record.value is not None
                        self._observer.read_committed(SimRead(self.place, record.offset, record.value, self.name))
            self.position = header.next_offset
