"""Looks up schemas by id or GUID, on any broker: from a cache, or else by asking the leader of the registry.

- What belongs to an id never changes and an id is never given out again: `schema` answers from the cache for ever. Only
  an import can put another schema under the id of one that was deleted for good (see docs/registry.md).
- Whether a schema belongs to a subject changes when versions are registered and deleted. A *yes* is used for
  `MEMBERSHIP_MS` and renewed in the background from half of that on, so that a deletion takes effect within this time.
  While the leader cannot be reached, a *yes* is used for `STALE_MS`: producers go on during a failover.
- A *no* is never cached: what has been registered is known at once. Instead questions are paced. There is one call for
  memberships at a time, which has all that were asked meanwhile, and after a *no* the same question waits for
  `PAUSE_MS`. So clients that send unknown ids wait, and the leader does not notice them.

Everything is bounded: cached entries and characters, questions that wait, and the time that each waits.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

from headrace.model.errors import HeadraceError, SchemasUnavailable
from headrace.runtime.clock import Clock
from headrace.schemas.errors import InvalidSchema
from headrace.schemas.resolved import IdOrGuid, Membership, ResolvedSchema

MEMBERSHIP_MS = 10_000
STALE_MS = 300_000
PAUSE_MS = 200
WAIT_S = 5.0
"""How long a question waits for the leader, after which it is `SchemasUnavailable`."""
MAX_SCHEMAS = 10_000
MAX_SCHEMA_CHARS = 64 * 1024 * 1024
MAX_MEMBERSHIPS = 50_000
MAX_WAITING = 10_000
_MAX_ASKED = 256
"""Memberships in one call."""
_MAX_TEXTS_ASKED = 4
"""Schemas that are asked for at the same time."""

_log = logging.getLogger("headrace.schemas")

K = TypeVar("K")

AskMemberships = Callable[[Sequence[Membership]], Awaitable[Sequence[bool]]]
AskSchema = Callable[[IdOrGuid], Awaitable[ResolvedSchema | None]]


class SchemaLookup:
    def __init__(self, clock: Clock, ask_memberships: AskMemberships, ask_schema: AskSchema) -> None:
        """The two functions ask the leader, wherever it is, and raise `HeadraceError` if it cannot be reached."""
        self._clock = clock
        self._ask_memberships = ask_memberships
        self._ask_schema = ask_schema
        self._schemas: OrderedDict[IdOrGuid, ResolvedSchema] = OrderedDict()
        self._schema_chars = 0
        self._known_ms: OrderedDict[Membership, float] = OrderedDict()
        """When each membership was last confirmed."""
        self._pauses: _Pauses[Membership | IdOrGuid] = _Pauses(clock)
        self._waiting: dict[Membership, asyncio.Future[bool]] = {}
        self._asking: asyncio.Task[None] | None = None
        self._flights: dict[IdOrGuid, asyncio.Task[ResolvedSchema | None]] = {}
        """Schemas that are about to be asked for."""
        self._tasks: set[asyncio.Task[ResolvedSchema | None]] = set()
        self._room = asyncio.Semaphore(_MAX_TEXTS_ASKED)
        self._is_reachable = True
        self.asked = 0
        """Calls to the leader."""

    async def stop(self) -> None:
        tasks = [each for each in (self._asking, *self._tasks) if each is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- whether a schema belongs to a subject

    def knows(self, key: IdOrGuid, subject: str) -> bool:
        """Whether the cache says that the schema belongs to the subject. If not, `belongs` finds out."""
        membership = (key, subject)
        known_ms = self._known_ms.get(membership)
        if known_ms is None:
            return False
        age_ms = self._clock.monotonic_ms() - known_ms
        if age_ms > MEMBERSHIP_MS / 2:
            self._question(membership)
        return age_ms < (MEMBERSHIP_MS if self._is_reachable else STALE_MS)

    async def belongs(self, key: IdOrGuid, subject: str) -> bool:
        """Whether the subject has a version of the schema that is not deleted. Raises `SchemasUnavailable`."""
        if self.knows(key, subject):
            return True
        membership = (key, subject)
        await self._pauses.wait(membership)
        try:
            async with asyncio.timeout(WAIT_S):
                return await asyncio.shield(self._question(membership))
        except (TimeoutError, SchemasUnavailable) as error:
            if self._clock.monotonic_ms() - self._known_ms.get(membership, -STALE_MS) < STALE_MS:
                return True
            raise SchemasUnavailable(f"the schema registry does not answer: {str(error) or 'timed out'}") from None

    def _question(self, membership: Membership) -> "asyncio.Future[bool]":
        """Add a question to the next call. One that is being asked is not joined: its answer may be older."""
        future = self._waiting.get(membership)
        if future is None:
            future = asyncio.get_running_loop().create_future()
            future.add_done_callback(_ignore_result)
            if len(self._waiting) >= MAX_WAITING:
                future.set_exception(SchemasUnavailable("too many schemas are looked up at the same time"))
                return future
            self._waiting[membership] = future
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask_waiting(), name="schema-memberships")
        return future

    async def _ask_waiting(self) -> None:
        try:
            while self._waiting:
                asked = [(each, self._waiting.pop(each)) for each in [*self._waiting][:_MAX_ASKED]]
                self.asked += 1
                try:
                    answers = await self._ask_memberships([membership for membership, _ in asked])
                    if len(answers) != len(asked):
                        raise SchemasUnavailable(f"the registry gave {len(answers)} answers to {len(asked)} questions")
                except Exception as error:
                    if not isinstance(error, HeadraceError):
                        _log.exception("schemas could not be looked up")
                    self._is_reachable = False
                    for _, future in asked:
                        _settle(future, SchemasUnavailable(str(error)))
                    continue
                self._is_reachable = True
                for (membership, future), answer in zip(asked, answers, strict=True):
                    self._note(membership, answer)
                    _settle(future, answer)
        finally:
            self._asking = None

    def _note(self, membership: Membership, is_member: bool) -> None:
        self._known_ms.pop(membership, None)
        if not is_member:
            self._pauses.begin(membership)
            return
        self._known_ms[membership] = self._clock.monotonic_ms()
        if len(self._known_ms) > MAX_MEMBERSHIPS:
            self._known_ms.popitem(last=False)

    # -- schemas

    def cached(self, key: IdOrGuid) -> ResolvedSchema | None:
        """A schema, if it has been looked up before."""
        return self._schemas.get(key)

    async def schema(self, key: IdOrGuid) -> ResolvedSchema | None:
        """The schema with an id of the default context or a GUID, deleted or not; None if there is none.

        Raises `SchemasUnavailable` if the registry does not answer, and `InvalidSchema` if it cannot be used.
        """
        found = self._schemas.get(key)
        if found is not None:
            self._schemas.move_to_end(key)
            return found
        await self._pauses.wait(key)
        flight = self._flights.get(key)
        if flight is None:
            if len(self._tasks) >= MAX_WAITING:
                raise SchemasUnavailable("too many schemas are looked up at the same time")
            flight = self._flights[key] = asyncio.get_running_loop().create_task(self._fetch(key), name="schema-text")
            self._tasks.add(flight)
            flight.add_done_callback(self._fetched)
        try:
            async with asyncio.timeout(WAIT_S):
                return await asyncio.shield(flight)
        except TimeoutError:
            raise SchemasUnavailable("the schema registry does not answer: timed out") from None

    async def _fetch(self, key: IdOrGuid) -> ResolvedSchema | None:
        try:
            async with self._room:
                # From here on others do not join: a None might be older than their question.
                self._flights.pop(key, None)
                if (known := self._schemas.get(key)) is not None:
                    return known
                self.asked += 1
                found = await self._ask_schema(key)
        except Exception as error:
            if not isinstance(error, HeadraceError):
                _log.exception("a schema could not be looked up")
            raise SchemasUnavailable(str(error)) from None
        if found is None:
            self._pauses.begin(key)
        elif found.problem:
            raise InvalidSchema(found.problem)
        else:
            self._add(key, found)
        return found

    def _fetched(self, task: "asyncio.Task[ResolvedSchema | None]") -> None:
        self._tasks.discard(task)
        _ignore_result(task)

    def _add(self, key: IdOrGuid, schema: ResolvedSchema) -> None:
        before = self._schemas.pop(key, None)
        self._schemas[key] = schema
        self._schema_chars += schema.size_chars - (0 if before is None else before.size_chars)
        while len(self._schemas) > MAX_SCHEMAS or (self._schema_chars > MAX_SCHEMA_CHARS and len(self._schemas) > 1):
            _, oldest = self._schemas.popitem(last=False)
            self._schema_chars -= oldest.size_chars


class _Pauses(Generic[K]):
    """Questions that got a *no* just now. The oldest are forgotten if there are too many."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_ms: OrderedDict[K, float] = OrderedDict()

    def begin(self, question: K) -> None:
        self._until_ms.pop(question, None)
        self._until_ms[question] = self._clock.monotonic_ms() + PAUSE_MS
        if len(self._until_ms) > MAX_WAITING:
            self._until_ms.popitem(last=False)

    async def wait(self, question: K) -> None:
        left_ms = self._until_ms.get(question, 0.0) - self._clock.monotonic_ms()
        if left_ms > 0:
            await asyncio.sleep(left_ms / 1000)


def _settle(future: "asyncio.Future[bool]", answer: bool | HeadraceError) -> None:
    if future.done():
        return
    if isinstance(answer, HeadraceError):
        future.set_exception(answer)
    else:
        future.set_result(answer)


def _ignore_result(future: "asyncio.Future[Any]") -> None:
    """Note that the error of a future need not be raised: the one who asked may have been cancelled."""
    if not future.cancelled():
        future.exception()
