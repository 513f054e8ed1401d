"""The state of the registry: versions, ids, deletion, settings and modes."""

from typing import TypeVar

import msgspec
import pytest

from headrace.coordinator.machine import InternalRecord, Outcome
from headrace.schemas.digest import digest_of
from headrace.schemas.errors import (
    OperationNotPermitted,
    ReferenceExists,
    SchemasChanged,
    SubjectNotFound,
    SubjectNotSoftDeleted,
    VersionNotFound,
)
from headrace.schemas.machine import LATEST, SchemaMachine
from headrace.schemas.stored import SchemaReference, StoredConfig, StoredSchema

A = TypeVar("A")


class Registry:
    """A machine whose records are applied at once, and kept as a compacted log."""

    def __init__(self) -> None:
        self.machine = SchemaMachine()
        self.log: dict[bytes, bytes | None] = {}

    def do(self, outcome: Outcome[InternalRecord, A]) -> A:
        for record in outcome.records:
            self.machine.replay(record, -1)
            self.log.pop(record.key, None)
            self.log[record.key] = record.value
        return outcome.answer

    def register(self, subject: str, text: str, *references: SchemaReference) -> StoredSchema:
        new = StoredSchema(subject, 0, 0, text, references=[*references])
        return self.do(self.machine.register(new, digest_of(new), self.machine.state(subject)))

    def compacted(self) -> "Registry":
        """The registry after a restart with a log without tombstones."""
        other = Registry()
        for key, value in self.log.items():
            if value is not None:
                other.do(Outcome([InternalRecord(key, value)], None))
        return other


def test_ids_are_given_out_in_order_and_shared_by_equal_schemas() -> None:
    registry = Registry()
    assert [registry.register("a", text).id for text in ("1", "2")] == [1, 2]
    assert registry.register("b", "2").id == 2
    assert registry.register("b", "3").version == 2
    assert registry.register(":.other:a", "2").id == 1


def test_a_record_is_written_as_other_registries_write_it() -> None:
    registry = Registry()
    registry.register("orders-value", '"string"')
    key, value = next(iter(registry.log.items()))
    assert key == b'{"keytype":"SCHEMA","subject":"orders-value","version":1,"magic":1}'
    assert msgspec.json.decode(value or b"")["schema"] == '"string"'
    registry.do(registry.machine.set_config(None, StoredConfig(compatibility_level="FULL")))
    assert registry.log[b'{"keytype":"CONFIG","magic":0}'] == b'{"compatibilityLevel":"FULL"}'


def test_an_id_is_not_used_again_after_its_schema_was_deleted_for_good() -> None:
    registry = Registry()
    for text in ("1", "2"):
        registry.register("a", text)
    registry.do(registry.machine.delete_version("a", 2, permanent=False))
    registry.do(registry.machine.delete_version("a", 2, permanent=True))
    restarted = registry.compacted()
    assert restarted.machine.with_id(".", 2) == []
    assert restarted.register("a", "3").id == 3


def test_a_schema_that_is_registered_again_after_soft_deletion_keeps_its_id() -> None:
    registry = Registry()
    registry.register("a", "1")
    registry.do(registry.machine.delete_subject("a", permanent=False))
    assert [*registry.machine.versions("a")] == []
    again = registry.register("a", "1")
    assert (again.id, again.version) == (1, 2)


def test_deletion_is_soft_first_then_for_good() -> None:
    registry = Registry()
    registry.register("a", "1")
    with pytest.raises(SubjectNotSoftDeleted):
        registry.machine.delete_subject("a", permanent=True)
    registry.do(registry.machine.delete_subject("a", permanent=False))
    with pytest.raises(SubjectNotFound):
        registry.machine.version("a", LATEST)
    assert registry.machine.version("a", 1, deleted=True).deleted
    registry.do(registry.machine.delete_subject("a", permanent=True))
    assert [*registry.machine.subjects()] == []


def test_a_schema_that_others_refer_to_cannot_be_deleted() -> None:
    registry = Registry()
    registry.register("part", "1")
    registry.register("whole", "2", SchemaReference("part.avsc", "part", 1))
    with pytest.raises(ReferenceExists, match="whole version 1 refers to it"):
        registry.machine.delete_version("part", 1, permanent=False)
    with pytest.raises(ReferenceExists):
        registry.machine.delete_subject("part", permanent=False)
    registry.do(registry.machine.delete_subject("whole", permanent=False))
    registry.do(registry.machine.delete_subject("part", permanent=False))


def test_a_registration_that_was_compared_with_other_versions_is_refused() -> None:
    registry = Registry()
    seen = registry.machine.state("a")
    seen = seen._replace(versions=dict(seen.versions))
    registry.register("a", "1")
    new = StoredSchema("a", 0, 0, "2")
    with pytest.raises(SchemasChanged):
        registry.machine.register(new, digest_of(new), seen)


def test_modes_forbid_writes_and_allow_imports() -> None:
    registry = Registry()
    registry.do(registry.machine.set_mode("a", "READONLY", force=False))
    with pytest.raises(OperationNotPermitted, match="read-only"):
        registry.register("a", "1")
    registry.do(registry.machine.set_mode("a", "IMPORT", force=False))
    new = StoredSchema("a", 7, 70, "1")
    registry.machine.check_import("a", has_id=True)
    imported = registry.do(registry.machine.register(new, digest_of(new), registry.machine.state("a")))
    assert (imported.version, imported.id) == (7, 70)
    other = StoredSchema("a", 8, 70, "2")
    with pytest.raises(OperationNotPermitted, match="Overwrite"):
        registry.machine.register(other, digest_of(other), registry.machine.state("a"))
    with pytest.raises(OperationNotPermitted, match="not in import mode"):
        registry.machine.check_import("b", has_id=True)


def test_settings_of_a_subject_come_before_those_of_its_context_and_the_global_ones() -> None:
    machine = Registry()
    assert machine.machine.effective_config("a").compatibility_level == "BACKWARD"
    machine.do(machine.machine.set_config(None, StoredConfig(compatibility_level="NONE", normalize=True)))
    machine.do(machine.machine.set_config(":.x:", StoredConfig(compatibility_level="FULL")))
    machine.do(machine.machine.set_config(":.x:a", StoredConfig(normalize=False)))
    found = machine.machine.effective_config(":.x:a")
    assert (found.compatibility_level, found.normalize) == ("FULL", False)
    assert machine.machine.effective_config("a").compatibility_level == "NONE"


def test_an_unknown_version_is_named() -> None:
    registry = Registry()
    registry.register("a", "1")
    with pytest.raises(VersionNotFound, match="Version 3 not found"):
        registry.machine.version("a", 3)


def test_what_was_deleted_is_known_to_a_repeated_deletion() -> None:
    registry = Registry()
    for text in ("1", "2"):
        registry.register("a", text)
    registry.do(registry.machine.delete_subject("a", permanent=False))
    assert registry.machine.deleted_versions("a", permanent=False) == [1, 2]
    assert registry.machine.deleted_versions("a", permanent=True) == []
    registry.do(registry.machine.delete_subject("a", permanent=True))
    assert registry.machine.deleted_versions("a", permanent=True) == [1, 2]
    registry.register("a", "3")
    assert registry.machine.deleted_versions("a", permanent=True) == []
