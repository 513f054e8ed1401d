"""The work of `headrace queue`, through the SDK."""

import logging
import re
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from headrace.cli.admin import Admin
from headrace.cli.cluster.plans import parse_size
from headrace.cli.errors import BadArgument, CommandFailed
from headrace.cli.names import nearest, no_such
from headrace.cli.options import parse_pairs
from headrace.cli.output import count, human_duration, print_json, say, table
from headrace.cli.progress import ProgressLine
from headrace.cli.queue.view import (
    counts_of,
    description,
    peeked,
    print_description,
    print_message,
    print_peeked,
    shown,
)
from headrace.cli.reach import check_http_reachable, check_reachable, is_loopback
from headrace.cli.times import parse_duration
from headrace.client.public import (
    Client,
    ClientError,
    NewMessage,
    NoSuchQueue,
    Queue,
    QueueFailed,
    QueueMessage,
    Redrive,
    Unreachable,
)
from headrace.client.queue.message import SendOptions
from headrace.client.queue.settings import QueueOptions, known

_AT_ONCE = 100
_SENT_AT_ONCE = 10_000
_PATIENCE_S = 15.0
"""For so long a broker is waited for: longer than another takes to lead the queue, and no longer than people wait."""
_SILENT = logging.getLogger("headrace.cli.queue.commands")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False

Options = dict[str, Any]
"""What `QueueOptions` are, as they come from the command line."""


@contextmanager
def queue_client(bootstrap: str, http: str) -> Iterator[Client]:
    """A client whose errors are sentences of the command."""
    check_reachable(bootstrap)
    if http:
        check_http_reachable(http)
    else:
        Admin(bootstrap).cluster()  # the addresses that it tells, too, before the client tries them for long
    # What fails is said by the command; librdkafka and the SDK would write lines of their own between.
    logging.getLogger("headrace.client").addHandler(logging.NullHandler())
    # Secrets are not options of the commands, which all users of the machine can see: the client takes them from the
    # environment or the profile.
    client = Client(
        bootstrap,
        client_id="headrace-cli",
        http=http,
        patience=_PATIENCE_S,
        settings={"logger": _SILENT},
    )
    try:
        with client:
            try:
                yield client
            except NoSuchQueue as error:
                raise CommandFailed(_with_nearest(client, str(error))) from None
    except Unreachable as error:
        raise CommandFailed(f"{error}{_why_unreachable(str(error), bootstrap)}") from None
    except (ClientError, ValueError, TypeError) as error:
        raise CommandFailed(str(error)) from None


_NO_QUEUE = re.compile(r"there is no queue ([^\s;]+)(; .*)?")


def _with_nearest(client: Client, text: str) -> str:
    """The error for a queue that does not exist, with the nearest name that does."""
    found = _NO_QUEUE.fullmatch(text)
    if found is None:
        return text
    known = [each.name for each in client.queues()]
    if found[2] and nearest(found[1], known) is None:
        return text
    return no_such("queue", found[1], known, "headrace queue list")


def _why_unreachable(text: str, bootstrap: str) -> str:
    """A hint for a remote broker that serves queues on its own machine only, which is the default."""
    if "//127.0.0.1:" in text and not is_loopback(bootstrap):
        return f"; {bootstrap} serves queues to its own machine only until it is started with --http-listen"
    return ""


@contextmanager
def _queue(bootstrap: str, http: str, name: str) -> Iterator[Queue]:
    with queue_client(bootstrap, http) as client:
        yield client.queue(name)


def options_of(
    visibility: str | None,
    delay: str | None,
    retention: str | None,
    max_receives: int | None,
    dead_letter: str | None,
    backoff: str | None,
    settings: list[str],
) -> Options:
    """The options that were given."""
    times = {"visibility": visibility, "delay": delay, "retention": retention, "backoff": backoff}
    found: Options = {name: parse_duration(text) for name, text in times.items() if text is not None}
    others = {"max_receives": max_receives, "dead_letter": dead_letter}
    found |= {name: value for name, value in others.items() if value is not None}
    if settings:
        pairs = parse_pairs(settings, "--set")
        for name in pairs:
            _known(name)
        found["settings"] = pairs
    return found


def backlog_options(messages: int | None, size: str | None, age: str | None, policy: str | None) -> Options:
    """The options that bound the backlog, of those that were given."""
    found: Options = {"max_backlog": messages, "max_backlog_policy": policy}
    if size is not None:
        found["max_backlog_bytes"] = parse_size(size)
    if age is not None:
        found["max_backlog_age"] = parse_duration(age)
    return {name: value for name, value in found.items() if value is not None}


def _known(setting: str) -> str:
    try:
        return known(setting)
    except ValueError as error:
        raise BadArgument(str(error)) from None


def create_queue(bootstrap: str, http: str, name: str, options: Options) -> None:
    with _queue(bootstrap, http, name) as queue:
        try:
            queue.create(**_typed(options))
        except QueueFailed as error:
            if error.code != "QueueExists":
                raise
            raise CommandFailed(f"{error}; `headrace queue alter {name}` changes it") from None
    print(f"Created the queue {name}")


def alter_queue(bootstrap: str, http: str, name: str, options: Options, unset: list[str]) -> None:
    names = [_known(each) for each in unset]
    with _queue(bootstrap, http, name) as queue:
        queue.alter(**_typed(options), unset=names)
    print(f"Changed the queue {name}")


def _typed(options: Options) -> QueueOptions:
    typed: QueueOptions = options  # type: ignore[assignment]
    return typed


def list_all(bootstrap: str, http: str, prefix: str, *, as_json: bool) -> None:
    with queue_client(bootstrap, http) as client:
        found = client.queues(prefix, with_counts=True)
    if as_json:
        print_json([{"queue": each.name, "type": each.settings["type"], **counts_of(each.counts)} for each in found])
    elif found:
        columns = [("QUEUE", "left"), ("TYPE", "left"), ("AVAILABLE", "right"), ("IN FLIGHT", "right")]
        rows = [(each.name, each.settings["type"], *shown(each.counts)) for each in found]
        table(None, [*columns, ("DELAYED", "right")], rows)
    else:
        print("There are no queues yet, or none that you may see; `headrace queue create NAME` makes one")


def describe_queue(bootstrap: str, http: str, name: str, *, all_settings: bool, as_json: bool) -> None:
    with _queue(bootstrap, http, name) as queue:
        found = queue.describe()
        moves = queue.redrives()
    if as_json:
        print_json(description(found, moves))
    else:
        print_description(found, moves, all_settings=all_settings)


def send_messages(
    bootstrap: str, http: str, name: str, bodies: list[str] | None, options: SendOptions, *, as_json: bool
) -> None:
    sent: list[dict[str, Any]] = []
    total = 0
    with _queue(bootstrap, http, name) as queue, ProgressLine("sent", shown=bodies is None) as progress:
        size_bytes = 0
        for piece in _pieces(bodies if bodies is not None else _lines()):
            done = queue.send_many([NewMessage(body, **options) for body in piece])
            total += len(done)
            size_bytes += sum(map(len, piece))
            progress.update(total, size_bytes)
            if as_json:
                sent += [{"id": each.id, "offset": each.offset} for each in done]
    if as_json:
        print_json(sent)
    else:
        say(f"Sent {count(total, 'message')}")


def _lines() -> Iterator[bytes]:
    if sys.stdin.isatty():
        say("Each line is a message; Ctrl-D ends")
    for line in sys.stdin.buffer:
        yield line.rstrip(b"\r\n")


def _pieces(bodies: Iterable[str | bytes]) -> Iterator[list[str | bytes]]:
    piece: list[str | bytes] = []
    for each in bodies:
        piece.append(each)
        if len(piece) == _SENT_AT_ONCE:
            yield piece
            piece = []
    if piece:
        yield piece


def receive_messages(
    bootstrap: str,
    http: str,
    name: str,
    maximum: int,
    wait_s: float,
    visibility_s: float | None,
    *,
    then: str,
    as_json: bool,
) -> None:
    printed = 0
    give_up_at_s = time.monotonic() + wait_s
    with _queue(bootstrap, http, name) as queue:
        while printed < maximum:
            left_s = max(0.0, give_up_at_s - time.monotonic())
            found = queue.receive(min(_AT_ONCE, maximum - printed), wait=left_s, visibility=visibility_s)
            if not found:
                break
            _print_all(found, then, as_json=as_json)
            printed += len(found)
    if not printed:
        say(f"No message came to {name} within {human_duration(wait_s)}")


def _print_all(found: list[QueueMessage], then: str, *, as_json: bool) -> None:
    """Return messages that were not printed, because the pipe was closed or Ctrl-C was pressed."""
    left = deque(found)
    try:
        while left:
            print_message(left[0], as_json=as_json)
            message = left.popleft()
            if then == "ack":
                message.ack()
            elif then == "nack":
                message.nack(0, "returned at the command line")
    finally:
        for message in left:
            message.nack(0, "received at the command line and not printed")


def peek_messages(
    bootstrap: str, http: str, name: str, maximum: int, ids: list[str], contains: str, reason: str, *, as_json: bool
) -> None:
    with _queue(bootstrap, http, name) as queue:
        found = queue.peek(maximum, ids=ids, body_contains=contains, reason_contains=reason)
    if as_json:
        print_json([peeked(each) for each in found])
        return
    if found:
        print_peeked(found)
    else:
        print(f"There is no such message in {name}" if ids or contains or reason else f"{name} is empty")


def purge_queue(bootstrap: str, http: str, name: str) -> None:
    with _queue(bootstrap, http, name) as queue:
        queue.purge()
    print(f"Purged the queue {name}")


def delete_queues(bootstrap: str, http: str, names: list[str]) -> None:
    with queue_client(bootstrap, http) as client:
        for name in names:
            client.queue(name).describe()  # one that does not exist is said before any is deleted
        for name in names:
            client.queue(name).delete()
            print(f"Deleted the queue {name}")


@dataclass(frozen=True, slots=True)
class MoveFilter:
    """Which messages to move."""

    ids: list[str]
    contains: str
    reason: str
    since: datetime | None
    before: datetime | None
    limit: int | None


def redrive_messages(
    bootstrap: str, http: str, name: str, to: str | None, wanted: MoveFilter, rate: int | None, *, background: bool
) -> None:
    with _queue(bootstrap, http, name) as queue:
        move = queue.redrive(
            to,
            ids=wanted.ids,
            body_contains=wanted.contains,
            reason_contains=wanted.reason,
            sent_from=wanted.since,
            sent_before=wanted.before,
            limit=wanted.limit,
            rate=rate,
        )
        if background:
            print(
                f"Moving about {count(move.to_move, 'message')}; `headrace queue describe {name}` shows how far it is"
            )
            return
        _watch(move, wanted.limit)
    if move.status == "CANCELLED":
        raise CommandFailed(f"cancelled: {count(move.moved, 'message')} moved, the rest is still in {name}")
    print(f"Moved {count(move.moved, 'message')} out of {name}")
    if not move.moved and move.to_move and to is None:
        say("Without --to QUEUE only those are moved that came from another queue, back to there")


def _watch(move: Redrive, limit: int | None) -> None:
    total = move.to_move if limit is None else min(move.to_move, limit)
    with ProgressLine("moved", total=max(1, total)) as progress:
        try:
            move.wait(on_progress=lambda now: progress.update(now.moved))
        except KeyboardInterrupt:
            move.cancel()
            move.wait()
