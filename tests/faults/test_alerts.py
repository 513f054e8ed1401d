"""Each alert of `deploy/prometheus/alerts.yml` fires for the fault it is for, in Debian's Prometheus, and then ends.

Three brokers on small disks. Faults that do not disturb each other hold at the same time.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from headrace.cluster import layout
from headrace.model.features import FIRST_LEVEL
from headrace.monitor.health.alert_rules import ABSENT, UNREACHABLE
from headrace.monitor.health.rules import BY_ID, RULES
from headrace.testing.cluster import ClusterProcesses
from headrace.testing.etcd import EtcdProcess
from tests.faults import alert_faults as faults
from tests.faults import prometheus
from tests.faults.mounts import small_disk
from tests.faults.prometheus import Firing, PrometheusProcess
from tests.faults.testbed import BROKERS, Testbed
from tests.interop import grafana
from tests.waiting import PATIENCE_S, until

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

Held = Mapping[faults.Fault, "list[Expected]"]


class Expected(NamedTuple):
    alert: str
    severity: str
    subject: str


def alert(rule: str, severity: str, subject: str = "") -> Expected:
    assert severity in BY_ID[rule].severities
    return Expected(BY_ID[rule].alert, severity, subject)


QUIET: Held = {
    faults.stuck_group: [alert("group_stuck", "warning", "stuck")],
    faults.unattended_group: [alert("group_unattended", "warning", "left")],
    faults.unattended_queue: [alert("queue_unattended", "warning", "letters")],
    faults.open_transaction: [alert("transaction_open", "warning", "slow-1")],
    faults.full_disk: [alert("disk_full", "critical", "broker 3")],
    faults.clock_ahead: [alert("clock_skew", "warning", "broker 2")],
    faults.used_up_budget: [alert("request_budget", "warning", "broker 1")],
    faults.expiring_certificate: [alert("certificate", "critical")],
    faults.failed_pipeline: [alert("pipeline_failed", "critical", "revenue")],
}
"""Faults after which brokers go on, and whose alerts end within seconds."""

HARD: Held = {
    faults.killed_broker: [
        alert("broker_down", "critical", "broker 2"),
        alert("under_replicated", "warning", "broker 2"),
        alert("under_min_isr", "critical", "strict"),
        alert("offline_partitions", "critical", "alone"),
        Expected(UNREACHABLE, "critical", ""),
    ],
}

LASTING: Held = {
    faults.dead_letters: [alert("dead_letters", "warning", "jobs-dead")],
    faults.failing_logins: [alert("login_failures", "warning", "broker 1")],
    faults.restarting_pipeline: [alert("pipeline_restarting", "warning", "flaky")],
    faults.silent_pipeline: [alert("pipeline_silent", "warning", "gone")],
    faults.stalled_broker: [alert("event_loop_lag", "warning", "broker 1")],
    faults.filling_disk: [alert("disk_filling", "critical", "broker 3")],
}
"""Faults whose alerts begin or end after minutes."""

HARDER: tuple[Held, ...] = (
    {faults.failed_disk: [alert("data_dir_failed", "critical", "broker 2")]},
    {faults.stopped_etcd: [alert("store_unreachable", "critical", "broker 1")]},
    {faults.slow_etcd: [alert("store_slow", "warning", "broker 1")]},
    {faults.etcd_without_space: [alert("no_controller", "critical")]},
    {faults.hanging_broker: [alert("broker_silent", "warning", "broker 2")]},
)
"""Faults that hold one after the other."""


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    folder = tmp_path_factory.mktemp("alerts")
    faults.prepare_certificates(folder / "certificates")
    with ExitStack() as stack:
        for broker_id in BROKERS:
            # The machine's own disk may fill up meanwhile.
            stack.enter_context(small_disk(folder / f"broker-{broker_id}", faults.SMALL_DISK_MIB))
        yield stack.enter_context(
            Testbed(folder, settings=SETTINGS, with_disks=False, with_network=False, with_clock=True, is_secured=True)
        )


@pytest.fixture(scope="module")
def watcher(bed: Testbed) -> Iterator[PrometheusProcess]:
    """Prometheus, which has no broker to scrape at first, and says so."""
    with PrometheusProcess(bed.folder / "prometheus", []) as one:
        until(lambda: {*one.firing()} == {ABSENT}, lambda: f"{ABSENT} fires; {one.firing()} do")
        one.set_targets(broker.http_url for broker in bed.cluster.brokers.values())
        until(lambda: len(one.query("up == 1")) == 3 and not one.firing(), lambda: f"{one.firing()} end")
        yield one


def _missing(watcher: PrometheusProcess, wanted: set[Expected]) -> list[Expected]:
    firing = watcher.firing()
    return [each for each in wanted if not any(_matches(each, found) for found in firing.get(each.alert, []))]


def _matches(expected: Expected, found: Firing) -> bool:
    return found.severity == expected.severity and (not expected.subject or found.subject == expected.subject)


@contextmanager
def holding(bed: Testbed, watcher: PrometheusProcess, held: Held, timeout_s: float = PATIENCE_S) -> Iterator[None]:
    """Inside of it all of these faults hold, and their alerts have fired."""
    missing = {expected for each in held.values() for expected in each}

    def have_fired() -> bool:
        """Some alerts end by themselves, before others begin."""
        missing.intersection_update(_missing(watcher, missing))
        return not missing

    with ExitStack() as stack:
        for fault in held:
            stack.enter_context(fault(bed))
        until(have_fired, lambda: f"{missing} fire; {watcher.firing()} do", timeout_s)
        yield


def await_only(watcher: PrometheusProcess, held: Held, timeout_s: float = PATIENCE_S) -> None:
    """Wait until no alert fires but those of these faults."""
    allowed = {expected.alert for each in held.values() for expected in each}
    until(lambda: {*watcher.firing()} <= allowed, lambda: f"{ {*watcher.firing()} - allowed } end", timeout_s)


def check_health(bed: Testbed, expected: set[Expected]) -> None:
    """`headrace health` lists the same, from the address of any broker: those of other brokers as well."""
    for broker in bed.cluster.brokers.values():
        command = [sys.executable, "-m", "headrace", "health", "--json", "--http", broker.http_url]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 1, done.stderr
        problems = json.loads(done.stdout)["problems"]
        found = {(BY_ID[each["id"]].alert, each["severity"], each["subject"]) for each in problems}
        found |= {(name, severity, "") for name, severity, _ in found}
        assert expected <= found


CARELESS = [alert("insecure_listener", "warning", "broker 0"), alert("master_key", "critical", "broker 0")]


def test_alerts_fire_for_their_faults_and_end(bed: Testbed, watcher: PrometheusProcess) -> None:
    quiet: Held = {
        **QUIET,
        partial(faults.careless_broker, watcher): CARELESS,
    }
    with holding(bed, watcher, quiet):
        await_only(watcher, quiet)
        check_health(bed, {expected for each in QUIET.values() for expected in each})
    with holding(bed, watcher, HARD):
        await_only(watcher, HARD)
    await_only(watcher, {})


def test_the_board_shows_the_cluster(bed: Testbed, watcher: PrometheusProcess) -> None:
    """Prometheus evaluates every panel, and those that always have something to show do."""
    shown = [*grafana.expressions(grafana.board())]
    always = [text for text in shown if re.search("headrace_(leaders|disk|bytes_in|log_size|connections|active)", text)]
    assert len(always) >= 6
    until(lambda: all(map(watcher.query, always)), lambda: f"{[text for text in always if not watcher.query(text)]}")
    for text in shown:
        watcher.query(text)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("held", HARDER, ids=lambda held: next(iter(held)).__name__)
def test_alerts_of_faults_one_by_one(bed: Testbed, watcher: PrometheusProcess, held: Held) -> None:
    with holding(bed, watcher, held, 300.0):
        pass
    await_only(watcher, {}, 600.0)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_alerts_of_faults_that_last_fire_and_end(bed: Testbed, watcher: PrometheusProcess) -> None:
    with holding(bed, watcher, LASTING, 900.0):
        pass
    await_only(watcher, {}, 1500.0)


@pytest.mark.slow
def test_an_upgrade_that_is_not_finished(tmp_path: Path) -> None:
    """A cluster of an earlier version, whose brokers are new."""
    expected = {BY_ID["feature_level"].alert}
    with EtcdProcess(tmp_path / "etcd") as etcd:
        earlier = layout.encode_cluster(layout.ClusterIdentity("S3VjaCBhIGNsdXN0ZXIgaWQ", FIRST_LEVEL))
        etcd.ctl("put", f"/headrace{layout.CLUSTER}", earlier.decode())
        with (
            ClusterProcesses(tmp_path / "cluster", brokers=1, etcd=etcd) as cluster,
            PrometheusProcess(tmp_path / "prometheus", [cluster.http_url]) as watcher,
        ):
            until(lambda: {*watcher.firing()} == expected, lambda: f"{expected} fire; {watcher.firing()} do")
            command = [sys.executable, "-m", "headrace", "cluster", "upgrade", "--yes", "-b", cluster.bootstrap]
            subprocess.run(command, check=True, timeout=60)
            until(lambda: not watcher.firing(), lambda: f"{watcher.firing()} end")


def test_every_rule_has_a_fault() -> None:
    """The upgrade that is not finished has a test of its own."""
    tried = {each.alert for held in (QUIET, HARD, LASTING, *HARDER) for found in held.values() for each in found}
    tried |= {each.alert for each in CARELESS} | {BY_ID["feature_level"].alert}
    assert tried == {rule.alert for rule in RULES} | {UNREACHABLE}
