"""Logins, denied requests, the audit log and certificates."""

from collections import Counter
from collections.abc import Callable, Iterable

from headrace.model.acls import AclOperation, ResourceType
from headrace.monitor.scrape import Collector
from headrace.observe.families import MetricFamily, counter, gauge
from headrace.security.authenticator import Login
from headrace.security.denial import Denial
from headrace.security.security import Security

LOGINS = counter(
    "headrace_logins_total", "Authentications by mechanism; the result is success or failure.", "mechanism", "result"
)
DENIALS = counter(
    "headrace_authorization_denied_total",
    "Requests, or parts of them, that the ACLs do not permit.",
    "operation",
    "resource_type",
)
PERMITTED = counter(
    "headrace_authorization_allowed_total",
    "Requests, or parts of them, that the ACLs permit, counted when they are checked: a connection that produces to or "
    "fetches from a topic is checked the first time, and again after the ACLs have changed.",
    "operation",
    "resource_type",
)
AUTHORIZATION = gauge("headrace_authorization_enabled", "Whether ACLs decide what clients may do.")
AUDIT_RECORDED = counter("headrace_audit_events_recorded_total", "Events of the audit log.")
AUDIT_DROPPED = counter("headrace_audit_events_dropped_total", "Events that were lost, because too many waited.")
AUDIT_WRITTEN = counter("headrace_audit_events_written_total", "Events that are in the topic __audit.")
AUDIT_FAILED = counter("headrace_audit_write_failures_total", "Writes to the topic __audit, or the file, that failed.")
CERTIFICATE = gauge(
    "headrace_certificate_expiry_seconds", "Seconds until the broker's certificate expires; negative after that."
)
METRICS = (
    LOGINS, DENIALS, PERMITTED, AUTHORIZATION, AUDIT_RECORDED, AUDIT_DROPPED, AUDIT_WRITTEN, AUDIT_FAILED, CERTIFICATE,
)  # fmt: skip
_DAY_S = 86_400.0
_MOST_MECHANISMS = 32
"""Beyond it mechanisms are counted together: a client may name any."""
_OTHER = "other"


class SecurityCounts:
    """Counts the logins and the denials that `Security` reports."""

    def __init__(self, security: Security) -> None:
        self.logins: Counter[tuple[str, str]] = Counter()
        self.denials: Counter[tuple[str, str]] = Counter()
        security.on_login.append(self._logged_in)
        security.on_denied.append(self._denied)

    def _logged_in(self, login: Login) -> None:
        key = login.mechanism, "success" if login.has_succeeded else "failure"
        if key not in self.logins and len(self.logins) >= _MOST_MECHANISMS:
            key = _OTHER, key[1]
        self.logins[key] += 1

    def _denied(self, denial: Denial) -> None:
        self.denials[_names((denial.operation, denial.resource.resource_type))] += 1


def _names(key: tuple[AclOperation, ResourceType]) -> tuple[str, str]:
    return key[0].name, key[1].name


def security_collector(
    security: Security, counts: SecurityCounts, expires_in_days: Callable[[], float | None]
) -> Collector:
    async def collect() -> Iterable[MetricFamily]:
        audit, days = security.audit.counters, expires_in_days()
        return (
            LOGINS.family([(LOGINS.label_text(*labels), count) for labels, count in counts.logins.items()]),
            DENIALS.family([(DENIALS.label_text(*labels), count) for labels, count in counts.denials.items()]),
            PERMITTED.family(
                [(PERMITTED.label_text(*_names(key)), count) for key, count in security.permitted.items()]
            ),
            AUTHORIZATION.single(int(security.authorizer is not None)),
            AUDIT_RECORDED.single(audit.recorded),
            AUDIT_DROPPED.single(audit.dropped),
            AUDIT_WRITTEN.single(audit.written),
            AUDIT_FAILED.single(audit.failed_writes),
            CERTIFICATE.family([] if days is None else [("", days * _DAY_S)]),
        )

    return collect
