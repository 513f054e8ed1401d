"""Deduplication for effects outside of the broker: remembers the ids of handled messages with their results.

At-least-once delivery may bring a message twice. A mail that was sent, or a row in a database, is not part of
a Kafka transaction, so the handler must know what it has done already. There are two ways:

- `Deduplicator` keeps ids and results in a SQLite file. A redelivered message gets the stored result, and the
  handler is not called. A crash after the effect and before the result is stored repeats the effect: the window is
  small, and it cannot be closed from outside.
- `Claims` writes the id into **your** database, in the transaction that has the effect. Both are there or neither: the
  effect happens exactly once.
"""

import functools
import inspect
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import date, datetime, timedelta
from datetime import time as time_of_day
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol, TypeVar, cast
from uuid import UUID

import msgspec

from headrace.client.keywords import checks_keywords
from headrace.client.message import Message
from headrace.client.outgoing import Outgoing, encode_payload, pairs
from headrace.client.schemas.values import as_plain, encode_hook

_PRUNE_EVERY = 1000

F = TypeVar("F", bound=Callable[[Message], Any])


@checks_keywords
class Deduplicator:
    """A decorator that calls a handler once for each message id, remembered in SQLite. Thread-safe.

    ```python
    from headrace import Deduplicator

    once = Deduplicator("billing.db", scope="billing")


    @client.handler("orders", group="billing")
    @once
    def bill(order):
        print("mail for", order.key)
    ```

    A redelivered message gets the stored result. Results are None, `Outgoing` messages or plain data (numbers, text,
    lists, dicts). `scope` separates handlers that share a file and read the same messages. Ids are forgotten after
    `keep`, which must be longer than any redelivery or replay.
    """

    def __init__(self, path: str | Path, *, scope: str = "", keep: timedelta = timedelta(days=7)) -> None:
        self._scope = scope
        self._keep_s = keep.total_seconds()
        self._lock = threading.Lock()
        self._stored = 0
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._database.execute("PRAGMA journal_mode=WAL")
        # A result that was stored must be there after a power cut, or the effect is repeated.
        self._database.execute("PRAGMA synchronous=FULL")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS handled "
            "(scope TEXT, id TEXT, result BLOB NOT NULL, at REAL NOT NULL, PRIMARY KEY (scope, id)) WITHOUT ROWID"
        )
        self._database.execute("CREATE INDEX IF NOT EXISTS handled_at ON handled (at)")

    def __call__(self, handler: F) -> F:
        """The handler, called once per message id."""
        if inspect.iscoroutinefunction(handler):

            @functools.wraps(handler)
            async def call_async(message: Message) -> Any:
                found, result = self.result(message)
                return result if found else self.store(message, await handler(message))

            return cast(F, call_async)

        @functools.wraps(handler)
        def call(message: Message) -> Any:
            found, result = self.result(message)
            return result if found else self.store(message, handler(message))

        return cast(F, call)

    def result(self, message: Message) -> tuple[bool, Any]:
        """Whether the message was handled, and with which result."""
        with self._lock:
            row = self._database.execute(
                "SELECT result FROM handled WHERE scope = ? AND id = ?", (self._scope, message.id)
            ).fetchone()
        return (False, None) if row is None else (True, _unpack(row[0]))

    def store(self, message: Message, result: Any) -> Any:
        """Remember that the message was handled. Returns the result as a later `result` would."""
        packed = _pack(result)
        now_s = time.time()
        with self._lock:
            self._database.execute(
                "INSERT OR REPLACE INTO handled VALUES (?, ?, ?, ?)", (self._scope, message.id, packed, now_s)
            )
            self._stored += 1
            if self._stored % _PRUNE_EVERY == 0:
                self._database.execute("DELETE FROM handled WHERE at < ?", (now_s - self._keep_s,))
        return _unpack(packed)

    def close(self) -> None:
        """Close the file; also at the end of a `with` block."""
        with self._lock:
            self._database.close()

    def __enter__(self) -> "Deduplicator":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Cursor(Protocol):
    """What any DB-API 2.0 cursor has."""

    def execute(self, sql: str, parameters: Any = ..., /) -> Any: ...

    def fetchone(self) -> Any: ...


_MARKS = {"qmark": ("?", "?"), "format": ("%s", "%s"), "numeric": (":1", ":2")}


@checks_keywords
class Claims:
    """Ids of handled messages in a table of your own database, written in your own transaction.

    ```python
    import sqlite3

    from headrace import Claims

    claims = Claims(scope="billing", paramstyle=sqlite3.paramstyle)
    connection = sqlite3.connect("accounts.db")
    claims.create_table(connection.cursor())
    (order, *_) = client.replay("orders")
    with connection:
        if claims.claim(connection.cursor(), order):
            connection.execute("CREATE TABLE IF NOT EXISTS bills (item TEXT)")
    ```

    It works with any DB-API driver. When two processes claim the same id at the same time, one of them gets the
    driver's `IntegrityError` and rolls back; its retry finds the id claimed.
    """

    def __init__(
        self,
        *,
        scope: str,
        table: str = "headrace_handled",
        paramstyle: Literal["qmark", "format", "pyformat", "numeric"] = "qmark",
    ) -> None:
        if not table.replace("_", "").replace(".", "").isalnum():
            raise ValueError(f"{table!r} is not the name of a table")
        self._scope = scope
        self._table = table
        first, second = _MARKS["format" if paramstyle == "pyformat" else paramstyle]
        self._where = f"scope = {first} AND id = {second}"
        self._values = f"VALUES ({first}, {second})"

    def create_table(self, cursor: Cursor) -> None:
        """Make the table if it is not there."""
        cursor.execute(
            f"CREATE TABLE IF NOT EXISTS {self._table} "
            "(scope VARCHAR(200) NOT NULL, id VARCHAR(500) NOT NULL, PRIMARY KEY (scope, id))"
        )

    def claim(self, cursor: Cursor, message: Message) -> bool:
        """Within your transaction: True if the message is new, and claimed when you commit; False if it was handled."""
        ids = (self._scope, message.id)
        cursor.execute(f"SELECT 1 FROM {self._table} WHERE {self._where}", ids)
        if cursor.fetchone() is not None:
            return False
        cursor.execute(f"INSERT INTO {self._table} (scope, id) {self._values}", ids)
        return True


_encode = msgspec.msgpack.Encoder(enc_hook=encode_hook).encode
_READERS: dict[int, Callable[[str], Any]] = {
    1: Decimal,
    2: UUID,
    3: datetime.fromisoformat,
    4: date.fromisoformat,
    5: time_of_day.fromisoformat,
}
"""By the codes in stored results, which must not change."""
_CODES = {Decimal: 1, UUID: 2, datetime: 3, date: 4, time_of_day: 5}


def _pack(result: Any) -> bytes:
    if isinstance(result, Outgoing):
        return _encode(["one", _plain(result)])
    if isinstance(result, Iterable) and not isinstance(result, str | bytes | dict):
        results = list(result)
        if results and all(isinstance(each, Outgoing) for each in results):
            return _encode(["many", [_plain(each) for each in results]])
        result = results
    return _encode(["data", result])


def _plain(outgoing: Outgoing) -> dict[str, Any]:
    # A serializer cannot be stored, so it encodes now; the name of a subject is stored, and the value with it.
    headers = pairs(outgoing.headers)
    if outgoing.schema is not None and not isinstance(outgoing.schema, str):
        payload = outgoing.schema.encode(outgoing.payload, headers)
        outgoing = replace(outgoing, payload=payload, headers=headers, schema=None)
    if outgoing.key_schema is not None and not isinstance(outgoing.key_schema, str):
        key = outgoing.key_schema.encode(outgoing.key, headers, is_key=True)
        outgoing = replace(outgoing, key=key, headers=headers, key_schema=None)
    fields = {name: getattr(outgoing, name) for name in Outgoing.__slots__}
    if outgoing.key_schema is not None:
        fields["key"] = _tagged(as_plain(outgoing.key))
    if outgoing.schema is not None:
        fields["payload"] = _tagged(as_plain(outgoing.payload))
    else:
        fields["payload"], content_type = encode_payload(outgoing.payload)
        fields["content_type"] = outgoing.content_type or content_type
    return fields


def _tagged(value: Any) -> Any:
    """A plain value in which what MessagePack would store as text says what it is: its schema asks for the type."""
    if isinstance(value, dict):
        return {_tagged(name): _tagged(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_tagged(each) for each in value]
    code = _CODES.get(type(value))
    if code is None:
        return value
    return msgspec.msgpack.Ext(code, (value.isoformat() if hasattr(value, "isoformat") else str(value)).encode())


def _untagged(code: int, data: memoryview) -> Any:
    return _READERS[code](bytes(data).decode())


def _unpack(packed: bytes) -> Any:
    kind, data = msgspec.msgpack.decode(packed, ext_hook=_untagged)
    if kind == "one":
        return Outgoing(**data)
    if kind == "many":
        return [Outgoing(**each) for each in data]
    return data
