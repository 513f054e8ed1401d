"""Adding partitions to transactions, or verifying them, at the coordinator (KIP-890).

Before a partition accepts the first batch of a transaction, its leader asks the coordinator to add the partition
(clients of transaction version 2) or to verify that it was added (older clients). Otherwise a late batch would open a
transaction that is never ended. If this broker is the coordinator it is a local call, else an AddPartitionsToTxn
request.

A marker may be written between the response and the append. The batch would then open a new transaction: a
`MarkerGuard` held in the meantime detects that.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from kio.schema.errors import ErrorCode

from headrace.cluster.metadata import Metadata
from headrace.model.errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    HeadraceError,
    PeerUnavailable,
    ProtocolError,
)
from headrace.model.ids import BrokerId, ProducerIdAndEpoch, by_topic
from headrace.protocol.client_codec import request_schema
from headrace.protocol.codec import make
from headrace.replication.peers import Peers
from headrace.transactions.peer_errors import error_for
from headrace.transactions.records import Place
from headrace.transactions.request_batch import RequestBatch

log = logging.getLogger(__name__)

_ADD_PARTITIONS, _VERSION = 24, 5
_LANE = "transactions"
_PER_REQUEST = 500
_TIMEOUT_S = 10.0
_CONCURRENT_WAITS_S = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32)
"""The backoff while the producer's last transaction is still being completed."""

Problems = dict[Place, HeadraceError]
"""The error of each partition that could not be added or verified; the others succeeded."""


class TransactionCoordination(Protocol):
    """The part of `TransactionService` used here."""

    def is_here(self, transactional_id: str) -> bool: ...

    def leader_for(self, transactional_id: str) -> BrokerId: ...

    async def add(self, transactional_id: str, producer: ProducerIdAndEpoch, places: Iterable[Place]) -> None: ...

    def verify(self, transactional_id: str, producer: ProducerIdAndEpoch, place: Place) -> None: ...


class _AddRequest(NamedTuple):
    transactional_id: str
    producer: ProducerIdAndEpoch
    places: tuple[Place, ...]
    adds: bool
    done: "asyncio.Future[Problems]"


class PartitionAdder:
    """Adds partitions to transactions at their coordinator, on this or another broker."""

    def __init__(self, transactions: TransactionCoordination, metadata: Metadata, peers: Peers | None) -> None:
        """`peers` is None on a single node."""
        self._transactions = transactions
        self._metadata = metadata
        self._peers = peers
        self._outgoing: dict[BrokerId, RequestBatch[_AddRequest]] = {}

    async def join(
        self, transactional_id: str, producer: ProducerIdAndEpoch, places: Iterable[Place], *, adds: bool
    ) -> Problems:
        """Add partitions to a producer's transaction, or (without `adds`) verify that they were added."""
        places = tuple(places)
        try:
            if self._peers is None or self._transactions.is_here(transactional_id):
                return await self._join_here(transactional_id, producer, places, adds=adds)
            for wait_s in _CONCURRENT_WAITS_S:
                problems = await self._ask(self._peers, transactional_id, producer, places, adds=adds)
                if not any(isinstance(problem, ConcurrentTransactions) for problem in problems.values()):
                    return problems
                await asyncio.sleep(wait_s)
            return problems
        except HeadraceError as error:
            return dict.fromkeys(places, error)

    async def stop(self) -> None:
        outgoing, self._outgoing = tuple(self._outgoing.values()), {}
        for batching in outgoing:
            await batching.stop()

    async def _join_here(
        self, transactional_id: str, producer: ProducerIdAndEpoch, places: Sequence[Place], *, adds: bool
    ) -> Problems:
        if adds:
            await self._transactions.add(transactional_id, producer, places)
            return {}
        problems: Problems = {}
        for place in places:
            try:
                self._transactions.verify(transactional_id, producer, place)
            except HeadraceError as error:
                problems[place] = error
        return problems

    async def _ask(
        self,
        peers: Peers,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        places: tuple[Place, ...],
        *,
        adds: bool,
    ) -> Problems:
        broker_id = self._transactions.leader_for(transactional_id)
        outgoing = self._outgoing.get(broker_id)
        if outgoing is None:
            send = partial(self._send, peers, broker_id)
            outgoing = self._outgoing[broker_id] = RequestBatch(send, limit=_PER_REQUEST)
        done: asyncio.Future[Problems] = asyncio.get_running_loop().create_future()
        outgoing.add(_AddRequest(transactional_id, producer, places, adds, done))
        return await done

    async def _send(self, peers: Peers, broker_id: BrokerId, some: Sequence[_AddRequest]) -> None:
        # A request names a transactional id once; further items for it wait for the next request.
        first: dict[str, _AddRequest] = {}
        for wanted in some:
            if first.setdefault(wanted.transactional_id, wanted) is not wanted:
                self._outgoing[broker_id].add(wanted)
        problem: HeadraceError | None = None
        codes: dict[str, dict[Place, ErrorCode]] = {}
        try:
            answer = await peers.call(broker_id, _request(first.values()), lane=_LANE, timeout_s=_TIMEOUT_S)
            if answer.error_code is not ErrorCode.none:
                # CLUSTER_AUTHORIZATION_FAILED, if the principal of this broker lacks CLUSTER_ACTION.
                refusal = f"broker {broker_id} refuses AddPartitionsToTxn: {answer.error_code.name.upper()}"
                log.warning("%s", refusal)
                problem = CoordinatorNotAvailable(refusal)
            codes = {
                transaction.transactional_id: {
                    (topic.name, part.partition_index): part.partition_error_code
                    for topic in transaction.topic_results
                    for part in topic.results_by_partition
                }
                for transaction in answer.results_by_transaction
            }
        except (PeerUnavailable, ProtocolError) as error:
            problem = CoordinatorNotAvailable(f"the transaction coordinator cannot be reached: {error}")
        except Exception as error:
            # The waiting callers must get a result.
            log.exception("AddPartitionsToTxn to broker %d failed", broker_id)
            problem = CoordinatorNotAvailable(f"the transaction coordinator cannot be reached: {error}")
        for wanted in first.values():
            if not wanted.done.done():
                wanted.done.set_result(_problems(wanted, codes.get(wanted.transactional_id, {}), broker_id, problem))


def _problems(
    wanted: _AddRequest, codes: dict[Place, ErrorCode], broker_id: BrokerId, problem: HeadraceError | None
) -> Problems:
    problems: Problems = {}
    for place in wanted.places:
        error = problem or error_for(
            codes.get(place, ErrorCode.unknown_server_error),
            broker_id,
            f"{place[0]}-{place[1]} in the transaction of {wanted.transactional_id}",
        )
        if isinstance(error, PeerUnavailable):
            error = CoordinatorNotAvailable(str(error))
        if error is not None:
            problems[place] = error
    return problems


def _request(some: Iterable[_AddRequest]) -> Any:
    schema = request_schema(_ADD_PARTITIONS, _VERSION)
    return schema.AddPartitionsToTxnRequest(
        transactions=tuple(
            make(
                schema.AddPartitionsToTxnTransaction,
                transactional_id=wanted.transactional_id,
                producer_id=wanted.producer.producer_id,
                producer_epoch=wanted.producer.epoch,
                verify_only=not wanted.adds,
                topics=tuple(
                    make(schema.AddPartitionsToTxnTopic, name=topic, partitions=tuple(indexes))
                    for topic, indexes in by_topic(wanted.places).items()
                ),
            )
            for wanted in some
        )
    )
