"""Lists of a registry with many subjects: others get their turn, and what is deleted meanwhile is left out."""

import asyncio
import json
from typing import Any, cast

import pytest

from headrace.schemas.machine import SchemaMachine
from headrace.schemas.operations.all_operations import find_operation
from headrace.schemas.operations.table import MAX_LISTED_BYTES, RegistryCall
from headrace.schemas.requests import RegistryRequest
from headrace.schemas.stored import StoredSchema, schema_record, schema_tombstone

COUNT = 3_000


def machine_of(count: int, text: str = '"int"') -> SchemaMachine:
    machine = SchemaMachine()
    for number in range(count):
        machine.replay(schema_record(StoredSchema(f"s{number:05}", 1, number + 1, text)), -1)
    return machine


async def answer(machine: SchemaMachine, path: str, **query: str) -> Any:
    request = RegistryRequest("GET", tuple(path.split("/")), query)
    found = find_operation(request)
    nobody = cast(Any, None)
    call = RegistryCall(request, found.names, found.context, machine, nobody, nobody, lambda _: True)
    return json.loads((await found.operation.handler(call)).body)


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("subjects", {}),
        ("schemas", {}),
        ("contexts", {}),
        ("headrace/subjects", {}),
        ("headrace/subjects", {"sort": "compatibility"}),
    ],
)
def test_others_get_their_turn(path: str, query: dict[str, str]) -> None:
    async def run() -> int:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count())
        await answer(machine_of(COUNT), path, **query)
        counting.cancel()
        return turns

    assert asyncio.run(run()) >= 5


@pytest.mark.parametrize("deleted", ["true", "false"])
@pytest.mark.parametrize("path", ["subjects", "schemas", "headrace/subjects"])
def test_what_is_deleted_for_good_meanwhile_does_no_harm(path: str, deleted: str) -> None:
    machine = machine_of(COUNT)

    async def run() -> Any:
        listing = asyncio.ensure_future(answer(machine, path, deleted=deleted, sort="version", order="desc"))
        await asyncio.sleep(0)
        for number in range(COUNT):
            machine.replay(schema_tombstone(f"s{number:05}", 1), -1)
        return await listing

    found = asyncio.run(run())
    listed = found["items"] if isinstance(found, dict) else found
    assert len(listed) <= COUNT


def test_a_page_of_texts_ends_at_a_number_of_bytes() -> None:
    machine = machine_of(10, json.dumps("x" * (MAX_LISTED_BYTES // 3)))

    async def run() -> list[int]:
        sizes: list[int] = []
        while page := await answer(machine, "schemas", offset=str(sum(sizes))):
            sizes.append(len(page))
        return sizes

    assert asyncio.run(run()) == [2, 2, 2, 2, 2]
    assert len(asyncio.run(answer(machine, "schemas", limit="1", offset="9"))) == 1
