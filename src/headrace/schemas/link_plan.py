"""Which records a link writes to the registry here so that the schemas of its source are in it. Pure.

Subject by subject, so that a large registry is copied in small commits, each of which may be the last before a crash:
the note that the link brings a version is written before the version, and a version is deleted before its note.

- A version keeps its id, number, text and GUID. One whose id another schema has here is
  not copied: nothing is ever overwritten.
- A version that is here already and was not brought by the link is left alone, whatever happens to it at the source.
- The contexts are held from the first round on (`link_notes.py`). Those that come over a link at the source are left
  out: a mirror is never mirrored again, so that nothing goes round in a ring.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from headrace.coordinator.machine import InternalRecord
from headrace.schemas.link_notes import hold_key, scope_key
from headrace.schemas.link_problems import LinkProblem, LinkProblems
from headrace.schemas.link_source import LinkNames, local_config, local_mode, local_version
from headrace.schemas.machine import MAX_NUMBER, SchemaMachine
from headrace.schemas.stored import (
    LinkNote,
    StoredMode,
    StoredSchema,
    config_record,
    highest_ids_record,
    link_note_record,
    mode_record,
    schema_record,
    schema_tombstone,
)
from headrace.schemas.subjects import DEFAULT_CONTEXT, context_of

ID_ROOM = 100
"""Ids that are left out when a link ends to hold a context: the source may have given them out since it was last read,
and records with them may have been mirrored."""

_VERSIONS_PER_STEP = 1_000
"""Of one subject; the others follow in the next round."""
_NOWHERE = "\n"
"""A scope that no source has."""


@dataclass(frozen=True, slots=True)
class LinkOwner:
    """The link that brings schemas."""

    link: str
    """Its id."""
    name: str
    names: LinkNames
    source: str
    """The id of the source's topic: another one means that the topic was created again."""

    def note(self) -> LinkNote:
        return LinkNote(self.link, self.name)


@dataclass(slots=True)
class SchemaLinkChanges:
    """The records of a step, in the order in which they are written."""

    records: list[InternalRecord] = field(default_factory=list)
    ids: dict[tuple[str, int], StoredSchema] = field(default_factory=dict)
    """By context and id: the schemas that are stored."""
    changed: dict[str, str] = field(default_factory=dict)
    """What was done with which subjects and scopes, in words, for the audit log."""

    @property
    def size_bytes(self) -> int:
        return sum(len(each.key) + len(each.value or b"") for each in self.records)


def source_contexts(source: SchemaMachine, here: SchemaMachine, owner: LinkOwner) -> list[str]:
    """The contexts of the source that have something to copy, or had it before; the default one always."""
    named = {context_of(each) for each in source.scopes() if each is not None}
    brought = {owner.names.source_context(context_of(scope)) for scope, _ in here.links.of(owner.link)}
    return sorted({DEFAULT_CONTEXT} | named | brought)


def planned_subjects(
    source: SchemaMachine, here: SchemaMachine, owner: LinkOwner, usable: Collection[str]
) -> dict[str, str]:
    """The subjects to look at as they are here, each with that of the source: by ids, then those that are gone."""
    found = {
        owner.names.subject(each): (min((it.id for it in source.state(each).versions.values()), default=0), each)
        for each in source.subjects()
        if context_of(each) in usable
    }
    ordered = {local: each for local, (_, each) in sorted(found.items(), key=lambda item: item[1])}
    for scope, note in here.links.of(owner.link):
        if note.versions and owner.names.source_context(context_of(scope)) in usable:
            ordered.setdefault(scope, "")
    return ordered


def planned_scopes(
    source: SchemaMachine, here: SchemaMachine, owner: LinkOwner, usable: Collection[str]
) -> dict[str | None, str | None]:
    """The scopes of settings to look at as they are here, each with that of the source."""
    names = owner.names
    found: dict[str | None, str | None] = {
        names.scope(each): each
        for each in source.scopes()
        if context_of(each or "") in usable and (each is None or source.config(each) or source.mode(each))
    }
    if names.is_renamed:
        # Its settings for all subjects are not those for all subjects here: each context has them.
        for each in usable:
            found.setdefault(names.scope(None if each == DEFAULT_CONTEXT else f":{each}:"), None)
    for scope, note in here.links.of(owner.link):
        if (note.config or note.mode) and names.source_context(context_of(scope)) in usable:
            found.setdefault(scope or None, _NOWHERE)
    return found


def plan_holds(
    source: SchemaMachine, here: SchemaMachine, owner: LinkOwner, problems: LinkProblems, changes: SchemaLinkChanges
) -> frozenset[str]:
    """Hold the contexts here, and give out no id below those of the source; the contexts of the source to copy."""
    usable: set[str] = set()
    raised: dict[str, int] = {}
    for context in source_contexts(source, here, owner):
        local = owner.names.context(context)
        if (there := source.links.holder(context)) is not None:
            problems.note(
                LinkProblem.HELD,
                f"the schemas of {context} come over the link {there.name} at the source, and mirrors are not "
                "mirrored again: link the cluster that they come from",
            )
            continue
        held = here.links.holder(local)
        if held is not None and held.link != owner.link:
            problems.note(
                LinkProblem.HELD,
                f"the schemas of {local} come over the link {held.name} already: use a link with a prefix, whose "
                "schemas have a context of their own",
            )
            continue
        if held is not None and held.source != owner.source:
            problems.note(
                LinkProblem.HELD,
                f"the topic of the source's registry was created again, and what it had before stays in {local}: to "
                "follow the new one, leave schemas out of --sync for a moment",
            )
            continue
        usable.add(context)
        if held is None:
            key = hold_key(local)
            before = here.links.note(key, owner.link) or owner.note()
            note = msgspec.structs.replace(before, is_held=True, source=owner.source)
            changes.records.append(link_note_record(key, note))
            changes.changed[f":{local}:"] = "hold"
        if source.highest_id(context) > here.highest_id(local):
            raised[local] = source.highest_id(context)
    if raised:
        changes.records.append(highest_ids_record({**here.highest_ids(), **raised}))
    return frozenset(usable)


def wanted_versions(
    source: SchemaMachine, subject: str, names: LinkNames, problems: LinkProblems
) -> dict[int, StoredSchema]:
    """The versions of a subject of the source, as they are here."""
    found: dict[int, StoredSchema] = {}
    for number, each in source.versions(subject, deleted=True).items():
        try:
            found[number] = local_version(msgspec.structs.replace(each, version=number), names)
        except ValueError as error:
            problems.note(LinkProblem.UNUSABLE, str(error))
    return found


def plan_subject(
    subject: str,
    wanted: Mapping[int, StoredSchema],
    here: SchemaMachine,
    owner: LinkOwner,
    problems: LinkProblems,
    changes: SchemaLinkChanges,
) -> None:
    """Let a subject have the versions `wanted` of the source, besides those that were made here."""
    present = here.versions(subject, deleted=True)
    before = here.links.note(subject, owner.link) or owner.note()
    owned = {number for number in before.versions if number in present}
    puts = _puts(wanted, present, owned, here, problems, changes.ids)[:_VERSIONS_PER_STEP]
    gone = _gone(subject, owned - wanted.keys(), here, owner, problems)[:_VERSIONS_PER_STEP]
    claimed = owned | {each.version for each in puts}
    if claimed != set(before.versions):
        changes.records.append(link_note_record(subject, _noted(before, claimed)))
    changes.records += [schema_record(each) for each in puts]
    if gone:
        changes.records.append(highest_ids_record({**here.highest_ids()}))
        changes.records += [schema_tombstone(subject, number) for number in gone]
        changes.records.append(link_note_record(subject, _noted(before, claimed.difference(gone))))
    if puts or gone:
        added = sum(each.version not in present for each in puts)
        changes.changed[subject] = f"{added} added, {len(puts) - added} changed, {len(gone)} deleted"


def _puts(
    wanted: Mapping[int, StoredSchema],
    present: Mapping[int, StoredSchema],
    owned: Iterable[int],
    here: SchemaMachine,
    problems: LinkProblems,
    new: dict[tuple[str, int], StoredSchema],
) -> list[StoredSchema]:
    """The versions to store, those with lower ids first: so are the ones that others refer to."""
    puts: list[StoredSchema] = []
    for number, each in sorted(wanted.items(), key=lambda item: (item[1].id, item[0])):
        found = present.get(number)
        if found is not None and _is_same(found, each) and found.deleted == each.deleted:
            continue
        if found is not None and number not in owned:
            problems.note(LinkProblem.RETAINED, f"version {number} of {each.subject}")
            continue
        key = context_of(each.subject), each.id
        others = [*here.with_id(*key), *filter(None, [new.get(key)])]
        other = next((it for it in others if it is not found and not _is_same_text(it, each)), None)
        if other is not None:
            problems.note(
                LinkProblem.CLASH,
                f"the id {each.id} of version {number} of {each.subject}, which version {other.version} of "
                f"{other.subject} has here",
            )
            continue
        new.setdefault(key, each)
        puts.append(each)
    return puts


def _gone(
    subject: str, numbers: Iterable[int], here: SchemaMachine, owner: LinkOwner, problems: LinkProblems
) -> list[int]:
    """The versions to delete for good: all of them but those that schemas refer to which the link has not brought."""
    found: list[int] = []
    for number in sorted(numbers, reverse=True):
        users = here.referenced_by(subject, number, deleted=True)
        if any(not _is_brought(each, here, owner) for each in users):
            problems.note(LinkProblem.REFERRED, f"version {number} of {subject}")
        else:
            found.append(number)
    return found


def _is_brought(schema: StoredSchema, here: SchemaMachine, owner: LinkOwner) -> bool:
    note = here.links.note(schema.subject, owner.link)
    return note is not None and schema.version in note.versions


def _noted(note: LinkNote, versions: Iterable[int]) -> LinkNote | None:
    """The note with these versions; None if there is nothing left to note."""
    changed = msgspec.structs.replace(note, versions=tuple(sorted(versions)))
    return None if changed == LinkNote(note.link, note.name) else changed


def _is_same(one: StoredSchema, other: StoredSchema) -> bool:
    return one.id == other.id and _is_same_text(one, other)


def _is_same_text(one: StoredSchema, other: StoredSchema) -> bool:
    return (
        one.schema == other.schema
        and one.schema_type == other.schema_type
        and one.references == other.references
        and (one.metadata, one.rule_set) == (other.metadata, other.rule_set)
    )


def plan_settings(
    scope: str | None,
    source: SchemaMachine,
    source_scope: str | None,
    here: SchemaMachine,
    owner: LinkOwner,
    problems: LinkProblems,
    changes: SchemaLinkChanges,
) -> None:
    """Let a scope have the settings and the mode of the source, unless others were set here."""
    found = source.config(source_scope)
    config = None if found is None else local_config(found, scope, owner.names)
    mode = local_mode(source.mode(source_scope))
    key = scope_key(scope)
    before = here.links.note(key, owner.link) or owner.note()
    own_config, own_mode = here.config(scope), here.mode(scope)
    note, records = before, list[InternalRecord]()
    if own_config is None or own_config == before.config:
        note = msgspec.structs.replace(note, config=config)
        if own_config != config:
            records.append(config_record(scope, config))
    elif config is not None and config != msgspec.structs.replace(own_config, subject=scope):
        problems.note(LinkProblem.SETTINGS, f"the settings of {scope or 'all subjects'}")
    if own_mode is None or own_mode == before.mode:
        note = msgspec.structs.replace(note, mode=mode)
        if own_mode != mode:
            records.append(mode_record(scope, None if mode is None else StoredMode(mode, scope)))
    elif mode is not None and mode != own_mode:
        problems.note(LinkProblem.SETTINGS, f"the mode of {scope or 'all subjects'}")
    if note != before:
        changes.records.append(link_note_record(key, _noted(note, note.versions)))
    if records:
        changes.records += records
        changes.changed.setdefault(key or ":.:", "settings")


def plan_release(here: SchemaMachine, active: Iterable[str], limit: int) -> SchemaLinkChanges:
    """End the notes of links that copy no schemas any more, up to `limit`; what they have brought stays.

    Ids are left out above those of contexts that were held. The note that holds a context is the last to go: until then
    no id is given out there.
    """
    changes = SchemaLinkChanges()
    active = frozenset(active)
    ended = {scope: note for scope, note in here.links.all.items() if note.link not in active}
    if not ended:
        return changes
    ordered = sorted(ended.items(), key=lambda item: (item[1].is_held, item[0]))[:limit]
    raised = {
        context_of(scope): min(here.highest_id(context_of(scope)) + ID_ROOM, MAX_NUMBER)
        for scope, note in ordered
        if note.is_held
    }
    if raised:
        changes.records.append(highest_ids_record({**here.highest_ids(), **raised}))
    changes.records += [link_note_record(scope, None) for scope, _ in ordered]
    changes.changed = {scope or ":.:": note.name for scope, note in ordered if note.is_held}
    return changes
