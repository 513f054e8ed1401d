"""What the audit log records, how it counts repetitions, and what it does when its buffer is full."""

import asyncio
from dataclasses import replace

import pytest

from headrace.config.broker import broker_settings
from headrace.model.acls import AclOperation, Resource, ResourceType
from headrace.security.audit import log as audit_log
from headrace.security.audit.event import AuditClass, AuditEvent, AuditGap
from headrace.security.audit.log import AuditLog, AuditRules, audit_rules
from headrace.security.authenticator import Login
from headrace.security.denial import Denial
from headrace.security.subject import Subject

EVERYTHING = AuditRules(classes=frozenset(AuditClass))
ALICE = Subject("User:alice", "10.0.0.7")


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000_000


class Audit:
    """An audit log whose time stands still."""

    def __init__(self, rules: AuditRules = EVERYTHING) -> None:
        self.clock = Clock()
        self.random = 0.5
        self.log = AuditLog(lambda: self.clock.now_ms, lambda: self.random)
        self.log.configure(rules)

    def login(self, principal: str = "User:alice", *, succeeds: bool = False, reason: str = "wrong password") -> None:
        self.log.logged_in(
            Login(principal, "10.0.0.7", "PLAIN", "public", has_succeeded=succeeds, reason="" if succeeds else reason)
        )

    def deny(self, topic: str = "orders", subject: Subject = ALICE) -> None:
        resource = Resource(ResourceType.TOPIC, topic)
        self.log.denied(Denial(subject, "app", "Produce", AclOperation.WRITE, resource, "no rule allows it"))

    def change(self, topic: str = "orders") -> None:
        self.log.changed(ALICE, "app", "CreateTopics", resource_type="TOPIC", resource_name=topic, operation="CREATE")

    def pass_ms(self, span_ms: int) -> None:
        self.clock.now_ms += span_ms
        self.log.sweep()

    @property
    def waiting(self) -> list[AuditEvent | AuditGap]:
        return list(self.log.peek(1_000_000))

    def take(self) -> list[AuditEvent | AuditGap]:
        found = self.waiting
        self.log.remove(len(found))
        return found


def counts(events: list[AuditEvent | AuditGap]) -> list[int]:
    return [each.count for each in events]


def test_the_settings_decide_what_is_recorded():
    assert audit_rules(broker_settings({})).classes == frozenset()
    on = audit_rules(broker_settings({"authorization.enable": "true"}))
    assert on.classes == {AuditClass.AUTHENTICATION, AuditClass.AUTHORIZATION, AuditClass.ADMIN}
    off = broker_settings({"authorization.enable": "true", "audit.enable": "false"})
    assert audit_rules(off).classes == frozenset()
    alone = broker_settings({"audit.enable": "true", "audit.events": "consume", "audit.topics": "orders, pay.*"})
    rules = audit_rules(alone)
    assert rules.classes == {AuditClass.CONSUME}
    assert [name for name in ("orders", "orders2", "pay.in", "__audit") if rules.includes_topic(name)] == [
        "orders",
        "pay.in",
    ]


def test_reading_the_audit_log_is_recorded_only_if_it_is_named():
    assert EVERYTHING.includes_topic("orders")
    assert not EVERYTHING.includes_topic("__audit")
    assert AuditRules(topics=frozenset({"__audit"})).includes_topic("__audit")


def test_a_class_that_is_off_is_not_recorded():
    audit = Audit(AuditRules(classes=frozenset({AuditClass.ADMIN})))
    audit.login()
    audit.deny()
    assert audit.waiting == []
    assert not audit.log.has_work.is_set()


def test_excluded_principals_leave_no_events_but_for_failed_logins():
    audit = Audit(replace(EVERYTHING, excluded=frozenset({"User:alice"})))
    audit.login(succeeds=True)
    audit.deny()
    audit.log.used(AuditClass.PRODUCE, ALICE, "app", "Produce", "orders")
    assert audit.waiting == []
    assert not audit.log.wants(AuditClass.ADMIN, "User:alice")
    audit.login()
    assert len(audit.waiting) == 1


def test_repeated_failures_are_one_event_a_second_with_their_number():
    audit = Audit()
    for _ in range(1_000):
        audit.login()
    assert counts(audit.take()) == [1], "the first is recorded at once"
    audit.pass_ms(999)
    assert audit.take() == []
    audit.pass_ms(1)
    (repeated,) = audit.take()
    assert isinstance(repeated, AuditEvent)
    assert (repeated.count, repeated.time_ms, repeated.last_ms) == (999, 1_000_000, 1_000_000)
    audit.login()
    audit.pass_ms(1_000)
    assert counts(audit.take()) == [1]
    audit.pass_ms(1_000)
    assert not audit.log.has_work.is_set(), "nothing is left to be counted"


@pytest.mark.parametrize("other", ["principal", "reason", "resource"])
def test_what_differs_is_not_counted_together(other):
    audit = Audit()
    if other == "resource":
        audit.deny("orders")
        audit.deny("payments")
    else:
        audit.login()
        audit.login(*["else"] * (other == "principal"), reason=other)
    assert counts(audit.waiting) == [1, 1]


def test_failed_logins_of_a_million_names_take_bounded_memory(monkeypatch):
    monkeypatch.setattr(audit_log, "_WINDOWS_MAX", 10)
    audit = Audit(replace(EVERYTHING, buffer_max_events=50))
    for number in range(1_000):
        audit.login(f"User:{number}")
    assert len(audit.waiting) == 11
    audit.pass_ms(1_000)
    together = audit.waiting[-1]
    assert isinstance(together, AuditEvent)
    assert (together.subject.principal, together.subject.host, together.count) == ("*", "*", 989)
    assert sum(counts(audit.waiting)) == 1_000


def test_a_full_buffer_drops_and_says_what_is_missing(caplog):
    audit = Audit(replace(EVERYTHING, buffer_max_events=3))
    for number in range(5):
        audit.change(f"t{number}")
        audit.clock.now_ms += 10
    assert len(audit.waiting) == 3
    assert audit.log.counters.dropped == 2
    taken = audit.take()
    assert [each.resource_name for each in taken if isinstance(each, AuditEvent)] == ["t0", "t1", "t2"]
    assert audit.waiting == [AuditGap(2, 1_000_030, 1_000_040)]
    assert "2 events were dropped from" in caplog.text
    audit.change("later")
    first, second = audit.take()
    assert isinstance(first, AuditGap)
    assert isinstance(second, AuditEvent)
    assert audit.waiting == [], "a gap is reported once"


def test_the_block_policy_makes_changes_wait_and_loses_nothing():
    async def main() -> None:
        audit = Audit(replace(EVERYTHING, buffer_max_events=2, blocks=True))
        audit.change("a")
        assert not audit.log.is_blocking
        await audit.log.room()
        audit.change("b")
        assert audit.log.is_blocking
        waiting = asyncio.ensure_future(audit.log.room())
        await asyncio.sleep(0)
        assert not waiting.done()
        for _ in range(100):
            audit.deny()
        audit.pass_ms(5_000)
        assert len(audit.waiting) == 2
        audit.take()
        await waiting
        audit.pass_ms(1)
        assert counts(audit.take()) == [100], "denials were counted meanwhile"
        assert audit.log.counters.dropped == 0

    asyncio.run(main())


def test_a_change_of_the_policy_lets_those_go_on_who_wait():
    async def main() -> None:
        audit = Audit(replace(EVERYTHING, buffer_max_events=1, blocks=True))
        audit.change()
        waiting = asyncio.ensure_future(audit.log.room())
        await asyncio.sleep(0)
        audit.log.configure(replace(EVERYTHING, buffer_max_events=1))
        await asyncio.wait_for(waiting, 5)

    asyncio.run(main())


def test_only_a_share_of_produce_and_consume_is_recorded():
    audit = Audit(replace(EVERYTHING, sample_rate=0.4))
    assert not audit.log.is_sampled()
    audit.random = 0.3
    assert audit.log.is_sampled()
    assert Audit().log.is_sampled()


def test_what_is_being_counted_is_recorded_when_the_broker_stops():
    audit = Audit()
    for _ in range(5):
        audit.login()
    audit.log.close_windows()
    assert counts(audit.waiting) == [1, 4]


def test_a_clock_that_is_set_back_does_not_stop_the_counting():
    audit = Audit()
    audit.login()
    audit.login()
    audit.take()
    audit.pass_ms(-3_600_000)
    assert counts(audit.take()) == [1]
