"""A share fetch: acquires records for a member, and answers with log batches and the acquired ranges of offsets.

Acquisitions are committed before the answer is sent.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.static.primitive import Records

from headrace.kafka.dispatch import Context
from headrace.kafka.errors import error_code, error_message
from headrace.kafka.forbidden_topics import forbidden_topics
from headrace.kafka.leaders import LEADER_ERRORS, current_leader, endpoints_of
from headrace.kafka.permissions import READ_TOPIC, not_authorized
from headrace.kafka.share_acks import Outcomes
from headrace.kafka.share_sessions import SharePlace, ShareSession
from headrace.model.errors import (
    CoordinatorError,
    HeadraceError,
    NotLeader,
    PeerUnavailable,
    QueueUnavailable,
    StorageFailed,
)
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE, to_ms
from headrace.queues.share.partition import AcquiredBatches, AcquireLimit, SharePartition
from headrace.queues.share.service import SharePartitionId
from headrace.runtime.disk import Buffer
from headrace.storage.slice import Slice

if TYPE_CHECKING:
    from kio.schema.share_fetch.v2.request import ShareFetchRequest
    from kio.schema.share_fetch.v2.response import LeaderIdAndEpoch, NodeEndpoint, PartitionData, ShareFetchResponse

log = logging.getLogger(__name__)

_PARTITION_MAX_BYTES = 1024 * 1024
"""The largest slice of one partition that is read at a time, unless a single batch is larger."""
_DECRYPTED_AT_ONCE_BYTES = 64 * 1024
"""A larger encrypted slice is decrypted in a worker thread."""
_LOOKS = 64
"""How often a partition is retried in a row if its slice had only transaction markers."""
_NO_LEADER = (-1, -1)
_DELIVERY_COUNT_MAX = 2**15 - 1
"""The largest value that the protocol can encode."""
_AGAIN = (CoordinatorError, QueueUnavailable, PeerUnavailable)
"""Errors of the store after which the partition is reopened and the fetch retried, invisibly to the client."""

Acquired = dict[SharePlace, tuple[SharePartition, AcquiredBatches]]


class ShareFetch:
    """The acquisitions of one request for its member."""

    def __init__(self, ctx: Context, request: "ShareFetchRequest", session: ShareSession) -> None:
        self._ctx = ctx
        self._session = session
        self._max_bytes = min(request.max_bytes, ctx.services.settings.fetch_max_bytes)
        self._min_bytes: int = min(request.min_bytes, self._max_bytes)
        self._max_records: int = request.max_records
        self._deadline_ms = ctx.services.clock.monotonic_ms() + to_ms(request.max_wait)
        self._is_over = False
        self._woken = asyncio.Event()
        self._waits_on: list[SharePartition] = []
        self.taken: dict[SharePlace, AcquiredBatches] = {}
        self.errors: dict[SharePlace, HeadraceError] = {}

    @property
    def taken_bytes(self) -> int:
        return sum(len(batch) for taken in self.taken.values() for batch in taken.batches)

    def hurry(self) -> None:
        """End the wait and acquire nothing: the client no longer waits for records."""
        self._is_over = True
        self._woken.set()

    def data_arrived(self) -> None:
        self._woken.set()

    async def run(self) -> None:
        """Fill `taken` and `errors`: at once, or when records are available, or at the end of max wait."""
        session = self._session
        try:
            while not self._is_over and session.places:
                self._woken.clear()
                found = self._look(self._opened()) if self._may_take else {}
                is_late = self._left_s() <= 0
                if found and (is_late or self.errors or self._is_enough(found)):
                    await self._take(found)
                if self.taken or self.errors or is_late:
                    return
                await self._wait()
        finally:
            self._wait_no_more()
            if session.waiting == self.hurry:
                session.waiting = None

    @property
    def _may_take(self) -> bool:
        return self._max_bytes > 0 and self._max_records > 0

    # -- waiting

    def _left_s(self) -> float:
        return (self._deadline_ms - self._ctx.services.clock.monotonic_ms()) / 1000

    async def _wait(self) -> None:
        if not self._woken.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._left_s())):
                    await self._woken.wait()

    def _wait_no_more(self) -> None:
        for opened in self._waits_on:
            opened.waiters.remove(self)
        self._waits_on.clear()

    def _opened(self) -> dict[SharePlace, SharePartition]:
        """Return the session's open partitions. The others are being opened, or have an error in `errors`."""
        shares, group_id = self._ctx.services.shares, self._session.group_id
        self._wait_no_more()
        found: dict[SharePlace, SharePartition] = {}
        names = self._ctx.services.metadata.image.topic_names
        # Checked at each look, since a permission may be revoked while the fetch waits.
        forbidden = forbidden_topics(
            self._ctx, READ_TOPIC, (names.get(place.topic_id) for place in self._session.places)
        )
        for place in self._session.places:
            if forbidden and names.get(place.topic_id) in forbidden:
                self.errors[place] = not_authorized(READ_TOPIC, names[place.topic_id])
                continue
            try:
                opened = shares.current(SharePartitionId(*place, group_id))
                if opened is None:
                    shares.opening(SharePartitionId(*place, group_id)).add_done_callback(partial(self._settled, place))
                    continue
            except HeadraceError as error:
                self.errors[place] = error
                continue
            opened.waiters.add(self)
            self._waits_on.append(opened)
            found[place] = opened
        return found

    def _settled(self, place: SharePlace, task: "asyncio.Task[SharePartition]") -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, HeadraceError):
            self.errors[place] = error
        self._woken.set()

    # -- locating and acquiring

    def _look(self, opened: Mapping[SharePlace, SharePartition]) -> dict[SharePlace, tuple[SharePartition, Slice]]:
        found: dict[SharePlace, tuple[SharePartition, Slice]] = {}
        for place, partition in opened.items():
            try:
                cut = partition.look(min(_PARTITION_MAX_BYTES, self._max_bytes))
            except HeadraceError as error:
                self.errors[place] = error
                continue
            if cut is not None:
                found[place] = partition, cut
        return found

    def _is_enough(self, found: Mapping[SharePlace, tuple[SharePartition, Slice]]) -> bool:
        return sum(cut.length for _, cut in found.values()) >= self._min_bytes

    async def _take(self, found: Mapping[SharePlace, tuple[SharePartition, Slice]]) -> None:
        left_bytes, left_records = self._max_bytes, self._max_records
        acquired: Acquired = {}
        for place, (partition, first_cut) in found.items():
            cut: Slice | None = first_cut
            if left_records <= 0 or (left_bytes <= 0 and acquired):
                break
            try:
                for _ in range(_LOOKS):
                    if cut is None or self._is_over:
                        break
                    data = await self._read(cut)
                    if self._session.is_over:
                        break
                    taken = partition.take(data, AcquireLimit(self._session.member_id, left_records))
                    if taken.spans:
                        acquired[place] = partition, taken
                        left_records -= taken.records
                        left_bytes -= sum(map(len, taken.batches))
                        break
                    cut = partition.look(min(_PARTITION_MAX_BYTES, max(1, left_bytes)))
            except HeadraceError as error:
                self.errors[place] = error
        await self._persist(acquired)

    async def _persist(self, acquired: Acquired) -> None:
        """Wait until the acquisitions are committed; where that fails, nothing was acquired."""
        results = await asyncio.gather(
            *(partition.when_persisted() for partition, _ in acquired.values()), return_exceptions=True
        )
        for (place, (partition, taken)), error in zip(acquired.items(), results, strict=True):
            if error is None:
                self.taken[place] = taken
                self._session.served(place)
            elif isinstance(error, _AGAIN) or (isinstance(error, NotLeader) and partition.partition.is_leader):
                log.info("%s acquires nothing of %s now: %s", self._session.member_id, partition.partition, error)
            elif isinstance(error, HeadraceError):
                self.errors[place] = error
            else:
                raise error

    async def _read(self, cut: Slice) -> Buffer:
        data = cut.read_cached() if cut.cipher is None or cut.length <= _DECRYPTED_AT_ONCE_BYTES else None
        if data is not None:
            return data
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._ctx.services.workers, cut.read)
        except OSError as error:
            raise StorageFailed(f"cannot read {cut.file.path.name}: {error.strerror}") from error


def answer(
    ctx: Context,
    *,
    lock_timeout_ms: int = 0,
    error: BaseException | None = None,
    fetched: ShareFetch | None = None,
    acknowledged: Outcomes | None = None,
) -> "ShareFetchResponse":
    """Build the answer: the partitions with records, errors or acknowledgements."""
    schema = ctx.schema
    taken = {} if fetched is None else fetched.taken
    errors = {} if fetched is None else fetched.errors
    acknowledged = acknowledged or {}
    by_topic: dict[UUID, list[PartitionData]] = {}
    leaders: list[tuple[int, int] | None] = []
    for place in dict.fromkeys([*taken, *errors, *acknowledged]):
        failed, refused = errors.get(place), acknowledged.get(place)
        leader = leader_instead(ctx, place, failed, refused)
        leaders.append(leader)
        got = taken.get(place)
        by_topic.setdefault(place.topic_id, []).append(
            make(
                schema.PartitionData,
                partition_index=place.partition,
                error_code=ErrorCode.none if failed is None else error_code(failed),
                error_message=None if failed is None else error_message(failed),
                acknowledge_error_code=0 if refused is None else error_code(refused).value,
                acknowledge_error_message=None if refused is None else error_message(refused),
                current_leader=make_leader(ctx, leader),
                records=Records(b"" if got is None else b"".join(got.batches)),
                acquired_records=tuple(
                    make(
                        schema.AcquiredRecords,
                        first_offset=one.first,
                        last_offset=one.last,
                        delivery_count=min(one.attempt, _DELIVERY_COUNT_MAX),
                    )
                    for one in ([] if got is None else got.spans)
                ),
            )
        )
    return make(
        schema.ShareFetchResponse,
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none if error is None else error_code(error),
        error_message=None if error is None else error_message(error),
        acquisition_lock_timeout=timedelta(milliseconds=lock_timeout_ms),
        responses=tuple(
            make(schema.ShareFetchableTopicResponse, topic_id=topic_id, partitions=tuple(partitions))
            for topic_id, partitions in by_topic.items()
        ),
        node_endpoints=make_endpoints(ctx, leaders),
    )


def leader_instead(ctx: Context, place: SharePlace, *problems: HeadraceError | None) -> tuple[int, int] | None:
    """Return the current leader, if one of the errors is that this broker does not lead."""
    if any(problem is not None and error_code(problem).value in LEADER_ERRORS for problem in problems):
        return current_leader(ctx, place.topic_id, place.partition)
    return None


def make_leader(ctx: Context, leader: tuple[int, int] | None) -> "LeaderIdAndEpoch":
    leader_id, epoch = leader or _NO_LEADER
    return make(ctx.schema.LeaderIdAndEpoch, leader_id=leader_id, leader_epoch=epoch)


def make_endpoints(ctx: Context, leaders: list[tuple[int, int] | None]) -> "tuple[NodeEndpoint, ...]":
    return tuple(
        make(ctx.schema.NodeEndpoint, node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
        for node in endpoints_of(ctx, leaders)
    )
