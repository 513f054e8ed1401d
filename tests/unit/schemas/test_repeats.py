"""A deletion that a broker sends again after a failover is answered like the first time."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.schemas.errors import OutcomeUnknown, SchemaFault
from tests.unit.schemas.local_registry import LocalRegistry


@pytest.fixture
def leader() -> Iterator[LocalRegistry]:
    with ThreadPoolExecutor(1) as workers:
        made = LocalRegistry(workers)
        for size in (1, 2, 3):
            made.call("PUT", "/config", {"compatibility": "NONE"})
            schema = f'{{"type":"fixed","name":"F","size":{size}}}'
            made.call("POST", "/subjects/a/versions", {"schema": schema})
        yield made


@pytest.mark.parametrize("path", ["/subjects/a", "/subjects/a/versions/2"])
def test_a_repeated_deletion_is_answered_like_the_first_one(leader: LocalRegistry, path: str) -> None:
    for request in (path, f"{path}?permanent=true"):
        first = leader.call("DELETE", request)
        assert leader.call("DELETE", request, is_repeat=True) == first
        with pytest.raises(SchemaFault):
            leader.call("DELETE", request)


def test_a_repeated_deletion_of_the_latest_version_deletes_no_other_one(leader: LocalRegistry) -> None:
    assert leader.call("DELETE", "/subjects/a/versions/latest") == 3
    with pytest.raises(OutcomeUnknown):
        leader.call("DELETE", "/subjects/a/versions/latest", is_repeat=True)
    assert [*leader.machine.versions("a")] == [1, 2]


def test_what_was_never_there_is_not_found_by_a_repeat(leader: LocalRegistry) -> None:
    for path in ("/subjects/missing", "/subjects/missing/versions/1", "/subjects/a/versions/9"):
        with pytest.raises(SchemaFault):
            leader.call("DELETE", path, is_repeat=True)


@pytest.mark.parametrize(
    ("kind", "body", "left"),
    [("config", {"compatibility": "FULL"}, {}), ("mode", {"mode": "READONLY"}, {"mode": "READWRITE"})],
)
def test_a_setting_that_a_first_request_removed_is_removed(
    leader: LocalRegistry, kind: str, body: object, left: object
) -> None:
    leader.call("PUT", f"/{kind}/a", body)
    leader.call("DELETE", f"/{kind}/a")
    assert leader.call("DELETE", f"/{kind}/a", is_repeat=True) == left
    with pytest.raises(SchemaFault):
        leader.call("DELETE", f"/{kind}/a")
