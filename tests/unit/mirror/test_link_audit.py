"""Changes of links in the audit log: one event each, by the link, and never without bound."""

from headrace.mirror import link_audit
from headrace.mirror.link_audit import LinkAudit, LinkChange
from headrace.security.audit.event import AuditClass, AuditEvent
from headrace.security.audit.log import AuditLog, AuditRules


def recorded(rules: AuditRules, changes: list[LinkChange]) -> list[AuditEvent]:
    log = AuditLog(lambda: 1)
    log.configure(rules)
    LinkAudit(log).record("eu", "SyncSchemas", changes)
    return [each for each in log.peek(10_000) if isinstance(each, AuditEvent)]


ON = AuditRules(classes=frozenset({AuditClass.ADMIN}))
CHANGE = LinkChange("SUBJECT", "orders-value", "ALTER", "1 added")


def test_the_link_is_the_principal() -> None:
    (event,) = recorded(ON, [CHANGE])
    assert (event.subject.principal, event.action, event.resource_name) == ("Link:eu", "SyncSchemas", "orders-value")
    assert event.request == {"link": "eu", "change": "1 added"}
    assert recorded(AuditRules(), [CHANGE]) == [], "off"
    excluded = AuditRules(classes=ON.classes, excluded=frozenset({"Link:eu"}))
    assert recorded(excluded, [CHANGE]) == []


def test_the_events_of_a_round_are_bounded() -> None:
    events = recorded(ON, [CHANGE] * (link_audit._MAX_EVENTS + 7))
    assert len(events) == link_audit._MAX_EVENTS + 1
    assert events[-1].request == {"link": "eu", "change": "7 more changes"}
