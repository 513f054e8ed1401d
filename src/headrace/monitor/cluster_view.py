"""What all brokers of the cluster answer about themselves, gathered.

Every live broker is asked at the same time, with a second for each of its answers. One that does not answer is named
with the reason, and is not asked again for two seconds.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from headrace.cluster.metadata import Metadata
from headrace.model.errors import HeadraceError, PeerUnavailable
from headrace.model.ids import BrokerId
from headrace.monitor.calls import PAGES_MAX, AskRows, MonitorCall, RowsPage
from headrace.monitor.sections import decoded_rows
from headrace.replication.calls import ask
from headrace.replication.peers import Peers
from headrace.runtime.clock import Clock

A = TypeVar("A")

TIMEOUT_S = 1.0
_LANE = "monitor"
_REST_MS = 2_000.0
_BEGINS_MAX = 3
"""How often the pages of a broker are begun again, because its rows have changed meanwhile."""


class Gathered(NamedTuple, Generic[A]):
    answers: dict[int, A]
    """By broker."""
    problems: dict[int, str]
    """Why the other brokers did not answer."""


class ClusterFigures:
    def __init__(self, metadata: Metadata, clock: Clock, peers: Peers | None) -> None:
        """`peers` is None on a single node."""
        self._metadata = metadata
        self._clock = clock
        self._peers = peers
        self._resting: dict[BrokerId, tuple[float, str]] = {}
        """Until when a broker is not asked, and why."""

    async def gather(self, own: Callable[[], Awaitable[A]], other: Callable[[BrokerId], Awaitable[A]]) -> Gathered[A]:
        """The answer of this broker and of all others, each by its id."""
        image, own_id = self._metadata.image, self._metadata.broker_id
        others = [] if self._peers is None else sorted(each for each in image.brokers if each != own_id)
        answers, problems = dict[int, A](), dict[int, str]()

        async def ask_one(broker_id: BrokerId) -> None:
            try:
                answers[broker_id] = await self._patiently(broker_id, other)
            except HeadraceError as error:
                problems[broker_id] = str(error)

        async def ask_own() -> None:
            answers[own_id] = await own()

        await asyncio.gather(ask_own(), *map(ask_one, others))
        return Gathered(answers, problems)

    async def _patiently(self, broker_id: BrokerId, other: Callable[[BrokerId], Awaitable[A]]) -> A:
        if not self._metadata.image.is_alive(broker_id):
            raise PeerUnavailable(f"broker {broker_id} is down")
        until_ms, why = self._resting.get(broker_id, (0.0, ""))
        if self._clock.monotonic_ms() < until_ms:
            raise PeerUnavailable(why)
        try:
            answer = await other(broker_id)
        except HeadraceError as error:
            self._resting[broker_id] = self._clock.monotonic_ms() + _REST_MS, str(error)
            raise
        self._resting.pop(broker_id, None)
        return answer

    async def ask(self, broker_id: BrokerId, call: MonitorCall, result: type[A]) -> A:
        """Ask one broker; a `HeadraceError` if it does not answer within a second."""
        if self._peers is None:
            raise PeerUnavailable(f"broker {broker_id} is not of this cluster")
        return await ask(self._peers, broker_id, call, result, lane=_LANE, timeout_s=TIMEOUT_S)

    async def rows(self, broker_id: BrokerId, section: str) -> list[Any]:
        """All rows of a section of a broker, page by page."""
        for _ in range(_BEGINS_MAX):
            rows, version, number, pages = list[object](), 0, 0, 1
            while number < min(pages, PAGES_MAX):
                page = await self.ask(broker_id, AskRows(section, version, number), RowsPage)
                if number and page.version != version:
                    break
                version, pages, number = page.version, page.pages, number + 1
                rows += _decoded(broker_id, section, page)
            else:
                return rows
        raise PeerUnavailable(f"the {section} of broker {broker_id} change faster than they can be read")


def _decoded(broker_id: BrokerId, section: str, page: RowsPage) -> list[object]:
    try:
        return decoded_rows(section, page.rows)
    except msgspec.MsgspecError as error:
        raise PeerUnavailable(f"broker {broker_id} answers in no known way: {error}; upgrade all brokers") from None
