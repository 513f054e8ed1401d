import asyncio
import sqlite3
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from headrace.client.dedup import Claims, Deduplicator
from headrace.client.message import Header, Message
from headrace.client.outgoing import Outgoing


def message(offset: int, event_id: str | None = None) -> Message:
    headers = () if event_id is None else (("ce_id", event_id.encode()), ("ce_source", b"/shop"))
    return Message("orders", 0, offset, b"tea", headers=headers)


@pytest.fixture
def once(tmp_path: Path) -> Iterator[Deduplicator]:
    one = Deduplicator(tmp_path / "handled.db")
    yield one
    one.close()


def test_a_message_that_comes_again_gets_the_stored_result(once: Deduplicator) -> None:
    calls: list[int] = []

    @once
    def handle(each: Message) -> dict[str, int]:
        calls.append(each.offset)
        return {"offset": each.offset}

    assert handle(message(1)) == handle(message(1)) == {"offset": 1}
    assert handle(message(2)) == {"offset": 2}
    assert calls == [1, 2]


def test_values_for_the_schema_of_a_subject_keep_their_types(once: Deduplicator) -> None:
    """Else a decimal would come back as text, which its schema does not take."""
    noon = datetime(2026, 11, 18, 12, 0, 0, 123_456)
    value = {
        "price": Decimal("1.50"),
        "id": UUID(int=7),
        "days": [date(2026, 11, 18), noon, noon.replace(tzinfo=UTC), noon.time()],
        "raw": b"\x00",
    }

    @once
    def one(each: Message) -> Outgoing:
        return Outgoing("invoices", value, key=UUID(int=3), schema="invoices-value", key_schema="invoices-key")

    first, again = one(message(1)), one(message(1))
    assert first == again
    assert (again.payload, again.key) == (value, UUID(int=3))


def test_results_to_publish_are_published_again(once: Deduplicator) -> None:
    @once
    def one(each: Message) -> Outgoing:
        return Outgoing("invoices", {"n": each.offset}, key="k", headers={"h": b"\x00"}, type="billed", id="i")

    first, again = one(message(1)), one(message(1))
    assert first == again
    assert again.payload == b'{"n":1}'
    assert again.content_type == "application/json"
    assert (again.topic, again.key, again.headers, again.type) == ("invoices", "k", {"h": b"\x00"}, "billed")

    @once
    def many(each: Message) -> Iterator[Outgoing]:
        yield Outgoing("a", "1")
        yield Outgoing("b", None)

    assert [each.topic for each in many(message(2))] == ["a", "b"]
    assert many(message(2))[1].payload is None  # type: ignore[index]


class Marked:
    """A serializer that names its schema in a header."""

    def encode(self, value: Any, headers: list[Header] | None = None, *, is_key: bool = False) -> bytes | None:
        assert headers is not None
        headers.append(("key" if is_key else "value", b"schema"))
        return repr(value).encode()


def test_results_with_schemas_are_stored(once: Deduplicator) -> None:
    class Order(BaseModel):
        id: int

    @once
    def by_serializer(each: Message) -> Outgoing:
        return Outgoing("a", 5, key=7, headers={"h": "x"}, schema=Marked(), key_schema=Marked())

    for found in (by_serializer(message(1)), by_serializer(message(1))):
        assert (found.payload, found.key, found.schema, found.key_schema) == (b"5", b"7", None, None)
        assert [tuple(each) for each in found.headers or ()] == [("h", b"x"), ("value", b"schema"), ("key", b"schema")]

    @once
    def by_name(each: Message) -> Outgoing:
        return Outgoing("a", Order(id=1), schema="a-value")

    assert (by_name(message(2)).payload, by_name(message(2)).schema) == ({"id": 1}, "a-value")


def test_a_failure_is_not_remembered(once: Deduplicator) -> None:
    tries: list[int] = []

    @once
    def handle(each: Message) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        handle(message(1))
    assert handle(message(1)) is None
    assert handle(message(1)) is None
    assert len(tries) == 2


def test_an_event_sent_twice_is_recognised_by_its_id(once: Deduplicator) -> None:
    calls: list[int] = []
    handle = once(lambda each: calls.append(each.offset))
    handle(message(1, "e-1"))
    handle(message(9, "e-1"))
    handle(message(10, "e-2"))
    assert calls == [1, 10]


def test_ids_outlive_the_process_and_scopes_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "handled.db"
    first = Deduplicator(path, scope="a")
    first.store(message(1), "done")
    first.close()
    again, other = Deduplicator(path, scope="a"), Deduplicator(path, scope="b")
    assert again.result(message(1)) == (True, "done")
    assert other.result(message(1)) == (False, None)
    again.close()
    other.close()


def test_old_ids_are_forgotten(tmp_path: Path) -> None:
    once = Deduplicator(tmp_path / "handled.db", keep=timedelta(0))
    for offset in range(1000):
        once.store(message(offset), None)
    assert once.result(message(0)) == (False, None)
    once.close()


def test_coroutines(once: Deduplicator) -> None:
    calls: list[int] = []

    @once
    async def handle(each: Message) -> int:
        await asyncio.sleep(0)
        calls.append(each.offset)
        return 7

    async def twice() -> list[int]:
        return [await handle(message(1)), await handle(message(1))]

    assert asyncio.run(twice()) == [7, 7]
    assert calls == [1]


def test_a_claim_and_the_effect_are_one_transaction(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "accounts.db")
    claims = Claims(scope="billing", paramstyle="qmark")
    with database:
        claims.create_table(database.cursor())
        database.execute("CREATE TABLE account (balance INTEGER)")
        database.execute("INSERT INTO account VALUES (0)")

    def bill(each: Message, *, crash: bool = False) -> None:
        with database:
            cursor = database.cursor()
            if claims.claim(cursor, each):
                cursor.execute("UPDATE account SET balance = balance + 1")
                if crash:
                    raise RuntimeError("crash")

    with pytest.raises(RuntimeError):
        bill(message(1), crash=True)
    for _ in range(3):
        bill(message(1))
    bill(message(2))
    assert database.execute("SELECT balance FROM account").fetchone() == (2,)
    database.close()


def test_a_table_needs_a_name() -> None:
    with pytest.raises(ValueError, match="name of a table"):
        Claims(scope="x", table="a; DROP TABLE b")
