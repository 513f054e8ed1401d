"""One event of the audit log, and its form as CloudEvents 1.0 JSON. Pure.

Text from clients (names, client ids) is cut to `TEXT_MAX_CHARS`, so that an event has a bounded size. An event never
has passwords, keys or values of settings that are free text: those who make events leave them out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec

from headrace.security.subject import Subject

TYPE_PREFIX = "dev.headrace."
GAP_TYPE = "dev.headrace.audit.gap"
TEXT_MAX_CHARS = 256
ANY = "*"
"""Stands for many principals, hosts or resources, in an event that counts what was too varied to be listed."""

_encode = msgspec.json.Encoder().encode


class AuditClass(StrEnum):
    """What an event is about: the values of `audit.events`."""

    AUTHENTICATION = "authentication"
    AUTHORIZATION = "authorization"
    ADMIN = "admin"
    PRODUCE = "produce"
    CONSUME = "consume"


class AuditOutcome(StrEnum):
    SUCCESS = "success"
    FAILURE = "failure"
    """It was permitted and has failed, or the client could not prove who it is."""
    DENIED = "denied"
    ALLOWED = "allowed"
    """It was permitted; whether it has succeeded is not recorded (produce and consume)."""


@dataclass(frozen=True, slots=True)
class AuditEvent:
    kind: AuditClass
    time_ms: int
    subject: Subject
    action: str
    """The API or action, as its protocol names it: CreateTopics, SendMessage."""
    outcome: AuditOutcome
    client_id: str = ""
    resource_type: str = ""
    """TOPIC, GROUP, CLUSTER, USER …"""
    resource_name: str = ""
    operation: str = ""
    """The operation that was checked: READ, ALTER_CONFIGS …"""
    reason: str = ""
    """The rule that denied it, or why an authentication has failed."""
    error: str = ""
    """The error code that the client got; empty for none."""
    request: Mapping[str, Any] | None = None
    """Details of an administrative change, without secrets."""
    count: int = 1
    """How often it happened, from `time_ms` to `last_ms`."""
    last_ms: int = 0

    @property
    def key(self) -> tuple[str, ...]:
        """Equal for events that are the same but for their time."""
        subject = self.subject
        return (
            self.kind,
            subject.principal,
            subject.host,
            subject.mechanism,
            self.client_id,
            self.action,
            self.outcome,
            self.resource_type,
            self.resource_name,
            self.operation,
            self.reason,
        )

    def generalized(self) -> "AuditEvent":
        """The event of many clients, of which only class, action and outcome are known."""
        return AuditEvent(
            self.kind,
            self.time_ms,
            Subject(ANY, ANY, listener=self.subject.listener),
            self.action,
            self.outcome,
            resource_type=self.resource_type,
            resource_name=ANY if self.resource_name else "",
            operation=self.operation,
        )

    def repeated(self, count: int, first_ms: int, last_ms: int) -> "AuditEvent":
        return replace(self, count=count, time_ms=first_ms, last_ms=last_ms)


@dataclass(frozen=True, slots=True)
class AuditGap:
    """Events that were dropped, because the buffer was full."""

    count: int
    first_ms: int
    last_ms: int

    def __str__(self) -> str:
        return f"{self.count} events were dropped from {iso_time(self.first_ms)} to {iso_time(self.last_ms)}"


def clip(text: str) -> str:
    """The text, cut if it is longer than an event may have."""
    return text if len(text) <= TEXT_MAX_CHARS else text[: TEXT_MAX_CHARS - 1] + "…"


def clipped_subject(subject: Subject) -> Subject:
    return subject if len(subject.principal) <= TEXT_MAX_CHARS else subject._replace(principal=clip(subject.principal))


def iso_time(time_ms: int) -> str:
    """A time as RFC 3339 writes it, in UTC with milliseconds."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def encode_event(event: AuditEvent, source: str, event_id: str) -> bytes:
    """The event as JSON. `source` names cluster and broker; `event_id` is unique in it."""
    subject = event.subject
    data: dict[str, Any] = {
        "action": event.action,
        "outcome": event.outcome.value,
        "granted": event.outcome in (AuditOutcome.SUCCESS, AuditOutcome.ALLOWED)
        or (event.outcome is AuditOutcome.FAILURE and event.kind is not AuditClass.AUTHENTICATION),
        "principal": subject.principal,
        "host": subject.host,
        "mechanism": subject.mechanism,
        "listener": subject.listener,
        "clientId": event.client_id,
        "resourceType": event.resource_type,
        "resourceName": event.resource_name,
        "operation": event.operation,
        "reason" if event.kind is AuditClass.AUTHENTICATION else "rule": event.reason,
        "errorCode": event.error,
        "count": event.count,
    }
    if event.count > 1:
        data["lastTime"] = iso_time(event.last_ms)
    if event.request:
        data["request"] = event.request
    return _envelope(
        TYPE_PREFIX + event.kind.value,
        source,
        event_id,
        event.time_ms,
        f"{event.resource_type.lower()}/{event.resource_name}" if event.resource_name else "",
        {name: value for name, value in data.items() if value != ""},
    )


def encode_gap(gap: AuditGap, source: str, event_id: str) -> bytes:
    data = {
        "dropped": gap.count,
        "from": iso_time(gap.first_ms),
        "to": iso_time(gap.last_ms),
        "message": str(gap),
    }
    return _envelope(GAP_TYPE, source, event_id, gap.last_ms, "", data)


def _envelope(kind: str, source: str, event_id: str, time_ms: int, subject: str, data: Mapping[str, Any]) -> bytes:
    envelope: dict[str, Any] = {
        "specversion": "1.0",
        "id": event_id,
        "source": source,
        "type": kind,
        "time": iso_time(time_ms),
        "datacontenttype": "application/json",
    }
    if subject:
        envelope["subject"] = subject
    envelope["data"] = data
    return _encode(envelope)
