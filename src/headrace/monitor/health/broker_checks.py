"""Problems of one broker: its disk, store, clock, certificates, keys, load and listeners. Pure."""

from collections.abc import Iterator, Sequence

from headrace.monitor.health import rules
from headrace.monitor.health.facts import CertificateFact, DiskFacts, HealthFacts
from headrace.monitor.health.problem import HealthProblem, Severity
from headrace.monitor.health.report import bounded, duration, problem, size

_PAGE = "cluster"
_NAMED_TOPICS = 3


def broker_problems(facts: HealthFacts) -> Iterator[HealthProblem]:
    yield from _store(facts)
    if facts.failure:
        yield _of_broker(
            facts, "data_dir_failed", f"takes no more writes: its data directory failed ({facts.failure})."
        )
    if facts.disk is not None:
        yield from _disk(facts, facts.disk)
    yield from _load(facts)
    expiring = [each for each in facts.certificates if each.left_s < rules.CERTIFICATE_WARNING_S]
    yield from bounded(expiring, lambda each: _certificate(facts, each), "certificates expire")
    if facts.locked_topics:
        yield _of_broker(facts, "master_key", _locked(facts.locked_topics))
    skewed = [each for each in sorted(facts.clock_skews.items()) if abs(each[1]) > rules.CLOCK_SKEW_S]
    yield from bounded(skewed, lambda each: _clock(facts, *each), "clocks differ")
    if facts.open_listeners:
        names = " and ".join(facts.open_listeners)
        yield _of_broker(
            facts, "insecure_listener", f"serves {names} without authentication to everyone who can reach it."
        )


def _of_broker(facts: HealthFacts, rule: str, text: str, severity: Severity | None = None) -> HealthProblem:
    subject = f"broker {facts.broker_id}"
    return problem(rule, f"Broker {facts.broker_id} {text}", severity=severity, subject=subject, page=_PAGE)


def _store(facts: HealthFacts) -> Iterator[HealthProblem]:
    store = facts.store
    if not store.is_reachable:
        yield _of_broker(facts, "store_unreachable", f"cannot reach {store.kind}: topics and leaders cannot change.")
    elif store.latency_ms is not None and store.latency_ms > rules.STORE_SLOW_MS:
        yield _of_broker(
            facts,
            "store_slow",
            f"waits {store.latency_ms:.0f} ms for each answer of {store.kind}, on average over a minute.",
        )


def _disk(facts: HealthFacts, disk: DiskFacts) -> Iterator[HealthProblem]:
    free = disk.free_bytes / disk.total_bytes if disk.total_bytes else 1.0
    limit = facts.limits.disk_free_fraction
    if free < limit or disk.effect:
        is_critical = disk.effect or free < limit * rules.DISK_CRITICAL_FRACTION
        severity: Severity = "critical" if is_critical else "warning"
        effect = f": {disk.effect}" if disk.effect else ""
        text = f"has {size(disk.free_bytes)} ({free:.0%}) left on the disk of {disk.path}{effect}."
        yield _of_broker(facts, "disk_full", text, severity)
    if disk.full_in_s is not None and disk.full_in_s < rules.DISK_FULL_SOON_S:
        severity = "critical" if disk.full_in_s <= rules.DISK_FULL_CRITICAL_S else "warning"
        text = f"will have a full disk in {duration(disk.full_in_s)} at this rate: {size(disk.free_bytes)} are left."
        yield _of_broker(facts, "disk_filling", text, severity)


def _load(facts: HealthFacts) -> Iterator[HealthProblem]:
    if facts.loop_lag_s >= rules.LOOP_LAG_S:
        severity: Severity = "critical" if facts.loop_lag_s >= rules.LOOP_LAG_CRITICAL_S else "warning"
        text = f"is overloaded: its event loop was held up for {facts.loop_lag_s:.1f} s within the last minute."
        yield _of_broker(facts, "event_loop_lag", text, severity)
    if facts.budget_wait_s >= rules.BUDGET_WAIT_S:
        text = f"has used up the memory for requests: clients have been waiting for {duration(facts.budget_wait_s)}."
        yield _of_broker(facts, "request_budget", text)
    if facts.login_failures > rules.LOGIN_FAILURES_PER_MINUTE:
        yield _of_broker(facts, "login_failures", f"refused {facts.login_failures:,} logins in the last minute.")


def _certificate(facts: HealthFacts, certificate: CertificateFact) -> HealthProblem:
    left_s = certificate.left_s
    when = f"expires in {duration(left_s)}" if left_s > 0 else f"expired {duration(-left_s)} ago"
    return problem(
        "certificate",
        f"The certificate {certificate.name} of broker {facts.broker_id} {when}.",
        severity="critical" if left_s < rules.CERTIFICATE_CRITICAL_S else "warning",
        subject=f"broker {facts.broker_id}: {certificate.name}",
        page=_PAGE,
    )


def _locked(topics: Sequence[str]) -> str:
    names = ", ".join(topics[:_NAMED_TOPICS])
    more = f" and {len(topics) - _NAMED_TOPICS:,} more" if len(topics) > _NAMED_TOPICS else ""
    return f"lacks the master key of encrypted topics, and can neither read nor write them: {names}{more}."


def _clock(facts: HealthFacts, broker: int, ahead_s: float) -> HealthProblem:
    direction = "ahead of" if ahead_s > 0 else "behind"
    return problem(
        "clock_skew",
        f"The clock of broker {broker} is {abs(ahead_s):.1f} s {direction} that of broker {facts.broker_id}: "
        "retention, delays and lag in seconds are off by that.",
        severity="critical" if abs(ahead_s) >= rules.CLOCK_SKEW_CRITICAL_S else "warning",
        subject=f"broker {broker}",
        page=_PAGE,
    )
