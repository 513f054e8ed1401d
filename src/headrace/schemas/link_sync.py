"""Copies the registry of a link's source into the one here, on the broker that leads it: one round of it.

A round is made of commits of bounded size, and may end after any of them; the next one goes on from what is here. It is
repeated only if the source or the registry here has changed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from headrace.coordinator.machine import InternalRecord, Outcome
from headrace.schemas.link_plan import (
    LinkOwner,
    SchemaLinkChanges,
    plan_holds,
    plan_release,
    plan_settings,
    plan_subject,
    planned_scopes,
    planned_subjects,
    wanted_versions,
)
from headrace.schemas.link_problems import LinkProblem, LinkProblems
from headrace.schemas.link_source import SourceRegistry
from headrace.schemas.machine import SchemaMachine
from headrace.schemas.service import RegistryService

A = TypeVar("A")
N = TypeVar("N", str, str | None)

_SUBJECTS_PER_STEP = 100
_BYTES_PER_STEP = 1024 * 1024
_CHANGES_MAX = 5_000
"""Records of a round, about; the others follow in the next ones."""
_NOTES_PER_STEP = 500


@dataclass(slots=True)
class LinkRound:
    """What a round has done."""

    problem: str = ""
    """What of the source is not here, in words; empty if everything is."""
    changed: dict[str, str] = field(default_factory=dict)
    """By subject or scope: what was changed, in words."""
    brought: int = 0
    """Versions here that the link has brought."""


class LinkedRegistry:
    def __init__(self, registry: RegistryService) -> None:
        self._registry = registry
        self._done: dict[str, tuple[object, int, object, int, LinkRound]] = {}
        """By link: the states of both registries after which there was nothing to do, and the result."""

    async def sync(self, owner: LinkOwner, source: SourceRegistry, check: Callable[[], None]) -> LinkRound:
        """Copy once. `check` is called before each commit, and raises an error if the link has changed."""
        here = self._registry.machine
        done = self._done.get(owner.link)
        if done is not None and done[:4] == (source, source.machine.revision, here, here.revision):
            return LinkRound(done[4].problem, {}, done[4].brought)
        work = _Round(self._registry, owner, source, check)
        result = await work.run()
        if work.is_complete and not result.changed:
            self._done[owner.link] = source, source.machine.revision, here, here.revision, result
        return result

    async def release(self, active: Iterable[str]) -> dict[str, str]:
        """End what links hold whose ids are not `active`; the contexts that are released, with the names of links."""
        active = frozenset(active)
        self._done = {link: each for link, each in self._done.items() if link in active}
        if all(note.link in active for note in self._registry.machine.links.all.values()):
            return {}

        def plan(here: SchemaMachine) -> Outcome[InternalRecord, SchemaLinkChanges]:
            changes = plan_release(here, active, _NOTES_PER_STEP)
            return Outcome(changes.records, changes)

        return (await self._registry.change(plan)).changed


class _Round:
    def __init__(
        self, registry: RegistryService, owner: LinkOwner, source: SourceRegistry, check: Callable[[], None]
    ) -> None:
        self._registry = registry
        self._owner = owner
        self._source = source.machine
        self._check = check
        self._problems = LinkProblems()
        if source.unreadable_count:
            self._problems.note(LinkProblem.UNREADABLE, source.unreadable, source.unreadable_count)
        self._result = LinkRound()
        self._written = 0
        self.is_complete = False

    async def run(self) -> LinkRound:
        source, owner, problems = self._source, self._owner, self._problems
        usable = await self._commit(lambda here, changes: plan_holds(source, here, owner, problems, changes))
        here = self._registry.machine
        self.is_complete = await self._subjects(planned_subjects(source, here, owner, usable)) and (
            await self._settings(planned_scopes(source, here, owner, usable))
        )
        self._result.problem = problems.words
        notes = self._registry.machine.links.of(owner.link)
        self._result.brought = sum(len(note.versions) for _, note in notes)
        return self._result

    async def _subjects(self, subjects: Mapping[str, str]) -> bool:
        """Copy the versions of these subjects; False if there is more to do than one round does."""

        def plan(here: SchemaMachine, changes: SchemaLinkChanges, local: str) -> None:
            names, name = self._owner.names, subjects[local]
            wanted = wanted_versions(self._source, name, names, self._problems) if name else {}
            plan_subject(local, wanted, here, self._owner, self._problems, changes)

        return await self._each([*subjects], plan)

    async def _settings(self, scopes: Mapping[str | None, str | None]) -> bool:
        def plan(here: SchemaMachine, changes: SchemaLinkChanges, local: str | None) -> None:
            plan_settings(local, self._source, scopes[local], here, self._owner, self._problems, changes)

        return await self._each([*scopes], plan)

    async def _each(self, names: Sequence[N], plan: Callable[[SchemaMachine, SchemaLinkChanges, N], None]) -> bool:
        at = 0
        while at < len(names):
            if self._written > _CHANGES_MAX:
                return False
            some = names[at : at + _SUBJECTS_PER_STEP]
            at += await self._commit(partial(_planned_some, some, plan))
        return True

    async def _commit(self, plan: Callable[[SchemaMachine, SchemaLinkChanges], A]) -> A:
        self._check()

        def change(here: SchemaMachine) -> Outcome[InternalRecord, tuple[SchemaLinkChanges, A]]:
            changes = SchemaLinkChanges()
            answer = plan(here, changes)
            return Outcome(changes.records, (changes, answer))

        changes, answer = await self._registry.change(change)
        self._written += len(changes.records)
        self._result.changed |= changes.changed
        return answer


def _planned_some(
    names: Sequence[N],
    plan: Callable[[SchemaMachine, SchemaLinkChanges, N], None],
    here: SchemaMachine,
    changes: SchemaLinkChanges,
) -> int:
    """Plan for as many of the names as fit into one commit, one at the least; how many that are."""
    for count, name in enumerate(names, 1):
        plan(here, changes, name)
        if changes.size_bytes > _BYTES_PER_STEP:
            return count
    return len(names)
