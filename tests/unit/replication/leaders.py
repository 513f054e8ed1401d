"""A leader and partitions that follow it, in memory: the wire format and the fetch sessions are the real ones."""

import asyncio
import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from headrace.config.broker import BrokerSettings
from headrace.kafka.errors import error_code
from headrace.kafka.fetch_sessions import FetchSessions, PartitionFetch, PartitionKey
from headrace.model.errors import HeadraceError, PeerUnavailable
from headrace.model.ids import BrokerId
from headrace.model.image import BrokerInfo, Endpoint
from headrace.protocol.codec import (
    is_flexible,
    make,
    peek_api,
    read_request,
    read_request_header,
    response_header,
    response_schema,
    write_response,
)
from headrace.protocol.exchange import ResponseFrame, SentRequest
from headrace.protocol.fast import FetchedPartition, fetch_response
from headrace.protocol.units import NO_THROTTLE, to_ms
from headrace.replication.follower import Fetched

TOPIC = UUID(int=77)
LEADER, OTHER, FOLLOWER = BrokerId(1), BrokerId(2), BrokerId(3)


class Host:
    """What the code under test sees of the metadata."""

    def __init__(self, **settings: Any) -> None:
        self.broker_id = FOLLOWER
        self.settings = BrokerSettings(broker_id=FOLLOWER, **settings)
        brokers = {broker: BrokerInfo(broker, Endpoint("leader", broker)) for broker in (LEADER, OTHER)}
        self.image: Any = SimpleNamespace(brokers=brokers)


class FakeLeader:
    """A log is bytes, an offset a position in them. Also its own transport: every endpoint leads here."""

    def __init__(self) -> None:
        self.logs: dict[int, bytes] = {}
        self.acknowledged: dict[int, int] = {}
        self.epochs: dict[int, int] = {}
        self.errors: dict[int, int] = {}
        self.requests: list[Any] = []
        self.answers: list[list[int]] = []
        """The partitions in each answer."""
        self.channels: list[FakeChannel] = []
        self.timeouts_s: list[float] = []
        """Of the requests, with those that negotiate versions."""
        self.is_away = False
        self.changed = asyncio.Event()
        """Set when a log grew, or a newer request ends a wait."""
        self.seen = asyncio.Condition()
        self._ids = itertools.count(100)
        self.sessions = FetchSessions(1000, lambda: next(self._ids))
        self._newest = 0
        self._called = asyncio.Event()

    # -- what tests do

    def append(self, index: int, data: bytes) -> None:
        self.logs[index] += data
        self.changed.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for something that changes with a request."""
        async with self.seen:
            await self.seen.wait_for(holds)

    async def until_called(self) -> None:
        """Wait until somebody has tried to connect in vain."""
        await self._called.wait()

    # -- transport

    async def connect(self, endpoint: Endpoint) -> "FakeChannel":
        if self.is_away:
            self._called.set()
            raise PeerUnavailable("away")
        channel = FakeChannel(self)
        self.channels.append(channel)
        return channel

    # -- requests

    async def answer(self, frame: bytes) -> bytes:
        key, version, _ = peek_api(frame)
        header = read_request_header(frame, flexible=is_flexible(key, version))
        request = read_request(frame, header)
        if key == 18:
            return write_response(header, _versions(version))
        self._newest += 1
        number = self._newest
        self.requests.append(request)
        self.changed.set()
        head = response_header(header)
        try:
            plan = self.sessions.plan(request, by_id=True, now_ms=0)
        except HeadraceError as error:
            code = error_code(error).value
            return b"".join(fetch_response(version, head, [], error_code=code))
        for part, wanted in plan.wanted:
            if not self._problem(part, wanted):
                self.acknowledged[part.partition] = wanted.offset
        async with self.seen:
            self.seen.notify_all()
        deadline = asyncio.get_running_loop().time() + to_ms(request.max_wait) / 1000
        while True:
            found = [self._look(part, wanted, request.max_bytes) for part, wanted in plan.wanted]
            is_over = asyncio.get_running_loop().time() >= deadline or self._newest > number
            if is_over or any(part.records or part.error_code for part in found):
                break
            self.changed.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self.changed.wait()
            except TimeoutError:
                pass
        if plan.session is not None:
            news = [part for key, part in zip(plan.wanted, found, strict=True) if plan.session.is_news(key[0], part)]
            found = news if plan.is_incremental else found
        self.answers.append([part.partition for part in found])
        topics = [(TOPIC, found)] if found else []
        return b"".join(map(bytes, fetch_response(version, head, topics, session_id=plan.session_id)))

    def _problem(self, key: PartitionKey, wanted: PartitionFetch) -> int:
        index = key.partition
        if index in self.errors:
            return self.errors[index]
        if wanted.current_leader_epoch != self.epochs.get(index, 0):
            return int(ErrorCode.unknown_leader_epoch.value)
        return 0

    def _look(self, key: PartitionKey, wanted: PartitionFetch, max_bytes: int) -> FetchedPartition:
        index = key.partition
        problem = self._problem(key, wanted)
        if problem:
            return FetchedPartition(index, problem)
        end = wanted.offset + min(wanted.max_bytes, max_bytes)
        records = self.logs[index][wanted.offset : end]
        high_watermark = min(self.acknowledged.get(index, 0), len(self.logs[index]))
        return FetchedPartition(index, 0, high_watermark, high_watermark, 0, None, (records,) if records else ())


class FakeChannel:
    """Answers leave in the order of the requests, as a broker's do."""

    lifetime_s: float | None = None

    def __init__(self, leader: FakeLeader) -> None:
        self._leader = leader
        self._last: asyncio.Task[bytes] | None = None
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def exchange(self, request: SentRequest, body: bytes, timeout_s: float) -> ResponseFrame:
        self._leader.timeouts_s.append(timeout_s)
        before, self._last = self._last, asyncio.ensure_future(self._leader.answer(body))
        mine = self._last
        for task in (before, mine):
            if task is not None:
                both: list[asyncio.Future[Any]] = [task, self.broken]
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if self.broken.done():
            mine.cancel()
            raise PeerUnavailable("the connection broke")
        return request.answered_by(memoryview(mine.result()))

    def release(self, frame: memoryview) -> None:
        frame.release()

    def close(self) -> None:
        if not self.broken.done():
            self.broken.set_result(None)


class FakePartition:
    """Appends whatever comes; flushes when told to."""

    def __init__(self, index: int, *, flushes: bool = False) -> None:
        self.topic_id = TOPIC
        self.index = index
        self.log = b""
        self.epoch = 0
        self.high_watermark = 0
        self.flushes = flushes
        self.flushed_size = 0
        self.waiting: list[Callable[[BaseException | None], None]] = []
        self.refuses: BaseException | None = None
        self.is_forgotten = False
        self.asked = asyncio.Event()
        """Somebody waits for a flush."""
        self.took = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    def __str__(self) -> str:
        return f"fake-{self.index}"

    def fetch_position(self) -> tuple[int, int, int, int]:
        return self.epoch, len(self.log), -1, 0

    def take_fetched(self, leader_epoch: int, part: Fetched) -> None:
        assert not self.is_forgotten
        if self.refuses is not None:
            raise self.refuses
        assert leader_epoch == self.epoch
        self.log += bytes(part.records)
        self.high_watermark = max(self.high_watermark, min(part.high_watermark, len(self.log)))
        task = asyncio.ensure_future(self._tell())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def when_flushed(self, callback: Callable[[BaseException | None], None]) -> bool:
        if not self.flushes or len(self.log) <= self.flushed_size:
            return True
        self.waiting.append(callback)
        self.asked.set()
        return False

    def flushed(self, error: BaseException | None = None) -> None:
        if error is None:
            self.flushed_size = len(self.log)
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback(error)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with self.took:
            await self.took.wait_for(holds)

    async def _tell(self) -> None:
        async with self.took:
            self.took.notify_all()


def _versions(version: int) -> Any:
    schema = response_schema(18, version)
    return make(
        schema.ApiVersionsResponse,
        error_code=ErrorCode.none,
        api_keys=(schema.ApiVersion(api_key=1, min_version=4, max_version=17),),
        throttle_time=NO_THROTTLE,
        supported_features=(),
        finalized_features=(),
    )
