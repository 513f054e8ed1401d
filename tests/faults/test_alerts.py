"""Each alert of `deploy/prometheus/alerts.yml` fires for the fault it is for, in Debian's Prometheus, and then ends.

Three brokers, one of them on a small disk. Faults that do not disturb each other hold at the same time.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from headrace.monitor.health.alert_rules import ABSENT, UNREACHABLE
from headrace.monitor.health.rules import BY_ID
from tests.faults import alert_faults as faults
from tests.faults import prometheus
from tests.faults.mounts import small_disk
from tests.faults.prometheus import Firing, PrometheusProcess
from tests.faults.testbed import Testbed
from tests.waiting import until

pytestmark = [
    pytest.mark.skipif(not prometheus.is_installed(), reason="Prometheus is not installed"),
    pytest.mark.xdist_group("alerts"),
]

MIB = 1 << 20
SETTINGS: dict[str, object] = {
    "health.stuck.ms": 3000,
    "health.transaction.open.ms": 2000,
    "broker.session.timeout.ms": 3000,
    "connection.failed.authentication.delay.ms": 0,
    "queued.max.request.bytes": 2 * MIB,
    "socket.request.max.bytes": 2 * MIB,
    "request.read.timeout.ms": 300_000,
}


class Expected(NamedTuple):
    alert: str
    severity: str
    subject: str


def alert(rule: str, severity: str, subject: str = "") -> Expected:
    assert severity in BY_ID[rule].severities
    return Expected(BY_ID[rule].alert, severity, subject)


QUIET: Mapping[faults.Fault, list[Expected]] = {
    faults.stuck_group: [alert("group_stuck", "warning", "stuck")],
    faults.unattended_group: [alert("group_unattended", "warning", "left")],
    faults.unattended_queue: [alert("queue_unattended", "warning", "letters")],
    faults.open_transaction: [alert("transaction_open", "warning", "slow-1")],
    faults.full_disk: [alert("disk_full", "critical", "broker 3")],
    faults.clock_ahead: [alert("clock_skew", "warning", "broker 2")],
    faults.used_up_budget: [alert("request_budget", "warning", "broker 1")],
    faults.expiring_certificate: [alert("certificate", "critical")],
}
"""Faults after which brokers go on, and whose alerts end within seconds."""

HARD: Mapping[faults.Fault, list[Expected]] = {
    faults.killed_broker: [
        alert("broker_down", "critical", "broker 2"),
        alert("under_replicated", "warning", "broker 2"),
        alert("under_min_isr", "critical", "strict"),
        alert("offline_partitions", "critical", "alone"),
        Expected(UNREACHABLE, "critical", ""),
    ],
}


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    folder = tmp_path_factory.mktemp("alerts")
    faults.prepare_certificates(folder / "certificates")
    with (
        small_disk(folder / "broker-3", faults.SMALL_DISK_MIB),
        Testbed(
            folder, settings=SETTINGS, with_disks=False, with_network=False, with_clock=True, is_secured=True
        ) as one,
    ):
        yield one


@pytest.fixture(scope="module")
def watcher(bed: Testbed) -> Iterator[PrometheusProcess]:
    targets = [broker.http_url for broker in bed.cluster.brokers.values()]
    with PrometheusProcess(bed.folder / "prometheus", targets) as one:
        until(lambda: len(one.query("up == 1")) == 3, "every broker is scraped")
        yield one


def _matches(expected: Expected, firing: Mapping[str, list[Firing]]) -> bool:
    return any(
        each.severity == expected.severity and (not expected.subject or each.subject == expected.subject)
        for each in firing.get(expected.alert, [])
    )


def _hold(bed: Testbed, watcher: PrometheusProcess, held: Mapping[faults.Fault, list[Expected]]) -> None:
    """Let all of these faults hold, wait until every alert fires, undo them, and wait until no alert does."""
    until(lambda: not watcher.firing(), lambda: f"no alert before the faults, but {watcher.firing()}")
    wanted = {expected for each in held.values() for expected in each}
    with ExitStack() as stack:
        for fault in held:
            stack.enter_context(fault(bed))
        until(
            lambda: all(_matches(each, watcher.firing()) for each in wanted),
            lambda: f"{[each for each in wanted if not _matches(each, watcher.firing())]} fire; {watcher.firing()} do",
        )
        assert {*watcher.firing()} == {each.alert for each in wanted}, "no other alert"
    until(lambda: not watcher.firing(), lambda: f"{watcher.firing()} end")


def test_faults_that_brokers_live_with(bed: Testbed, watcher: PrometheusProcess) -> None:
    _hold(bed, watcher, QUIET)


def test_a_broker_that_is_killed(bed: Testbed, watcher: PrometheusProcess) -> None:
    _hold(bed, watcher, HARD)


def test_no_broker_to_scrape(bed: Testbed, watcher: PrometheusProcess) -> None:
    targets = [broker.http_url for broker in bed.cluster.brokers.values()]
    watcher.set_targets([])
    until(lambda: {*watcher.firing()} == {ABSENT}, lambda: f"{ABSENT} fires; {watcher.firing()} do")
    watcher.set_targets(targets)
    until(lambda: not watcher.firing(), lambda: f"{watcher.firing()} end")
