"""What a client remembers of the registry, and for how long."""

import json
import time
from typing import Any
from uuid import UUID

import pytest

from headrace.client.errors import SchemaFailed
from headrace.client.schemas import cache as module
from headrace.client.schemas.cache import SchemaCache

LONG = {"schema": '"long"', "id": 7, "subject": "s", "version": 1, "guid": str(UUID(int=7))}


class Calls:
    """Answers by path, and counts."""

    def __init__(self, **answers: Any) -> None:
        self.answers: dict[str, Any] = answers
        self.asked: list[str] = []

    def call(self, method: str, path: str, body: Any = None) -> Any:
        self.asked.append(path)
        found = self.answers[path]
        if isinstance(found, Exception):
            raise found
        return found


def cache(answers: dict[str, Any]) -> tuple[SchemaCache, Calls]:
    calls = Calls(**answers)
    return SchemaCache(calls), calls  # type: ignore[arg-type]


def test_a_schema_is_asked_for_once() -> None:
    schemas, calls = cache({"/schemas/ids/7": LONG, f"/schemas/guids/{UUID(int=7)}": LONG})
    for _ in range(3):
        assert schemas.codec(7).decode(b"\x02") == 1
        assert schemas.codec(UUID(int=7)).decode(b"\x02") == 1
    assert len(calls.asked) == 2


def test_the_latest_version_is_asked_for_again_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    schemas, calls = cache({"/subjects/s/versions/latest": LONG, "/subjects/s/versions/1": LONG})
    now_s = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    for _ in range(3):
        assert schemas.version("s").id == 7
        assert schemas.version("s", 1).id == 7
    assert len(calls.asked) == 2
    now_s += 61
    calls.answers["/subjects/s/versions/latest"] = {**LONG, "version": 2}
    assert [schemas.version("s").version, schemas.version("s", 1).version] == [2, 1]
    assert len(calls.asked) == 3


def test_schemas_that_one_refers_to_are_looked_up() -> None:
    record = {"type": "record", "name": "A", "fields": [{"name": "b", "type": "B"}]}
    other = {"type": "record", "name": "B", "fields": [{"name": "c", "type": "C"}]}
    fixed = {"type": "fixed", "name": "C", "size": 1}
    schemas, _ = cache(
        {
            "/schemas/ids/1": {
                "schema": json.dumps(record),
                "references": [{"name": "B", "subject": "b/x", "version": 3}],
            },
            "/subjects/b%2Fx/versions/3?deleted=true": {
                "schema": json.dumps(other),
                "references": [{"name": "C", "subject": "c", "version": 1}],
            },
            "/subjects/c/versions/1?deleted=true": {"schema": json.dumps(fixed)},
        }
    )
    assert schemas.codec(1).decode(b"x") == {"b": {"c": b"x"}}


def test_an_unknown_subject_is_an_error_that_says_what_to_do() -> None:
    schemas, _ = cache({"/subjects/s/versions/latest": SchemaFailed("Subject 's' not found.", code=40401)})
    with pytest.raises(SchemaFailed, match="headrace schema register s FILE"):
        schemas.version("s")


def test_the_number_of_schemas_in_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CACHED", 2)
    schemas, calls = cache({f"/schemas/ids/{number}": LONG for number in range(3)})
    for number in (0, 1, 0, 2, 0, 1):
        schemas.codec(number)
    assert calls.asked == [f"/schemas/ids/{number}" for number in (0, 1, 2, 1)]


def test_references_in_a_circle_are_not_followed_for_ever() -> None:
    latest = {"name": "a", "subject": "a", "version": -1}
    schemas, calls = cache(
        {
            "/schemas/ids/7": {**LONG, "references": [latest]},
            "/subjects/a/versions/-1?deleted=true": {**LONG, "references": [latest]},
        }
    )
    with pytest.raises(SchemaFailed, match="in a circle"):
        schemas.codec(7)
    assert len(calls.asked) < 150
