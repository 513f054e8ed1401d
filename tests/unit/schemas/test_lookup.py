"""Looking up schemas: what is cached for how long, and how often the leader is asked."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import pytest

from headrace.model.errors import CoordinatorNotAvailable, SchemasUnavailable
from headrace.runtime.clock import ManualClock
from headrace.schemas import lookup as module
from headrace.schemas.digest import digest_of
from headrace.schemas.errors import InvalidSchema
from headrace.schemas.lookup import MEMBERSHIP_MS, PAUSE_MS, STALE_MS, SchemaLookup
from headrace.schemas.resolved import IdOrGuid, Membership, ResolvedSchema, resolve
from headrace.schemas.stored import SchemaReference
from tests.unit.schemas.test_machine import Registry

A = TypeVar("A")


class Leader:
    """A registry that answers lookups, unless it is down, and counts them."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.clock = ManualClock()
        self.is_down = False
        self.is_broken = False
        self.memberships: list[list[Membership]] = []
        self.texts: list[IdOrGuid] = []
        self.lookup = SchemaLookup(self.clock, self._memberships, self._schema)

    async def _memberships(self, wanted: Sequence[Membership]) -> list[bool]:
        self.memberships.append([*wanted])
        await asyncio.sleep(0)
        if self.is_broken:
            raise KeyError("a defect")
        if self.is_down:
            raise CoordinatorNotAvailable("no leader")
        return [self.registry.machine.belongs(*each) for each in wanted]

    async def _schema(self, key: IdOrGuid) -> ResolvedSchema | None:
        self.texts.append(key)
        await asyncio.sleep(0)
        if self.is_broken:
            raise KeyError("a defect")
        if self.is_down:
            raise CoordinatorNotAvailable("no leader")
        return resolve(self.registry.machine, key)

    def delete(self, subject: str) -> None:
        self.registry.do(self.registry.machine.delete_subject(subject, permanent=False))


@pytest.fixture
def leader() -> Leader:
    return Leader()


def run(work: Coroutine[Any, Any, A]) -> A:
    return asyncio.run(work)


def test_a_membership_is_asked_for_once(leader: Leader) -> None:
    number = leader.registry.register("a", "1").id

    async def work() -> None:
        assert not leader.lookup.knows(number, "a")
        assert await leader.lookup.belongs(number, "a")
        assert leader.lookup.knows(number, "a")
        assert await leader.lookup.belongs(number, "a")

    run(work())
    assert leader.memberships == [[(1, "a")]]


def test_what_is_registered_is_known_at_once_also_after_a_no(leader: Leader) -> None:
    async def work() -> None:
        assert not await leader.lookup.belongs(1, "a")
        leader.registry.register("a", "1")
        leader.clock.advance(PAUSE_MS)
        assert await leader.lookup.belongs(1, "a")
        assert not await leader.lookup.belongs(1, "b")
        leader.registry.register("b", "1")
        leader.clock.advance(PAUSE_MS)
        assert await leader.lookup.belongs(1, "b")

    run(work())


def test_a_deletion_takes_effect_in_time(leader: Leader) -> None:
    number = leader.registry.register("a", "1").id

    async def work() -> None:
        assert await leader.lookup.belongs(number, "a")
        leader.delete("a")
        leader.clock.advance(MEMBERSHIP_MS // 2 + 1)
        assert leader.lookup.knows(number, "a"), "it is renewed in the background"
        for _ in range(5):
            await asyncio.sleep(0)
        assert not leader.lookup.knows(number, "a")
        assert not await leader.lookup.belongs(number, "a")

    run(work())


def test_an_old_yes_is_used_only_while_the_leader_cannot_be_reached(leader: Leader) -> None:
    number = leader.registry.register("a", "1").id

    async def work() -> None:
        assert await leader.lookup.belongs(number, "a")
        leader.delete("a")
        leader.is_down = True
        leader.clock.advance(MEMBERSHIP_MS + 1)
        assert not leader.lookup.knows(number, "a"), "the leader is not known to be unreachable"
        assert await leader.lookup.belongs(number, "a")
        assert leader.lookup.knows(number, "a")
        leader.clock.advance(STALE_MS)
        with pytest.raises(SchemasUnavailable):
            await leader.lookup.belongs(number, "a")
        leader.is_down = False
        assert not await leader.lookup.belongs(number, "a")

    run(work())


def test_questions_that_come_meanwhile_share_the_next_call(leader: Leader) -> None:
    for text in range(100):
        leader.registry.register("a", str(text))

    async def work() -> None:
        found = await asyncio.gather(*(leader.lookup.belongs(1 + each % 100, "a") for each in range(1000)))
        assert all(found)

    run(work())
    assert len(leader.memberships) == 1


def test_a_flood_of_unknown_ids_asks_one_call_at_a_time(leader: Leader) -> None:
    async def work() -> None:
        found = await asyncio.gather(*(leader.lookup.belongs(each, "a") for each in range(1000)))
        assert not any(found)
        began = asyncio.get_running_loop().time()
        assert not await leader.lookup.belongs(5, "a")
        assert asyncio.get_running_loop().time() - began >= PAUSE_MS / 1000 * 0.9, "the same question is paced"

    run(work())
    assert len(leader.memberships) == 1000 // 256 + 1 + 1


def test_too_many_questions_are_refused(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 3)

    async def work() -> None:
        found = await asyncio.gather(*(leader.lookup.belongs(each, "a") for each in range(5)), return_exceptions=True)
        assert [isinstance(each, SchemasUnavailable) for each in found] == [False] * 3 + [True] * 2

    run(work())


def test_a_leader_that_does_not_answer_is_waited_for_no_longer(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAIT_S", 0.02)

    async def never(_: object) -> Any:
        await asyncio.Event().wait()

    async def work() -> None:
        silent = SchemaLookup(leader.clock, never, never)
        for question in (silent.belongs(1, "a"), silent.schema(1)):
            with pytest.raises(SchemasUnavailable):
                await question
        await silent.stop()

    run(work())


def test_an_unexpected_error_is_an_answer_and_the_next_question_is_asked(leader: Leader) -> None:
    number = leader.registry.register("a", "1").id
    leader.is_broken = True

    async def test() -> None:
        for _ in range(2):
            with pytest.raises(SchemasUnavailable, match="a defect"):
                await asyncio.wait_for(leader.lookup.belongs(number, "a"), 1)
        with pytest.raises(SchemasUnavailable, match="a defect"):
            await leader.lookup.schema(number)
        leader.is_broken = False
        assert await leader.lookup.belongs(number, "a")

    run(test())


def test_a_schema_is_cached_for_ever_with_what_it_refers_to(leader: Leader) -> None:
    leader.registry.register("base", "base text")
    user = leader.registry.register("user", "user text", SchemaReference("base.proto", "base", 1))

    async def work() -> ResolvedSchema | None:
        await leader.lookup.schema(user.id)
        leader.is_down = True
        assert leader.lookup.cached(user.id) == await leader.lookup.schema(user.id)
        return await leader.lookup.schema(user.id)

    found = run(work())
    assert found == ResolvedSchema(2, digest_of(user), "AVRO", "user text", (("base.proto", "base text"),))
    assert leader.texts == [user.id]


def test_a_schema_by_its_guid(leader: Leader) -> None:
    stored = leader.registry.register("a", "text")

    async def work() -> None:
        found = await leader.lookup.schema(digest_of(stored))
        assert found is not None
        assert found.text == "text"
        assert await leader.lookup.belongs(digest_of(stored), "a")
        assert not await leader.lookup.belongs(digest_of(stored), "b")
        assert await leader.lookup.schema("00000000-0000-0000-0000-000000000000") is None

    run(work())


def test_the_cache_of_schemas_is_bounded(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SCHEMA_CHARS", 25)
    for letter in "abc":
        leader.registry.register("a", letter * 10)

    async def work() -> None:
        for number in (1, 2, 3):
            assert await leader.lookup.schema(number) is not None
        assert leader.lookup.cached(1) is None
        assert leader.lookup.cached(3) is not None

    run(work())


def test_many_that_ask_for_a_new_schema_share_a_few_calls(leader: Leader) -> None:
    leader.registry.register("a", "text")

    async def work() -> None:
        found = await asyncio.gather(*(leader.lookup.schema(1) for _ in range(500)))
        assert all(each is not None for each in found)

    run(work())
    assert len(leader.texts) <= 5


def test_schemas_that_are_waited_for_are_bounded(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 10)

    async def work() -> None:
        found = await asyncio.gather(*(leader.lookup.schema(each) for each in range(30)), return_exceptions=True)
        assert [isinstance(each, SchemasUnavailable) for each in found] == [False] * 10 + [True] * 20

    run(work())


def test_a_schema_that_refers_to_nothing_cannot_be_used(leader: Leader) -> None:
    leader.registry.register("user", "user text", SchemaReference("gone.proto", "gone", 1))
    with pytest.raises(InvalidSchema, match="gone"):
        run(leader.lookup.schema(1))
