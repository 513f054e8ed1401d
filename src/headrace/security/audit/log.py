"""The audit log of a broker before it is written: which events are recorded, and a buffer of bounded size.

Logins, denials, produce and consume are counted: the first of a kind is recorded at once, those that are the same for
the next second as one event with their number. A million failed logins are thus one event a second for each principal,
host and reason; beyond `_WINDOWS_MAX` different ones they are counted together. Administrative changes are recorded
one by one.

When the buffer is full (`audit.buffer.max.events`), `audit.full.policy` decides:
- drop: events are lost, counted, and followed by one event that says how many, and from when to when;
- block: administrative requests wait before they are carried out (`room`), all but changes of settings, by which the
  audit log is repaired; everything else goes on being counted.

All methods are called in the event loop's thread.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from headrace.config.broker import BrokerSettings
from headrace.model.image import AUDIT_TOPIC
from headrace.security.audit.event import (
    AuditClass,
    AuditEvent,
    AuditGap,
    AuditOutcome,
    clip,
    clipped_subject,
)
from headrace.security.authenticator import Login
from headrace.security.denial import Denial
from headrace.security.subject import Subject

log = logging.getLogger(__name__)

_WINDOW_MS = 1_000
_WINDOWS_MAX = 2_048


@dataclass(frozen=True, slots=True)
class AuditRules:
    """What is recorded, from the settings in force."""

    classes: frozenset[AuditClass] = frozenset()
    """Empty: the audit log is off."""
    excluded: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()
    sample_rate: float = 1.0
    buffer_max_events: int = 10_000
    blocks: bool = False

    def includes_topic(self, name: str) -> bool:
        """Whether produce and consume of a topic are recorded. Reading the audit log is so only if it is named."""
        if name in self.topics or (self.prefixes and name.startswith(self.prefixes)):
            return True
        return not (self.topics or self.prefixes or name == AUDIT_TOPIC)


def audit_rules(settings: BrokerSettings) -> AuditRules:
    names = settings.audit_topics
    return AuditRules(
        classes=frozenset(map(AuditClass, settings.audit_events)) if settings.is_audited else frozenset(),
        excluded=frozenset(settings.audit_excluded_principals),
        topics=frozenset(name for name in names if not name.endswith("*")),
        prefixes=tuple(name[:-1] for name in names if name.endswith("*")),
        sample_rate=settings.audit_sample_rate,
        buffer_max_events=settings.audit_buffer_max_events,
        blocks=settings.audit_full_policy == "block",
    )


@dataclass(slots=True)
class AuditCounters:
    """Counts since the broker started, for metrics."""

    recorded: int = 0
    """Events that went into the buffer."""
    dropped: int = 0
    written: int = 0
    failed_writes: int = 0


@dataclass(slots=True)
class _Window:
    """Repetitions of an event within a second."""

    event: AuditEvent
    due_ms: int
    count: int = 0
    first_ms: int = 0
    last_ms: int = 0

    def add(self, time_ms: int) -> None:
        if not self.count:
            self.first_ms = time_ms
        self.count += 1
        self.last_ms = time_ms


class AuditLog:
    def __init__(self, wall_ms: Callable[[], int], sample: Callable[[], float] = lambda: 0.0) -> None:
        """`sample` returns random numbers from 0 to 1."""
        self.rules = AuditRules()
        self.counters = AuditCounters()
        self.has_work = asyncio.Event()
        """Set while there is something to write or to count."""
        self._wall_ms = wall_ms
        self._sample = sample
        self._buffer: deque[AuditEvent | AuditGap] = deque()
        self._gap: AuditGap | None = None
        self._windows: dict[tuple[object, ...], _Window] = {}
        self._room = asyncio.Event()

    # -- what is recorded

    def wants(self, kind: AuditClass, principal: str) -> bool:
        """Whether events of this class by this principal are recorded."""
        return kind in self.rules.classes and principal not in self.rules.excluded

    def logged_in(self, login: Login) -> None:
        # A failed login only claims its principal: an excluded name must not hide it.
        if AuditClass.AUTHENTICATION not in self.rules.classes or (
            login.has_succeeded and login.principal in self.rules.excluded
        ):
            return
        self._count(
            AuditEvent(
                AuditClass.AUTHENTICATION,
                self._wall_ms(),
                Subject(clip(login.principal), login.host, login.mechanism, login.listener),
                "Authenticate",
                AuditOutcome.SUCCESS if login.has_succeeded else AuditOutcome.FAILURE,
                client_id=clip(login.client_id),
                reason=clip(login.reason),
            )
        )

    def denied(self, denial: Denial) -> None:
        if not self.wants(AuditClass.AUTHORIZATION, denial.subject.principal):
            return
        self._count(
            AuditEvent(
                AuditClass.AUTHORIZATION,
                self._wall_ms(),
                clipped_subject(denial.subject),
                denial.action,
                AuditOutcome.DENIED,
                client_id=clip(denial.client_id),
                resource_type=denial.resource.resource_type.name,
                resource_name=clip(denial.resource.name),
                operation=denial.operation.name,
                reason=clip(denial.reason),
            )
        )

    def used(self, kind: AuditClass, subject: Subject, client_id: str, action: str, topic: str) -> None:
        """Record that a client wrote to a topic or read from it."""
        key = (kind, subject, client_id, action, topic)
        window = self._windows.get(key)
        if window is not None:
            window.add(self._wall_ms())
            return
        if not self.wants(kind, subject.principal) or not self.rules.includes_topic(topic):
            return
        self._count(
            AuditEvent(
                kind,
                self._wall_ms(),
                clipped_subject(subject),
                action,
                AuditOutcome.ALLOWED,
                client_id=clip(client_id),
                resource_type="TOPIC",
                resource_name=clip(topic),
                operation="WRITE" if kind is AuditClass.PRODUCE else "READ",
            ),
            key,
        )

    def is_sampled(self) -> bool:
        """Whether the next produce or consume is recorded."""
        rate = self.rules.sample_rate
        return rate >= 1.0 or self._sample() < rate

    def changed(
        self,
        subject: Subject,
        client_id: str,
        action: str,
        *,
        resource_type: str,
        resource_name: str,
        operation: str,
        error: str = "",
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """Record an administrative change and its error, if any, even if it has switched the audit log off.

        Ask `wants` before the change is made. `details` must not have secrets.
        """
        event = AuditEvent(
            AuditClass.ADMIN,
            self._wall_ms(),
            clipped_subject(subject),
            action,
            AuditOutcome.FAILURE if error else AuditOutcome.SUCCESS,
            client_id=clip(client_id),
            resource_type=resource_type,
            resource_name=clip(resource_name),
            operation=operation,
            error=error,
            request=details,
        )
        if not self._put(event):
            # Those that wait for room are few: the requests that were carried out when the buffer became full.
            self._append(event)

    # -- the buffer

    @property
    def is_blocking(self) -> bool:
        """Whether administrative requests must wait for `room`."""
        return self.rules.blocks and len(self._buffer) >= self.rules.buffer_max_events

    async def room(self) -> None:
        """Wait while the buffer is full and `audit.full.policy` is block."""
        while self.is_blocking:
            self._room.clear()
            await self._room.wait()

    def configure(self, rules: AuditRules) -> None:
        self.rules = rules
        self._room.set()

    def peek(self, count: int) -> Sequence[AuditEvent | AuditGap]:
        """The oldest events, up to `count`; `remove` them once they are written."""
        return list(islice(self._buffer, count))

    def remove(self, count: int) -> None:
        for _ in range(count):
            self._buffer.popleft()
        self.counters.written += count
        if self._gap is not None and not self._is_full:
            log.warning("the audit log could not be written fast enough: %s", self._gap)
            self._append(self._gap)
            self._gap = None
        self._room.set()

    def sweep(self) -> None:
        """Put the repetitions of the last second into the buffer; called periodically while there is work."""
        now_ms = self._wall_ms()
        for key, window in tuple(self._windows.items()):
            # Not later than a second, also if the clock was set back.
            if 0 < window.due_ms - now_ms <= _WINDOW_MS:
                continue
            if not window.count:
                del self._windows[key]
            elif self._put(window.event.repeated(window.count, window.first_ms, window.last_ms)):
                window.count, window.due_ms = 0, now_ms + _WINDOW_MS
        if not self._windows and not self._buffer:
            self.has_work.clear()

    def close_windows(self) -> None:
        """Put all repetitions into the buffer: the broker stops."""
        for window in self._windows.values():
            if window.count:
                self._append(window.event.repeated(window.count, window.first_ms, window.last_ms))
        self._windows.clear()

    @property
    def _is_full(self) -> bool:
        return len(self._buffer) >= self.rules.buffer_max_events

    def _count(self, event: AuditEvent, key: tuple[object, ...] | None = None) -> None:
        """Record the first event of its key, and count those that follow within a second."""
        key = key or event.key
        window = self._windows.get(key)
        if window is None and len(self._windows) >= _WINDOWS_MAX:
            event = event.generalized()
            key = event.key
            window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = _Window(event, event.time_ms + _WINDOW_MS)
            self.has_work.set()
            if self._put(event):
                return
        window.add(event.time_ms)

    def _put(self, event: AuditEvent) -> bool:
        """Append the event, or drop it; False if the buffer is full and nothing may be dropped."""
        if not self._is_full:
            self._append(event)
        elif self.rules.blocks:
            return False
        else:
            self.counters.dropped += event.count
            gap = self._gap or AuditGap(0, event.time_ms, event.time_ms)
            self._gap = AuditGap(gap.count + event.count, gap.first_ms, max(gap.last_ms, event.last_ms, event.time_ms))
        return True

    def _append(self, event: AuditEvent | AuditGap) -> None:
        self._buffer.append(event)
        self.counters.recorded += 1
        self.has_work.set()
