"""One process of `headrace work`: `python -m headrace.client.work.child FD GRACE_S MODULE:ATTRIBUTE`.

It imports the application, says so on the socket FD, runs after the command `run`, and reports every second. When its
pool is gone, which it notices by the end of the socket, it finishes the messages in progress and ends, at the latest
after the grace time.
"""

import asyncio
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

from headrace.client.base import ClientParts, parts_of
from headrace.client.client import Client
from headrace.client.failures import describe_with_place
from headrace.client.health import WorkerMonitor
from headrace.client.schedules import PREFIX as SCHEDULES
from headrace.client.work.app import AnyClient, AppError, imported_files, load_client
from headrace.client.work.backlog import BacklogReader
from headrace.client.work.messages import (
    ApplicationLoaded,
    Command,
    Ended,
    LoadFailed,
    Message,
    Report,
    WorkerReport,
    WorkSource,
    decode_command,
    encode_line,
)

_REPORT_EVERY_S = 1.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class PoolChannel:
    """The socket to the pool. Thread-safe. A pool that is gone is noticed by the end of `commands`."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def send(self, message: Message) -> None:
        with self._lock, suppress(OSError):
            self._connection.sendall(encode_line(message))

    def commands(self) -> Iterator[Command]:
        with suppress(OSError), self._connection.makefile("rb") as lines:
            for line in lines:
                yield decode_command(line)


class WorkChild:
    """Runs a client as the pool says, and reports to it."""

    def __init__(self, client: AnyClient, channel: PoolChannel, grace_s: float) -> None:
        self._client = client
        self._channel = channel
        self._grace_s = grace_s
        parts = parts_of(client)
        self._sources = sources_of(parts)
        self._monitors = _monitors(parts)
        self._most = most_processes(parts)
        queues = {each.queue.name: each.queue for each in parts.workers}
        self._backlog = BacklogReader(list(self._sources.values()), parts.connection, queues)
        self._may_run = threading.Event()
        self._must_look = threading.Event()
        self._stopping = threading.Event()
        self._modules = 0

    def run(self) -> int:
        """Run until the pool stops it; the exit code."""
        most, reason = self._most
        self._channel.send(ApplicationLoaded(list(self._sources.values()), imported_files(), most, reason))
        for target in (self._obey, self._look, self._report):
            threading.Thread(target=target, name="headrace-work", daemon=True).start()
        self._may_run.wait()
        if self._stopping.is_set():
            return 0
        try:
            if isinstance(self._client, Client):
                with self._client:
                    self._client.run(signals=_SIGNALS)
            else:
                asyncio.run(_run_async(self._client))
        except Exception as error:
            self._channel.send(Ended(describe_with_place(error)))
            return 1
        self._channel.send(self._made_report())
        return 0

    def _obey(self) -> None:
        for command in self._channel.commands():
            if command.do == "run":
                self._may_run.set()
            elif command.do == "look":
                self._must_look.set()
            else:
                self._stop()
        # The pool has died: a process that hangs must end itself.
        self._stop()
        time.sleep(self._grace_s)
        os._exit(1)

    def _stop(self) -> None:
        self._stopping.set()
        self._client.stop()
        self._may_run.set()

    def _look(self) -> None:
        while True:
            self._must_look.wait()
            self._must_look.clear()
            self._channel.send(self._backlog.look())

    def _report(self) -> None:
        self._may_run.wait()
        while True:
            self._channel.send(self._made_report())
            time.sleep(_REPORT_EVERY_S)

    def _made_report(self) -> Report:
        states = [(source, monitor.look()) for source, monitor in self._monitors]
        workers = [
            WorkerReport(source, each.handled, each.failed, each.lag, each.threads, each.last_error)
            for source, each in states
        ]
        files = []
        if len(sys.modules) != self._modules:
            self._modules = len(sys.modules)
            files = imported_files()
        return Report(workers, all(each.is_running for _, each in states), files)


async def _run_async(client: AnyClient) -> None:
    assert not isinstance(client, Client)
    async with client:
        await client.run(signals=_SIGNALS)


def sources_of(parts: ClientParts) -> dict[str, WorkSource]:
    """The queues and groups by name, without periodic work, whose runs do not overlap. Handlers of one group share its
    lag."""
    found: dict[str, WorkSource] = {}
    for handler in parts.handlers:
        source = WorkSource("group", handler.group, handler.all_topics, handler.start)
        if (same := found.get(source.name)) is not None:
            topics = sorted({*same.topics, *source.topics})
            source = WorkSource("group", handler.group, topics, same.start)
        found[source.name] = source
    for worker in parts.workers:
        source = WorkSource("queue", worker.queue.name)
        if not source.id.startswith(SCHEDULES):
            found[source.name] = source
    return found


def _monitors(parts: ClientParts) -> list[tuple[str, WorkerMonitor]]:
    handlers = [(WorkSource("group", each.group).name, each.monitor) for each in parts.handlers]
    return [*handlers, *((WorkSource("queue", each.queue.name).name, each.monitor) for each in parts.workers)]


def most_processes(parts: ClientParts) -> tuple[int | None, str]:
    """How many processes may run the client, and why; None if any number may."""
    for handler in parts.handlers:
        if handler.transactional_id is not None:
            why = f"transactional_id={handler.transactional_id!r} of group {handler.group} is for one process only"
            return 1, why
    return None, ""


def main(arguments: list[str]) -> int:
    """Run one process; the arguments are those of the command line."""
    descriptor, grace_s, target = arguments
    channel = PoolChannel(socket.socket(fileno=int(descriptor)))
    try:
        client = load_client(target)
    except AppError as error:
        channel.send(LoadFailed(str(error), sorted({*error.files, *imported_files()})))
        return 2
    return WorkChild(client, channel, float(grace_s)).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
