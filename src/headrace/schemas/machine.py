"""The state of `_schemas`: subjects with their versions, settings and modes. Pure.

Operations return records; only `replay` changes the state. Ids are given out in order, one sequence for each context,
and never again: the highest one is stored when a schema is deleted for good.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from headrace.coordinator.machine import EntryMachine, InternalRecord, Outcome
from headrace.model.errors import CorruptBatch
from headrace.schemas.compatibility import DEFAULT_LEVEL
from headrace.schemas.errors import (
    IdDoesNotMatch,
    InvalidVersion,
    OperationNotPermitted,
    ReferenceExists,
    SchemasChanged,
    SubjectNotFound,
    SubjectNotSoftDeleted,
    SubjectSoftDeleted,
    VersionNotFound,
    VersionNotSoftDeleted,
    VersionSoftDeleted,
)
from headrace.schemas.link_notes import LinkNotes
from headrace.schemas.stored import (
    LinkNote,
    StoredConfig,
    StoredDeletion,
    StoredHighestIds,
    StoredMode,
    StoredSchema,
    config_record,
    deletion_record,
    highest_ids_record,
    mode_record,
    read_key,
    schema_record,
    schema_tombstone,
)
from headrace.schemas.subjects import DEFAULT_CONTEXT, context_of, context_subject, qualified

MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT", "FORWARD")
IMPORTS = ("IMPORT", "FORWARD")
LATEST = -1
MAX_NUMBER = 2**31 - 1
"""Of an id or a version."""
_MAX_GONE = 1000
"""Subjects whose last deletion for good is known: a broker repeats a request within seconds."""

Versions = Mapping[int, StoredSchema]


class SubjectState(NamedTuple):
    """The versions of a subject that a new one is compared with; it is current while `revision` is."""

    versions: Versions
    revision: int


class SchemaMachine(EntryMachine):
    """The registry of a cluster; the topic has one partition."""

    def __init__(self) -> None:
        self._subjects: dict[str, dict[int, StoredSchema]] = {}
        self._by_id: dict[tuple[str, int], dict[tuple[str, int], StoredSchema]] = {}
        """By context and id: every version that has this id, by subject and version."""
        self._by_digest: dict[tuple[str, str], int] = {}
        """By context and digest: the id of the schema."""
        self._referrers: dict[tuple[str, int], dict[tuple[str, int], StoredSchema]] = {}
        """By subject and version: every version that refers to it, by subject and version."""
        self._sorted: list[str] | None = None
        """The names of all subjects in order, once they were asked for."""
        self._highest: dict[str, int] = {}
        self._configs: dict[str | None, StoredConfig] = {}
        self._modes: dict[str | None, StoredMode] = {}
        self._gone: OrderedDict[str, list[int]] = OrderedDict()
        """The versions that were deleted for good, of the subjects of the last such deletions."""
        self.links = LinkNotes()
        """What links to other clusters have brought."""
        self._revision = 0

    # -- reading

    @property
    def revision(self) -> int:
        """Another number after each record."""
        return self._revision

    def subjects(self) -> list[str]:
        """All subjects in order; the list is not to be changed."""
        if self._sorted is None:
            self._sorted = sorted(self._subjects)
        return self._sorted

    def state(self, subject: str) -> SubjectState:
        return SubjectState(self._subjects.get(subject, {}), self._revision)

    def versions(self, subject: str, *, deleted: bool = False) -> Versions:
        """The versions of a subject; without those that were deleted, unless asked for."""
        found = self._subjects.get(subject, {})
        return {number: each for number, each in sorted(found.items()) if deleted or not each.deleted}

    def has_versions(self, subject: str) -> bool:
        """Whether a subject has versions that are not deleted."""
        return any(not each.deleted for each in self._subjects.get(subject, {}).values())

    def known_versions(self, subject: str, *, deleted: bool = False) -> Versions:
        """The versions of a subject that has some; `SubjectNotFound` otherwise."""
        found = self.versions(subject, deleted=deleted)
        if not found:
            raise SubjectNotFound(f"Subject '{subject}' not found.")
        return found

    def version(self, subject: str, number: int, *, deleted: bool = False) -> StoredSchema:
        """A version by its number, or the newest with `LATEST`."""
        found = self.known_versions(subject, deleted=deleted)
        if number == LATEST:
            return found[max(found)]
        if number not in found:
            raise VersionNotFound(f"Version {number} not found.")
        return found[number]

    def deleted_versions(self, subject: str, *, permanent: bool) -> list[int]:
        """The versions that were deleted softly, or for good not long ago: the answer to a repeated deletion."""
        if permanent:
            return sorted(self._gone.get(subject, ()))
        return [number for number, each in self.versions(subject, deleted=True).items() if each.deleted]

    def with_id(self, context: str, number: int) -> list[StoredSchema]:
        """Every version with this id, deleted ones included."""
        return [*self._by_id.get((context, number), {}).values()]

    def with_digest(self, digest: str) -> list[StoredSchema]:
        """Every version with this GUID, in any context, the default one first."""
        contexts = dict.fromkeys((DEFAULT_CONTEXT, *self._highest))
        ids = ((each, self._by_digest.get((each, digest), 0)) for each in contexts)
        return [version for context, number in ids for version in self.with_id(context, number)]

    def belongs(self, key: int | str, subject: str) -> bool:
        """Whether the subject, or the one it is an alias of, has a version of this id or GUID that is not deleted."""
        return any(
            key == (each.id if isinstance(key, int) else each.md5) and not each.deleted
            for name in {subject, self.meant(subject)}
            for each in self._subjects.get(name, {}).values()
        )

    def meant(self, subject: str) -> str:
        """The subject that this one is an alias of; itself if it is none."""
        config = self._configs.get(subject)
        return qualified(context_of(subject), config.alias) if config is not None and config.alias else subject

    def highest_id(self, context: str) -> int:
        return self._highest.get(context, 0)

    def highest_ids(self) -> Mapping[str, int]:
        """The highest id of each context that ever had one."""
        return self._highest

    def scopes(self) -> list[str | None]:
        """Whatever may have settings or a mode: None for the global ones, contexts, subjects; in order."""
        named = {*self._subjects, *self._configs, *self._modes} - {None}
        return [None, *sorted(each for each in named if each is not None)]

    def settings(self) -> list[InternalRecord]:
        """Settings and modes as their records: global ones, of contexts, and of subjects, which need no versions."""
        configs = [config_record(subject, config) for subject, config in self._configs.items()]
        return configs + [mode_record(subject, mode) for subject, mode in self._modes.items()]

    def referenced_by(self, subject: str, version: int, *, deleted: bool = False) -> list[StoredSchema]:
        """The schemas that refer to a version."""
        found = self._referrers.get((subject, version), {}).values()
        return [each for each in found if deleted or not each.deleted]

    def config(self, subject: str | None) -> StoredConfig | None:
        """The settings of a subject itself, or the global ones with None."""
        return self._configs.get(subject)

    def aliased(self, prefix: str) -> set[str]:
        """The subjects that those of a prefix are aliases of."""
        return {
            qualified(context_of(subject), config.alias)
            for subject, config in self._configs.items()
            if subject is not None and config.alias and subject.startswith(prefix)
        }

    def mode(self, subject: str | None) -> str | None:
        found = self._modes.get(subject)
        return None if found is None else found.mode

    def effective_mode(self, subject: str) -> str:
        overridden = self.mode(None)
        if overridden == "READONLY_OVERRIDE":
            return overridden
        return self.mode(subject) or self.mode(context_subject(subject)) or overridden or "READWRITE"

    def effective_config(self, subject: str) -> StoredConfig:
        """Each setting of the subject, else of its context, else the global one, else the default."""
        levels = [self._configs.get(each) for each in dict.fromkeys((subject, context_subject(subject), None))]
        found = {
            name: next(
                (value for each in levels if each is not None and (value := getattr(each, name)) is not None), None
            )
            for name in StoredConfig.__struct_fields__
        }
        if found["compatibility_level"] is None:
            found["compatibility_level"] = DEFAULT_LEVEL
        return StoredConfig(**found)

    # -- changes

    def register(self, new: StoredSchema, digest: str, seen: SubjectState) -> Outcome[InternalRecord, StoredSchema]:
        """Add a version; an `id` or `version` below 1 is chosen here. `SchemasChanged` if others came in between."""
        subject, context = new.subject, context_of(new.subject)
        if seen.revision != self._revision and seen.versions != self._subjects.get(subject, {}):
            raise SchemasChanged("the subject has changed meanwhile")
        self._check_writable(subject, is_import=new.id > 0)
        self.links.check_change(subject)
        known = self._subjects.get(subject, {})
        version = new.version if new.version > 0 else max(known, default=0) + 1
        if version in known and known[version].schema != new.schema:
            raise InvalidVersion(f"Version {version} of subject '{subject}' has another schema.")
        number = new.id if new.id > 0 else self._by_digest.get((context, digest), 0) or self.highest_id(context) + 1
        if max(number, version) > MAX_NUMBER:
            raise OperationNotPermitted(f"Ids and versions are at most {MAX_NUMBER}: an id has four bytes.")
        others = self.with_id(context, number)
        if not others:
            self.links.check_new_id(subject)
        for other in others:
            if other.schema != new.schema or other.schema_type != new.schema_type:
                raise OperationNotPermitted(f"Overwrite new schema with id {number} is not permitted.")
        stored = msgspec.structs.replace(new, id=number, version=version, md5=digest)
        return Outcome([schema_record(stored)], stored)

    def delete_version(self, subject: str, number: int, *, permanent: bool) -> Outcome[InternalRecord, int]:
        """Delete a version softly, or for good one that was deleted softly before."""
        self._check_writable(subject, is_import=True)
        self.links.check_change(subject)
        known = self.known_versions(subject, deleted=True)
        if number == LATEST:
            number = max(self.versions(subject), default=max(known))
        found = known.get(number)
        if found is None:
            raise VersionNotFound(f"Version {number} not found.")
        if found.deleted and not permanent:
            raise VersionSoftDeleted(
                f"Subject '{subject}' Version {number} was soft deleted. Set permanent=true to delete permanently"
            )
        if permanent and not found.deleted:
            raise VersionNotSoftDeleted(
                f"Subject '{subject}' Version {number} was not deleted first before being permanently deleted"
            )
        self._check_unreferenced(subject, number, permanent)
        if not permanent:
            return Outcome([schema_record(msgspec.structs.replace(found, deleted=True))], number)
        records = [highest_ids_record(self._highest), schema_tombstone(subject, number)]
        if len(known) == 1:
            records += self._without_settings(subject)
        return Outcome(records, number)

    def delete_subject(self, subject: str, *, permanent: bool) -> Outcome[InternalRecord, list[int]]:
        """Delete all versions softly, or for good those that were deleted softly before."""
        known = self.known_versions(subject, deleted=True)
        left = self.versions(subject)
        if not left and not permanent:
            raise SubjectSoftDeleted(f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently")
        if left and permanent:
            raise SubjectNotSoftDeleted(f"Subject '{subject}' was not deleted first before being permanently deleted")
        self._check_writable(subject, is_import=True)
        self.links.check_change(subject)
        for number in known if permanent else left:
            self._check_unreferenced(subject, number, permanent, but=subject)
        if not permanent:
            return Outcome([deletion_record(subject, max(left))], [*left])
        records = [highest_ids_record(self._highest)]
        records += [schema_tombstone(subject, number) for number in sorted(known, reverse=True)]
        return Outcome([*records, *self._without_settings(subject)], [*known])

    def set_config(self, subject: str | None, config: StoredConfig | None) -> Outcome[InternalRecord, None]:
        return Outcome([config_record(subject, config)], None)

    def set_mode(self, subject: str | None, mode: str | None, *, force: bool) -> Outcome[InternalRecord, None]:
        """Change a mode. Imports need an empty registry or subject, or force: they may overwrite."""
        if mode in IMPORTS and not force:
            has_any = any(map(self.has_versions, self._subjects if subject is None else (subject,)))
            if has_any and self.effective_mode(subject or "") not in IMPORTS:
                raise OperationNotPermitted("Cannot import since found existing subjects")
        stored = None if mode is None else StoredMode(mode, subject)
        return Outcome([mode_record(subject, stored)], None)

    def raise_highest_ids(self, ids: Mapping[str, int]) -> Outcome[InternalRecord, None]:
        """Give out no id up to these any more: those of schemas that were deleted for good where they come from."""
        if any(not 0 < number <= MAX_NUMBER for number in ids.values()):
            raise OperationNotPermitted(f"Ids are numbers from 1 to {MAX_NUMBER}.")
        raised = {context: max(number, self.highest_id(context)) for context, number in ids.items()}
        return Outcome([highest_ids_record({**self._highest, **raised})], None)

    def delete_modes(self, scope: str | None) -> Outcome[InternalRecord, None]:
        """Delete a mode, and those of all subjects of its context, or of all subjects with None."""
        below = [subject for subject in self._modes if subject is not None and subject.startswith(scope or "")]
        return Outcome([mode_record(each, None) for each in dict.fromkeys((scope, *below))], None)

    def _check_writable(self, subject: str, *, is_import: bool) -> None:
        mode = self.effective_mode(subject)
        if mode.startswith("READONLY"):
            raise OperationNotPermitted(f"Subject {subject} is in read-only mode")
        if mode in IMPORTS and not is_import:
            raise OperationNotPermitted(f"Subject {subject} is in import mode")

    def check_import(self, subject: str, *, has_id: bool) -> None:
        """Refuse an id outside of imports."""
        if has_id and self.effective_mode(subject) not in IMPORTS:
            raise OperationNotPermitted(f"Subject {subject} is not in import mode")

    def check_id(self, found: StoredSchema, wanted: int) -> None:
        if wanted > 0 and found.id != wanted:
            raise IdDoesNotMatch(f"Schema already registered with id {found.id} instead of input id {wanted}")

    def _check_unreferenced(self, subject: str, version: int, permanent: bool, but: str = "") -> None:
        others = [each for each in self.referenced_by(subject, version, deleted=permanent) if each.subject != but]
        if others:
            raise ReferenceExists(
                f"One or more references exist to the schema {{magic=1,keytype=SCHEMA,subject={subject},"
                f"version={version}}}: {others[0].subject} version {others[0].version} refers to it"
            )

    def _without_settings(self, subject: str) -> Iterator[InternalRecord]:
        if subject in self._configs:
            yield config_record(subject, None)
        if subject in self._modes:
            yield mode_record(subject, None)

    # -- replay

    def replay(self, entry: InternalRecord, producer_id: int) -> None:
        try:
            self._replay(entry)
        except msgspec.MsgspecError as error:
            raise CorruptBatch(f"a record of a schema cannot be read: {error}") from None
        self._revision += 1

    def _replay(self, entry: InternalRecord) -> None:
        key, value = read_key(entry.key), entry.value
        match key.keytype:
            case "SCHEMA" if key.subject is not None and key.version is not None:
                stored = None if value is None else msgspec.json.decode(value, type=StoredSchema)
                self._put(key.subject, key.version, stored)
            case "CONFIG" if value is None:
                self._configs.pop(key.subject, None)
            case "CONFIG":
                self._configs[key.subject] = msgspec.json.decode(value or b"", type=StoredConfig)
            case "MODE" if value is None:
                self._modes.pop(key.subject, None)
            case "MODE":
                self._modes[key.subject] = msgspec.json.decode(value or b"", type=StoredMode)
            case "DELETE_SUBJECT" if value is not None:
                deletion = msgspec.json.decode(value, type=StoredDeletion)
                for number, each in [*self._subjects.get(deletion.subject, {}).items()]:
                    if number <= deletion.version:
                        self._put(deletion.subject, number, msgspec.structs.replace(each, deleted=True))
            case "CLEAR_SUBJECT" if value is not None:
                subject = msgspec.json.decode(value, type=StoredDeletion).subject
                for number, each in [*self._subjects.get(subject, {}).items()]:
                    if each.deleted:
                        self._put(subject, number, None)
            case "NOOP" if key.subject is not None:
                note = None if value is None else msgspec.json.decode(value, type=LinkNote)
                self.links.put(key.subject, note)
            case "NOOP" if value is not None:
                for context, highest in msgspec.json.decode(value, type=StoredHighestIds).highest_ids.items():
                    self._highest[context] = max(highest, self._highest.get(context, 0))

    def _put(self, subject: str, version: int, new: StoredSchema | None) -> None:
        if subject not in self._subjects:
            self._sorted = None
        context, versions = context_of(subject), self._subjects.setdefault(subject, {})
        before = versions.pop(version, None)
        if before is not None:
            self._forget_references((subject, version), before)
            same = self._by_id.get((context, before.id), {})
            same.pop((subject, version), None)
            if not same:
                self._by_id.pop((context, before.id), None)
                if before.md5 is not None and self._by_digest.get((context, before.md5)) == before.id:
                    del self._by_digest[context, before.md5]
        if new is None:
            self._note_gone(subject, version)
            if not versions:
                del self._subjects[subject]
                self._sorted = None
            return
        self._gone.pop(subject, None)
        versions[version] = new
        self._by_id.setdefault((context, new.id), {})[subject, version] = new
        if new.md5 is not None:
            self._by_digest.setdefault((context, new.md5), new.id)
        for each in _targets(new):
            self._referrers.setdefault(each, {})[subject, version] = new
        self._highest[context] = max(new.id, self._highest.get(context, 0))

    def _forget_references(self, user: tuple[str, int], schema: StoredSchema) -> None:
        for each in _targets(schema):
            users = self._referrers.get(each, {})
            users.pop(user, None)
            if not users:
                self._referrers.pop(each, None)

    def _note_gone(self, subject: str, version: int) -> None:
        self._gone.setdefault(subject, []).append(version)
        self._gone.move_to_end(subject)
        if len(self._gone) > _MAX_GONE:
            self._gone.popitem(last=False)

    def replay_end(self, producer_id: int, *, committed: bool) -> None:
        """No record of schemas is part of a transaction."""

    def loaded(self, now_ms: float) -> None:
        """There are no deadlines."""


def _targets(schema: StoredSchema) -> set[tuple[str, int]]:
    """The subject and version of each schema that one refers to."""
    context = context_of(schema.subject)
    return {(qualified(context, each.subject), each.version) for each in schema.references}
