"""A registry without brokers: requests are carried out on a machine, and every change is committed at once."""

import asyncio
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from headrace.coordinator.machine import InternalRecord, Outcome
from headrace.schemas.checker import SchemaChecker
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


class LocalRegistry:
    def __init__(self, workers: ThreadPoolExecutor) -> None:
        self.machine = SchemaMachine()
        self._checker = SchemaChecker(workers)

    def call(
        self, method: str, path: str, body: object = None, *, is_repeat: bool = False, hidden: Collection[str] = ()
    ) -> Any:
        """The answer. Raises `SchemaFault`. The caller may not see the hidden subjects."""
        path, _, query = path.partition("?")
        flags = dict(part.split("=") for part in query.split("&") if part)
        data = b"" if body is None else msgspec.json.encode(body)
        request = RegistryRequest(method, tuple(path.strip("/").split("/")), flags, data, is_repeat)
        found = find_operation(request)
        commit = _Commit(self.machine)
        call = RegistryCall(
            request,
            found.names,
            found.context,
            self.machine,
            self._checker,
            commit,
            lambda subject: subject not in hidden,
        )

        async def answer() -> Any:
            return msgspec.json.decode((await found.operation.handler(call)).body)

        return asyncio.run(answer())
