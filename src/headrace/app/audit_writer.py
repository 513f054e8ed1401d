"""Writes the audit log in the background: to the topic `__audit`, and to a file if one is configured.

Events stay in the buffer until the topic has them: while it has no leader none is lost, as long as the buffer has room.
A file that cannot be written is logged, and holds up nothing.
"""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path

from headrace.app.audit_file import AuditFile
from headrace.cluster.metadata import Metadata
from headrace.kafka.audit_topic import AuditTopic, TimedEvent
from headrace.model.backoff import ExponentialDelay, RetryDelays
from headrace.model.errors import HeadraceError
from headrace.runtime.clock import Clock
from headrace.security.audit.event import AuditEvent, AuditGap, encode_event, encode_gap
from headrace.security.audit.log import AuditLog

log = logging.getLogger(__name__)

_LINGER_S = 0.05
_EVENTS_PER_WRITE = 500
_BYTES_PER_WRITE = 512 * 1024
_RETRY_DELAY_S = ExponentialDelay(0.1, 5.0)
_LAST_WRITES_S = 5.0


class AuditWriter:
    def __init__(
        self, audit: AuditLog, topic: AuditTopic, *, metadata: Metadata, clock: Clock, workers: Executor
    ) -> None:
        self._audit = audit
        self._topic = topic
        self._metadata = metadata
        self._workers = workers
        path = metadata.boot_settings.audit_file
        self._file = AuditFile(Path(path)) if path else None
        self._filed = 0
        """How many of the oldest events the file has already, while the topic is retried."""
        self._source = f"/clusters/{metadata.image.cluster_id}/brokers/{metadata.broker_id}"
        self._life = f"{metadata.broker_id}-{clock.wall_ms():x}"
        self._number = 0
        """The number of the oldest event in the buffer: a retry gives an event the same id."""
        self._is_failing = False
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="audit")

    async def stop(self) -> None:
        """Write what is left, unless that takes too long."""
        if self._task is None:
            return
        self._stopping.set()
        self._audit.close_windows()
        self._audit.has_work.set()
        done, _ = await asyncio.wait((self._task,), timeout=_LAST_WRITES_S)
        if not done:
            self._task.cancel()
            await asyncio.wait((self._task,))
            lost = len(self._audit.peek(self._audit.rules.buffer_max_events))
            log.warning("%d events of the audit log could not be written before the broker stopped", lost)

    async def _run(self) -> None:
        delays = RetryDelays(_RETRY_DELAY_S)
        while True:
            await self._audit.has_work.wait()
            await self._pause(_LINGER_S)
            self._audit.sweep()
            try:
                while self._audit.peek(1):
                    await self._write()
            except (HeadraceError, TimeoutError) as error:
                self._failed(error)
                await self._pause(delays.next())
            except Exception:
                log.exception("the audit log cannot be written")
                await self._pause(delays.next())
            else:
                delays = RetryDelays(_RETRY_DELAY_S)
                if self._stopping.is_set():
                    return

    async def _pause(self, delay_s: float) -> None:
        """Sleep, but not for long while the broker stops."""
        if self._stopping.is_set():
            await asyncio.sleep(min(delay_s, _LINGER_S))
        else:
            with suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await self._stopping.wait()

    async def _write(self) -> None:
        events = self._encoded(self._audit.peek(_EVENTS_PER_WRITE))
        await self._write_file([value for _, value in events])
        await self._topic.append(events)
        self._audit.remove(len(events))
        self._number += len(events)
        self._filed = 0
        if self._is_failing:
            self._is_failing = False
            log.info("the audit log is written again")

    def _encoded(self, events: Sequence[AuditEvent | AuditGap]) -> list[TimedEvent]:
        """The events that go into one batch, encoded with their times."""
        encoded: list[TimedEvent] = []
        size = 0
        for number, event in enumerate(events, self._number):
            event_id = f"{self._life}-{number}"
            if isinstance(event, AuditGap):
                time_ms, value = event.last_ms, encode_gap(event, self._source, event_id)
            else:
                time_ms, value = event.time_ms, encode_event(event, self._source, event_id)
            size += len(value)
            if encoded and size > _BYTES_PER_WRITE:
                break
            encoded.append((time_ms, value))
        return encoded

    async def _write_file(self, events: list[bytes]) -> None:
        new = events[self._filed :]
        if self._file is None or not new:
            return
        settings, file = self._metadata.settings, self._file

        def append() -> None:
            file.append(new, max_bytes=settings.audit_file_max_bytes, max_files=settings.audit_file_max_files)

        try:
            await asyncio.get_running_loop().run_in_executor(self._workers, append)
        except OSError as error:
            self._audit.counters.failed_writes += 1
            log.error("audit.file cannot be written: %s", error)
        self._filed = len(events)

    def _failed(self, error: BaseException) -> None:
        self._audit.counters.failed_writes += 1
        if not self._is_failing:
            self._is_failing = True
            log.error("the audit log cannot be written and is retried: %s", str(error) or type(error).__name__)
