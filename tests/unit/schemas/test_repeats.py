"""A deletion that a broker sends again after a failover is answered like the first time."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from headrace.coordinator.machine import InternalRecord, Outcome
from headrace.schemas.checker import SchemaChecker
from headrace.schemas.errors import OutcomeUnknown, SchemaFault
from headrace.schemas.machine import SchemaMachine
from headrace.schemas.operations.all_operations import find_operation
from headrace.schemas.operations.table import CommitChange, RegistryCall
from headrace.schemas.requests import RegistryRequest


class _Commit(CommitChange):
    def __init__(self, machine: SchemaMachine) -> None:
        self._machine = machine

    async def __call__(self, change: Any) -> Any:
        outcome: Outcome[InternalRecord, object] = change()
        for record in outcome.records:
            self._machine.replay(record, -1)
        return outcome.answer


class _Leader:
    def __init__(self, workers: ThreadPoolExecutor) -> None:
        self.machine = SchemaMachine()
        self._checker = SchemaChecker(workers)

    def call(self, method: str, path: str, body: object = None, *, is_repeat: bool = False) -> object:
        path, _, query = path.partition("?")
        flags = dict(part.split("=") for part in query.split("&") if part)
        data = b"" if body is None else msgspec.json.encode(body)
        request = RegistryRequest(method, tuple(path.strip("/").split("/")), flags, data, is_repeat)
        found = find_operation(request)
        commit = _Commit(self.machine)
        call = RegistryCall(request, found.names, found.context, self.machine, self._checker, commit, lambda _: True)

        async def answer() -> object:
            return msgspec.json.decode((await found.operation.handler(call)).body)

        return asyncio.run(answer())


@pytest.fixture
def leader() -> Iterator["_Leader"]:
    with ThreadPoolExecutor(1) as workers:
        made = _Leader(workers)
        for size in (1, 2, 3):
            made.call("PUT", "/config", {"compatibility": "NONE"})
            schema = f'{{"type":"fixed","name":"F","size":{size}}}'
            made.call("POST", "/subjects/a/versions", {"schema": schema})
        yield made


@pytest.mark.parametrize("path", ["/subjects/a", "/subjects/a/versions/2"])
def test_a_repeated_deletion_is_answered_like_the_first_one(leader: _Leader, path: str) -> None:
    for request in (path, f"{path}?permanent=true"):
        first = leader.call("DELETE", request)
        assert leader.call("DELETE", request, is_repeat=True) == first
        with pytest.raises(SchemaFault):
            leader.call("DELETE", request)


def test_a_repeated_deletion_of_the_latest_version_deletes_no_other_one(leader: _Leader) -> None:
    assert leader.call("DELETE", "/subjects/a/versions/latest") == 3
    with pytest.raises(OutcomeUnknown):
        leader.call("DELETE", "/subjects/a/versions/latest", is_repeat=True)
    assert [*leader.machine.versions("a")] == [1, 2]


def test_what_was_never_there_is_not_found_by_a_repeat(leader: _Leader) -> None:
    for path in ("/subjects/missing", "/subjects/missing/versions/1", "/subjects/a/versions/9"):
        with pytest.raises(SchemaFault):
            leader.call("DELETE", path, is_repeat=True)
