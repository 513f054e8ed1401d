"""How `headrace queue` shows queues and messages: to people as tables, to programs as JSON."""

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from headrace.cli.json_text import json_or_text, json_value, line, text_or_base64
from headrace.cli.output import human_duration, setting_text, table
from headrace.client.public import PeekedMessage, QueueMessage, Redrive
from headrace.client.queue.description import QueueDescription
from headrace.config.queue import NO_QUEUE, PREFIX, QUEUE_SETTINGS
from headrace.model.queue_wire import Counts

_BODY_CHARS = 60


def counts_of(counts: Counts | None) -> dict[str, int | None]:
    names = ("available", "in_flight", "delayed")
    return {name: None if counts is None else getattr(counts, name) for name in names}


def shown(counts: Counts | None) -> list[str]:
    return ["?" if value is None else f"{value:,}" for value in counts_of(counts).values()]


def description(found: QueueDescription, moves: Sequence[Redrive]) -> dict[str, Any]:
    """A queue, ready for JSON."""
    settings = {_name(field): value for field, value in found.settings.items()}
    return {"queue": found.name, **counts_of(found.counts), "settings": settings, "moves": [_move(m) for m in moves]}


def print_description(found: QueueDescription, moves: Sequence[Redrive], *, all_settings: bool) -> None:
    available, in_flight, delayed = shown(found.counts)
    print(f"{found.name}: {available} available, {in_flight} in flight, {delayed} delayed\n")
    defaults = asdict(NO_QUEUE)
    chosen = {_name(f): value for f, value in found.settings.items() if all_settings or value != defaults.get(f)}
    table(None, [("SETTING", "left"), ("VALUE", "left"), ("MEANING", "left")], _setting_rows(chosen))
    if not all_settings:
        print(f"\n{len(found.settings) - len(chosen)} settings have their default; --all shows them")
    if moves:
        print()
        columns = [("MOVE", "left"), ("TO", "left"), ("STATUS", "left"), ("MOVED", "right"), ("OF", "right")]
        rows = [(m.id, m.to or "where each came from", m.status, m.moved, m.to_move) for m in moves]
        table(None, columns, rows)


def _name(field: str) -> str:
    """The name of a setting by its field of `QueueSettings`."""
    return PREFIX + field.replace("_", ".")


def _setting_rows(settings: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [
        (name, setting_text(name, value), QUEUE_SETTINGS[name].doc if name in QUEUE_SETTINGS else "")
        for name, value in settings.items()
    ]


def _move(move: Redrive) -> dict[str, Any]:
    return {"id": move.id, "to": move.to, "status": move.status, "moved": move.moved, "of": move.to_move}


def print_message(message: QueueMessage, *, as_json: bool) -> None:
    """Print a message that was received, at once: it is acknowledged when it is printed."""
    out = sys.stdout.buffer
    if as_json:
        document = {
            "id": message.id,
            "attempt": message.attempt,
            "sent_at": message.sent_at_ms,
            "priority": message.priority,
            "group": message.group,
            "came_from": message.came_from,
            "reason": message.reason,
            "headers": [[name, text_or_base64(value)] for name, value in message.headers],
            "body": json_or_text(message.body),
        }
        out.write(line(document).encode() + b"\n")
    else:
        out.write(message.body + b"\n")
    out.flush()


def print_peeked(found: Sequence[PeekedMessage]) -> None:
    now_ms = time.time() * 1000
    heads = ("ID", "STATE", "RECEIVED", "SENT", "PRIORITY", "GROUP", "REASON", "BODY")
    columns = [(head, "right" if head in ("RECEIVED", "PRIORITY") else "left") for head in heads]
    rows = [
        (
            each.id,
            _state(each, now_ms),
            each.attempt,
            each.sent_at.astimezone().strftime("%Y-%m-%d %H:%M:%S"),
            each.priority,
            each.group or "-",
            each.reason or "-",
            _short(each.body),
        )
        for each in found
    ]
    # Leave out columns without a value in any row.
    filled = [index for index in range(len(heads)) if any(row[index] != "-" for row in rows)]
    table(None, [columns[index] for index in filled], [tuple(row[index] for index in filled) for row in rows])


def _state(message: PeekedMessage, now_ms: float) -> str:
    if message.until_ms is None:
        return message.state
    return f"{message.state}, {human_duration(max(0.0, message.until_ms - now_ms) / 1000)}"


def _short(body: bytes) -> str:
    text = body[: _BODY_CHARS * 4].decode(errors="replace").replace("\n", " ")
    return text if len(text) <= _BODY_CHARS else text[: _BODY_CHARS - 1] + "…"


def peeked(each: PeekedMessage) -> dict[str, Any]:
    return {
        "id": each.id,
        "state": each.state,
        "until": each.until_ms,
        "received": each.attempt,
        "sent_at": each.sent_at_ms,
        "priority": each.priority,
        "group": each.group,
        "came_from": each.came_from,
        "reason": each.reason,
        "headers": [[name, text_or_base64(value)] for name, value in each.headers],
        "body": json_value(each.body),
    }
