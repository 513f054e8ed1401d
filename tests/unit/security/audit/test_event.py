"""Events of the audit log as CloudEvents JSON."""

import json

from headrace.security.audit.event import (
    TEXT_MAX_CHARS,
    AuditClass,
    AuditEvent,
    AuditGap,
    AuditOutcome,
    clip,
    encode_event,
    encode_gap,
)
from headrace.security.subject import Subject

ALICE = Subject("User:alice", "10.0.0.7", "SCRAM-SHA-256", "public")
NOON_MS = 1_772_366_400_123


def encoded(event: AuditEvent) -> dict[str, object]:
    found = json.loads(encode_event(event, "/clusters/c/brokers/1", "1-0"))
    assert isinstance(found, dict)
    return found


def test_a_denial_names_who_what_when_and_the_rule():
    event = AuditEvent(
        AuditClass.AUTHORIZATION,
        NOON_MS,
        ALICE,
        "Produce",
        AuditOutcome.DENIED,
        client_id="app-1",
        resource_type="TOPIC",
        resource_name="orders",
        operation="WRITE",
        reason="a rule denies it: …",
    )
    assert encoded(event) == {
        "specversion": "1.0",
        "id": "1-0",
        "source": "/clusters/c/brokers/1",
        "type": "dev.headrace.authorization",
        "time": "2026-03-01T12:00:00.123Z",
        "datacontenttype": "application/json",
        "subject": "topic/orders",
        "data": {
            "action": "Produce",
            "outcome": "denied",
            "granted": False,
            "principal": "User:alice",
            "host": "10.0.0.7",
            "mechanism": "SCRAM-SHA-256",
            "listener": "public",
            "clientId": "app-1",
            "resourceType": "TOPIC",
            "resourceName": "orders",
            "operation": "WRITE",
            "rule": "a rule denies it: …",
            "count": 1,
        },
    }


def test_a_failed_change_was_granted_and_a_failed_login_was_not():
    failed = AuditEvent(AuditClass.ADMIN, NOON_MS, ALICE, "CreateTopics", AuditOutcome.FAILURE, error="INVALID_CONFIG")
    login = AuditEvent(AuditClass.AUTHENTICATION, NOON_MS, ALICE, "Authenticate", AuditOutcome.FAILURE, reason="wrong")
    assert encoded(failed)["data"]["granted"] is True  # type: ignore[index]
    assert encoded(failed)["data"]["errorCode"] == "INVALID_CONFIG"  # type: ignore[index]
    assert encoded(login)["data"]["granted"] is False  # type: ignore[index]
    assert encoded(login)["data"]["reason"] == "wrong"  # type: ignore[index]
    assert "subject" not in encoded(login), "CloudEvents: an empty subject must be left out"


def test_repetitions_have_their_number_and_the_time_of_the_last():
    event = AuditEvent(AuditClass.AUTHENTICATION, NOON_MS, ALICE, "Authenticate", AuditOutcome.FAILURE)
    data = encoded(event.repeated(7, NOON_MS, NOON_MS + 900))["data"]
    assert (data["count"], data["lastTime"]) == (7, "2026-03-01T12:00:01.023Z")  # type: ignore[index]


def test_a_gap_says_how_many_events_are_missing_and_from_when_to_when():
    gap = json.loads(encode_gap(AuditGap(5, NOON_MS, NOON_MS + 1000), "/s", "1"))
    assert gap["type"] == "dev.headrace.audit.gap"
    assert gap["data"]["dropped"] == 5
    assert gap["data"]["message"] == ("5 events were dropped from 2026-03-01T12:00:00.123Z to 2026-03-01T12:00:01.123Z")


def test_long_text_is_cut():
    assert clip("x" * TEXT_MAX_CHARS) == "x" * TEXT_MAX_CHARS
    assert len(clip("x" * 100_000)) == TEXT_MAX_CHARS
