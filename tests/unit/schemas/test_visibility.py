"""What a caller that may not see a subject learns of its schemas."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.schemas.errors import InvalidSchema, OperationNotPermitted, SchemaNotFound
from tests.unit.schemas.local_registry import LocalRegistry

SECRET = '{"type":"record","name":"Secret","fields":[{"name":"code","type":"string"}]}'
USER = '{"type":"record","name":"User","fields":[{"name":"secret","type":"Secret"}]}'
REFERENCE = {"name": "Secret", "subject": "secret-value", "version": 1}
BODY = {"schema": USER, "references": [REFERENCE]}


@pytest.fixture
def registry() -> Iterator[LocalRegistry]:
    with ThreadPoolExecutor(1) as workers:
        made = LocalRegistry(workers)
        made.call("POST", "/subjects/secret-value/versions", {"schema": SECRET})
        yield made


@pytest.mark.parametrize(
    "path",
    [
        "/subjects/own-value/versions",
        "/subjects/:.other:own-value/versions",
        "/compatibility/subjects/own-value/versions",
    ],
)
def test_a_schema_cannot_refer_to_one_that_its_writer_may_not_see(registry: LocalRegistry, path: str) -> None:
    """Otherwise messages of the new schema, which are decoded by it, would show the fields of the other."""
    reference = {**REFERENCE, "subject": ":.:secret-value"}
    with pytest.raises(InvalidSchema, match="leads to nothing"):
        registry.call("POST", path, {"schema": USER, "references": [reference]}, hidden={"secret-value"})


def test_a_reference_that_a_subject_has_already_is_kept_by_other_writers(registry: LocalRegistry) -> None:
    number = registry.call("POST", "/subjects/own-value/versions", BODY)["id"]
    assert registry.call("POST", "/subjects/own-value/versions", BODY, hidden={"secret-value"})["id"] == number


def test_ids_of_schemas_that_refer_to_one_are_shown_to_those_who_may_see_them(registry: LocalRegistry) -> None:
    number = registry.call("POST", "/subjects/own-value/versions", BODY)["id"]
    path = "/subjects/secret-value/versions/1/referencedby"
    assert registry.call("GET", path) == [number]
    assert registry.call("GET", path, hidden={"own-value"}) == []


def test_a_guid_leads_to_the_subject_that_the_caller_may_see(registry: LocalRegistry) -> None:
    made = registry.call("POST", "/subjects/own-value/versions", {"schema": SECRET})
    for path in (f"/schemas/guids/{made['guid']}", f"/schemas/ids/{made['id']}"):
        assert registry.call("GET", path, hidden={"secret-value"})["schema"] == SECRET
        with pytest.raises(SchemaNotFound):
            registry.call("GET", path, hidden={"secret-value", "own-value"})
    assert registry.call("GET", f"/schemas/guids/{made['guid']}/ids") == [{"context": ".", "id": made["id"]}]


def test_ids_fit_into_the_four_bytes_of_messages(registry: LocalRegistry) -> None:
    registry.call("PUT", "/mode/own-value", {"mode": "IMPORT"})
    for number, version in ((2**31, 1), (7, 2**31)):
        with pytest.raises(OperationNotPermitted, match="at most"):
            registry.call("POST", "/subjects/own-value/versions", {"schema": SECRET, "id": number, "version": version})
