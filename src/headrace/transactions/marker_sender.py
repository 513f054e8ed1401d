"""The sender of transaction markers to partition leaders: a local write, or a WriteTxnMarkers request.

A broker responds when all markers of a request are committed, or at its timeout. A partition that delayed a response
goes to a separate slow lane until it is fast again. Retries are the caller's.
"""

import logging
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from headrace.cluster.metadata import Metadata
from headrace.model.errors import HeadraceError, NotLeader, PeerUnavailable, ProtocolError, UnknownTopic
from headrace.model.ids import NO_LEADER, BrokerId, ProducerIdAndEpoch, TopicName
from headrace.protocol.client_codec import request_schema
from headrace.protocol.codec import make
from headrace.records.markers import Marker
from headrace.replication.peers import Peers
from headrace.runtime.deferred import Deferred
from headrace.transactions.markers import MarkerWriter
from headrace.transactions.peer_errors import error_for
from headrace.transactions.records import Place
from headrace.transactions.request_batch import RequestBatch

log = logging.getLogger(__name__)

_WRITE_TXN_MARKERS, _VERSION = 27, 1
_LANE, _SLOW_LANE = "markers", "slow-markers"
_PER_REQUEST = 500
_TIMEOUT_S = 15.0


class _MarkerRequest(NamedTuple):
    place: Place
    producer: ProducerIdAndEpoch
    marker: Marker
    done: Deferred[HeadraceError | None]


class MarkerSender:
    """Writes a marker on the partition's leader, batching requests per broker."""

    def __init__(self, local: MarkerWriter, metadata: Metadata, peers: Peers | None) -> None:
        """`peers` is None on a single node, which leads everything."""
        self._local = local
        self._metadata = metadata
        self._peers = peers
        self._outgoing: dict[tuple[BrokerId, str], RequestBatch[_MarkerRequest]] = {}
        self._slow: set[Place] = set()

    def write(self, place: Place, producer: ProducerIdAndEpoch, marker: Marker) -> Deferred[HeadraceError | None]:
        """End a producer's transaction on a partition; resolves to None when the marker is committed.

        `UnknownTopic` means that the partition was deleted.
        """
        if self._peers is None:
            return self._local.write(place, producer, marker)
        leader = self._leader(place)
        if leader == self._metadata.broker_id:
            return self._local.write(place, producer, marker)
        done: Deferred[HeadraceError | None] = Deferred()
        if leader is None:
            done.resolve(UnknownTopic(f"{place[0]}-{place[1]} was deleted"))
        elif leader == NO_LEADER:
            done.resolve(NotLeader(f"{place[0]}-{place[1]} has no leader"))
        else:
            lane = _SLOW_LANE if place in self._slow else _LANE
            outgoing = self._outgoing.get((leader, lane))
            if outgoing is None:
                send = partial(self._send, self._peers, leader, lane)
                outgoing = self._outgoing[leader, lane] = RequestBatch(send, limit=_PER_REQUEST)
            outgoing.add(_MarkerRequest(place, producer, marker, done))
        return done

    async def stop(self) -> None:
        outgoing, self._outgoing = tuple(self._outgoing.values()), {}
        for batching in outgoing:
            await batching.stop()

    def _leader(self, place: Place) -> BrokerId | None:
        topic = self._metadata.image.topics.get(TopicName(place[0]))
        if topic is None or place[1] >= len(topic.partitions):
            return None
        return topic.partitions[place[1]].leader

    async def _send(self, peers: Peers, leader: BrokerId, lane: str, some: Sequence[_MarkerRequest]) -> None:
        codes: dict[tuple[int, str, int], ErrorCode] = {}
        why, may_have_arrived = f"the response of broker {leader} lacks a requested marker", True
        try:
            answer = await peers.call(leader, _request(some), lane=lane, timeout_s=_TIMEOUT_S)
            codes = {
                (marker.producer_id, topic.name, part.partition_index): part.error_code
                for marker in answer.markers
                for topic in marker.topics
                for part in topic.partitions
            }
        except PeerUnavailable as error:
            why, may_have_arrived = str(error), error.may_have_arrived
        except ProtocolError as error:
            why = str(error)
        except Exception as error:
            # The waiting callers must get a result, or the markers would never be retried.
            log.exception("markers could not be sent to broker %d", leader)
            why = str(error)
        for place, producer, _, done in some:
            code = codes.get((producer.producer_id, *place))
            if code is None:
                no_response = PeerUnavailable(why)
                no_response.may_have_arrived = may_have_arrived
                done.resolve(no_response)
                continue
            problem = error_for(code, leader, f"a marker for {place[0]}-{place[1]}")
            if isinstance(problem, PeerUnavailable):
                self._slow.add(place)
            else:
                self._slow.discard(place)
            if isinstance(problem, UnknownTopic):
                # Its metadata may be stale. On a retry our own image decides whether the topic exists.
                problem = NotLeader(str(problem))
            done.resolve(problem)


def _request(some: Sequence[_MarkerRequest]) -> Any:
    schema = request_schema(_WRITE_TXN_MARKERS, _VERSION)
    by_transaction: dict[tuple[ProducerIdAndEpoch, Marker], dict[str, list[int]]] = {}
    for (topic, index), producer, marker, _ in some:
        topics = by_transaction.setdefault((producer, marker), defaultdict(list))
        topics[topic].append(index)
    return schema.WriteTxnMarkersRequest(
        markers=tuple(
            make(
                schema.WritableTxnMarker,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                transaction_result=marker.committed,
                coordinator_epoch=marker.coordinator_epoch,
                topics=tuple(
                    make(schema.WritableTxnMarkerTopic, name=topic, partition_indexes=tuple(indexes))
                    for topic, indexes in topics.items()
                ),
            )
            for (producer, marker), topics in by_transaction.items()
        )
    )
