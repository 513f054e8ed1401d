"""What a link writes to the registry so that the schemas of its source are in it."""

import json
from typing import Any

import msgspec
import pytest

from headrace.coordinator.machine import InternalRecord
from headrace.model.errors import SourceUnavailable
from headrace.schemas import link_source
from headrace.schemas.digest import digest_of
from headrace.schemas.errors import OperationNotPermitted
from headrace.schemas.link_plan import (
    ID_ROOM,
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
from headrace.schemas.link_source import LinkNames, SourceRegistry
from headrace.schemas.machine import SchemaMachine
from headrace.schemas.stored import SchemaReference, StoredConfig, StoredSchema, config_record, mode_record
from headrace.schemas.stored import StoredMode as Mode


def owner(prefix: str = "", *, link: str = "1", name: str = "eu", source: str = "t") -> LinkOwner:
    return LinkOwner(link, name, LinkNames(name, prefix), source)


def schema(subject: str, version: int, number: int, text: str = "", **more: Any) -> StoredSchema:
    return StoredSchema(subject, version, number, text or f'"s{number}"', **more)


def replay(machine: SchemaMachine, *records: InternalRecord) -> None:
    for each in records:
        machine.replay(each, -1)


def put(machine: SchemaMachine, *schemas: StoredSchema) -> None:
    """Store versions, whatever the rules say."""
    for each in schemas:
        key = json.dumps({"keytype": "SCHEMA", "subject": each.subject, "version": each.version, "magic": 1})
        value = msgspec.json.encode(msgspec.structs.replace(each, md5=digest_of(each)))
        replay(machine, InternalRecord(key.encode(), value))


def drop(machine: SchemaMachine, subject: str, version: int) -> None:
    key = json.dumps({"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1})
    replay(machine, InternalRecord(key.encode(), None))


def sync(source: SchemaMachine, here: SchemaMachine, by: LinkOwner, stop_after: int | None = None) -> LinkProblems:
    """One round; with `stop_after` the broker is killed after so many records of each step."""
    problems, changes = LinkProblems(), SchemaLinkChanges()
    usable = plan_holds(source, here, by, problems, changes)
    replay(here, *changes.records[:stop_after])
    for local, name in planned_subjects(source, here, by, usable).items():
        changes = SchemaLinkChanges()
        wanted = wanted_versions(source, name, by.names, problems) if name else {}
        plan_subject(local, wanted, here, by, problems, changes)
        replay(here, *changes.records[:stop_after])
    for scope, there in planned_scopes(source, here, by, usable).items():
        changes = SchemaLinkChanges()
        plan_settings(scope, source, there, here, by, problems, changes)
        replay(here, *changes.records[:stop_after])
    return problems


def versions(machine: SchemaMachine, subject: str) -> dict[int, tuple[int, bool]]:
    """By version: the id, and whether it is deleted."""
    return {number: (each.id, each.deleted) for number, each in machine.versions(subject, deleted=True).items()}


def settled(source: SchemaMachine, here: SchemaMachine, by: LinkOwner) -> str:
    """Sync, check that a second round changes nothing, and return what is wrong."""
    sync(source, here, by)
    revision = here.revision
    words = sync(source, here, by).words
    assert here.revision == revision, "a second round has nothing to do"
    return words


def test_versions_come_with_ids_numbers_guids_and_deletions() -> None:
    source, here = SchemaMachine(), SchemaMachine()
    put(source, schema("a-value", 1, 3), schema("a-value", 2, 7, deleted=True), schema(":.x:b", 4, 1))
    assert settled(source, here, owner()) == ""
    assert versions(here, "a-value") == {1: (3, False), 2: (7, True)}
    assert versions(here, ":.x:b") == {4: (1, False)}
    assert here.version("a-value", 1).md5 == source.version("a-value", 1).md5

    put(source, schema("a-value", 1, 3, deleted=True), schema("a-value", 3, 9))
    drop(source, "a-value", 2)
    drop(source, ":.x:b", 4)
    assert settled(source, here, owner()) == ""
    assert versions(here, "a-value") == {1: (3, True), 3: (9, False)}
    assert versions(here, ":.x:b") == {}, "also the last of its context"
    assert here.highest_id(".x") == 1, "ids are not given out again"


def test_with_a_prefix_subjects_have_it_and_a_context_of_the_link() -> None:
    source, here = SchemaMachine(), SchemaMachine()
    used = schema("common", 1, 1)
    user = schema("a-value", 1, 2, references=[SchemaReference("common", "common", 1)])
    put(source, used, user, schema(":.x:b", 1, 1, references=[SchemaReference("a", ":.:common", 1)]))
    put(here, schema("mine", 1, 1, '"mine"'), schema("mine", 2, 2, '"mine too"'))
    assert settled(source, here, owner("eu.")) == ""
    found = here.version(":.eu:eu.a-value", 1)
    assert (found.id, found.references) == (2, [SchemaReference("common", "eu.common", 1)])
    assert found.md5 == digest_of(user), "the GUID is that of the source, which records may have"
    assert {each.subject for each in here.referenced_by(":.eu:eu.common", 1)} == {":.eu:eu.a-value", ":.eu.x:eu.b"}
    assert versions(here, "mine") == {1: (1, False), 2: (2, False)}
    here.links.check_new_id("mine")  # Only the contexts of the link are held.


def test_an_id_that_another_schema_has_is_reported_and_nothing_is_overwritten() -> None:
    source, here = SchemaMachine(), SchemaMachine()
    put(source, schema("a-value", 1, 1), schema("a-value", 2, 2))
    put(here, schema("mine", 1, 1, '"another"'))
    words = settled(source, here, owner())
    assert "1 versions of the source have ids that other schemas have here" in words
    assert "the id 1 of version 1 of a-value, which version 1 of mine has here" in words
    assert versions(here, "a-value") == {2: (2, False)}
    assert here.version("mine", 1).schema == '"another"'


def test_one_id_for_two_schemas_of_a_source_is_stored_once() -> None:
    source, here = SchemaMachine(), SchemaMachine()
    put(source, schema("a", 1, 1), schema("b", 1, 1, '"another"'))
    assert sync(source, here, owner()).count(LinkProblem.CLASH) == 1
    assert len(here.with_id(".", 1)) == 1


def test_what_the_link_has_not_brought_stays() -> None:
    source, here = SchemaMachine(), SchemaMachine()
    put(source, schema("same", 1, 1), schema("same", 2, 2), schema("other", 1, 5))
    put(here, schema("same", 1, 1), schema("other", 1, 6))
    assert "1 versions differ" in settled(source, here, owner())
    assert versions(here, "same") == {1: (1, False), 2: (2, False)}, "versions after those of a former source follow"
    drop(source, "same", 1)
    drop(source, "same", 2)
    settled(source, here, owner())
    assert versions(here, "same") == {1: (1, False)}
    assert versions(here, "other") == {1: (6, False)}


def test_a_version_that_schemas_of_this_cluster_refer_to_is_not_deleted() -> None:
    source, here = SchemaMachine(), SchemaMachine()
    put(source, schema("common", 1, 1), schema("user", 1, 2, references=[SchemaReference("c", "common", 1)]))
    sync(source, here, owner())
    put(here, schema("mine", 1, 1, references=[SchemaReference("c", "common", 1)]))
    drop(source, "common", 1)
    drop(source, "user", 1)
    assert "1 versions were deleted at the source and stay here" in settled(source, here, owner())
    assert versions(here, "common") == {1: (1, False)}
    assert versions(here, "user") == {}


@pytest.mark.parametrize("stop_after", [0, 1, 2, 3])
def test_a_round_that_ends_anywhere_is_completed_by_the_next(stop_after: int) -> None:
    source, here = SchemaMachine(), SchemaMachine()
    put(source, schema("a", 1, 1), schema("a", 2, 2), schema("b", 1, 2, '"s2"'))
    sync(source, here, owner(), stop_after)
    assert settled(source, here, owner()) == ""
    assert versions(here, "a") == {1: (1, False), 2: (2, False)}
    drop(source, "a", 1)
    drop(source, "a", 2)
    put(source, schema("c", 1, 3))
    sync(source, here, owner(), stop_after)
    assert settled(source, here, owner()) == ""
    assert (versions(here, "a"), versions(here, "c")) == ({}, {1: (3, False)})
    assert "a" not in here.links.all


def test_clients_get_no_ids_of_a_context_that_is_held() -> None:
    source, here = SchemaMachine(), SchemaMachine()
    put(source, schema("a", 1, 4))
    put(here, schema("mine", 1, 1))
    sync(source, here, owner())
    fresh = schema("mine", 0, 0, '"new"')
    with pytest.raises(OperationNotPermitted, match="come over the link eu"):
        here.register(fresh, digest_of(fresh), here.state("mine"))
    local = schema(":.local:mine", 0, 0, '"new"')
    assert here.register(local, digest_of(local), here.state(":.local:mine")).answer.id == 1
    known = schema("mine", 0, 0, '"s4"')
    assert here.register(known, digest_of(known), here.state("mine")).answer.id == 4, "an id that exists is no new one"
    for change in (
        lambda: here.delete_subject("a", permanent=False),
        lambda: here.delete_version("a", 1, permanent=False),
        lambda: here.register(schema("a", 0, 0, '"s4"'), digest_of(schema("a", 1, 4)), here.state("a")),
    ):
        with pytest.raises(OperationNotPermitted, match="Subject a comes over the link eu"):
            change()
    here.delete_subject("mine", permanent=False)


def test_ids_of_schemas_that_are_gone_at_the_source_are_not_given_out_after_the_link() -> None:
    source, here = SchemaMachine(), SchemaMachine()
    put(source, schema("a", 1, 1), schema("a", 2, 40))
    drop(source, "a", 2)
    sync(source, here, owner())
    assert here.highest_id(".") == 40
    while changes := plan_release(here, ["2"], 1).records:
        assert here.links.holder(".") is not None, "held until the last step"
        replay(here, *changes)
    assert not here.links.all
    fresh = schema("mine", 0, 0, '"new"')
    assert here.register(fresh, digest_of(fresh), here.state("mine")).answer.id == 40 + ID_ROOM + 1
    assert versions(here, "a") == {1: (1, False)}
    here.delete_subject("a", permanent=False)


def test_a_context_has_one_link() -> None:
    source, here = SchemaMachine(), SchemaMachine()
    put(source, schema("a", 1, 1))
    sync(source, here, owner())
    other = SchemaMachine()
    put(other, schema("b", 1, 2))
    assert "the schemas of . come over the link eu already" in settled(other, here, owner(link="2", name="us"))
    assert versions(here, "b") == {}
    assert settled(other, here, owner("us.", link="2", name="us")) == ""


def test_mirrors_are_not_mirrored_again() -> None:
    eu, us = SchemaMachine(), SchemaMachine()
    put(eu, schema("a", 1, 1))
    put(us, schema("b", 1, 1, '"b"'))
    for _ in range(5):
        sync(eu, us, owner("eu.", link="1", name="eu"))
        problems = sync(us, eu, owner("us.", link="2", name="us"))
    assert us.subjects() == [":.eu:eu.a", "b"]
    assert eu.subjects() == [":.us:us.b", "a"]
    assert "come over the link eu at the source" in problems.words


def test_a_registry_that_was_created_again_deletes_nothing() -> None:
    source, here = SchemaMachine(), SchemaMachine()
    put(source, schema("a", 1, 1))
    sync(source, here, owner(source="first"))
    assert "was created again" in settled(SchemaMachine(), here, owner(source="second"))
    assert versions(here, "a") == {1: (1, False)}


def test_settings_and_modes_follow_unless_others_were_set_here() -> None:
    source, here = SchemaMachine(), SchemaMachine()
    put(source, schema("a", 1, 1))
    full, none = StoredConfig(compatibility_level="FULL"), StoredConfig(compatibility_level="NONE")
    replay(source, config_record(None, full), config_record("a", none), mode_record("a", Mode("READONLY", "a")))
    replay(source, config_record("b", StoredConfig(alias="a")))
    replay(here, config_record("a", StoredConfig("a", compatibility_level="FORWARD")))
    assert "the settings of a" in settled(source, here, owner())
    config, alias, own = here.config(None), here.config("b"), here.config("a")
    assert config is not None
    assert config.compatibility_level == "FULL"
    assert alias is not None
    assert alias.alias == "a"
    assert own is not None
    assert own.compatibility_level == "FORWARD"
    assert here.mode("a") == "READONLY"

    replay(source, config_record(None, none), config_record("b", None), mode_record("a", None))
    replay(here, config_record("a", None))
    assert settled(source, here, owner()) == ""
    assert (here.effective_config("z").compatibility_level, here.config("b"), here.mode("a")) == ("NONE", None, None)
    assert here.effective_config("a").compatibility_level == "NONE", "removed here: that of the source again"
    replay(here, config_record(None, full))
    assert "the settings of all subjects" in settled(source, here, owner())


def test_settings_for_all_subjects_are_those_of_the_links_contexts_with_a_prefix() -> None:
    source, here = SchemaMachine(), SchemaMachine()
    put(source, schema("a", 1, 1), schema(":.x:a", 1, 1))
    replay(source, config_record(None, StoredConfig(compatibility_level="FULL")))
    replay(source, config_record("a", StoredConfig("a", alias="c")))
    assert settled(source, here, owner("eu.")) == ""
    assert here.config(None) is None
    levels = [here.effective_config(each).compatibility_level for each in (":.eu:eu.a", ":.eu.x:eu.a", "mine")]
    assert levels == ["FULL", "FULL", "BACKWARD"]
    assert here.meant(":.eu:eu.a") == ":.eu:eu.c"


def test_what_cannot_be_stored_is_left_out_and_said() -> None:
    source, here = SchemaMachine(), SchemaMachine()
    put(source, schema("a", 1, 1), schema("b", 1, 2, schema_type="XML"), schema("c", 1, -3), schema("d\n", 1, 4))
    assert "3 versions or settings of the source cannot be stored here" in settled(source, here, owner())
    assert here.subjects() == ["a"]


def test_records_of_confluents_registry_are_read() -> None:
    found = SourceRegistry()
    found.replay(b'{"keytype":"NOOP","magic":0}', None)
    found.replay(
        b'{"keytype":"SCHEMA","subject":"a-value","version":1,"magic":1}',
        b'{"subject":"a-value","version":1,"id":100001,"guid":"x","schemaType":"AVRO","schema":"\\"int\\"","deleted":false,'
        b'"ts":1760000000000,"offset":3}',
    )
    found.replay(b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":"FULL"}')
    found.replay(b'{"keytype":"DELETE_SUBJECT","subject":"a-value","magic":0}', b'{"subject":"a-value","version":1}')
    found.replay(b'{"keytype":"CONTEXT","tenant":"default","context":".x","magic":0}', b'{"tenant":"default"}')
    here = SchemaMachine()
    assert (settled(found.machine, here, owner()), found.unreadable) == ("", "")
    assert versions(here, "a-value") == {1: (100001, True)}
    assert here.effective_config("z").compatibility_level == "FULL"


def test_a_hostile_source_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_source, "MAX_VERSIONS", 3)
    found = SourceRegistry()
    found.replay(b"not json", b"{}")
    found.replay(b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}', b"[]")
    found.replay(b'{"keytype":"NOOP","magic":0}', b"x" * (link_source.MAX_VALUE_BYTES + 1))
    assert (found.unreadable_count, found.machine.subjects()) == (3, [])
    found.replay(b'{"keytype":"CONFIG","subject":"a","magic":0}', b"{}")
    with pytest.raises(SourceUnavailable, match="a link copies no part of it"):
        found.replay(b'{"keytype":"CONFIG","subject":"b","magic":0}', b"{}")
