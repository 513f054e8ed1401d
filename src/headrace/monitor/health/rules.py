"""The kinds of problems, with their thresholds: the only place that has them. Pure.

The checks use the thresholds; `alert_rules.py` makes Prometheus' alert rules of the table, and a test compares the
table in `docs/operations.md` with it.
"""

from typing import NamedTuple

from headrace.model.pipeline_report import SILENT_AFTER_S
from headrace.monitor.health.problem import Severity

_MINUTE_S, _HOUR_S, _DAY_S = 60.0, 3600.0, 86_400.0

# Thresholds. What users need to change is a setting: health.stuck.ms, health.transaction.open.ms and
# health.disk.free.percent.

DISK_CRITICAL_FRACTION = 1 / 3
"""A disk is critical below this part of health.disk.free.percent: 5 of 15 percent."""
DISK_FULL_SOON_S = _DAY_S
DISK_FULL_CRITICAL_S = 3 * _HOUR_S
CERTIFICATE_WARNING_S = 30 * _DAY_S
CERTIFICATE_CRITICAL_S = 7 * _DAY_S
CLOCK_SKEW_S = 2.0
CLOCK_SKEW_CRITICAL_S = 60.0
STORE_SLOW_MS = 500.0
LOOP_LAG_S = 0.5
LOOP_LAG_CRITICAL_S = 5.0
BUDGET_WAIT_S = 10.0
LOGIN_FAILURES_PER_MINUTE = 300
DEAD_LETTER_WINDOW_S = 5 * _MINUTE_S
PIPELINE_RESTARTS = 3
PIPELINE_RESTART_WINDOW_S = 10 * _MINUTE_S
PIPELINE_SILENT_S = SILENT_AFTER_S


class HealthRule(NamedTuple):
    """A kind of problem."""

    id: str
    severities: tuple[Severity, ...]
    """Those that it can have, the worst first."""
    alert: str
    """The name of the Prometheus alert."""
    title: str
    """What is wrong, in a few words."""
    threshold: str
    """When it is a problem, in words."""
    action: str
    """What to do. `{subject}` stands for the subject of the problem."""
    noun: str = ""
    """What the subject is, in capitals."""
    raise_after_s: float = 0.0
    """For how long the condition must hold before it is shown."""
    clear_after_s: float = 15.0
    """For how long the condition must be gone before it is cleared, so that a value at the threshold does not flap."""
    alert_after_s: float = 60.0
    """For how long Prometheus waits more before it fires."""


RULES = (
    HealthRule(
        "offline_partitions", ("critical",), "HeadracePartitionsOffline", "Partitions are offline",
        "a partition has no leader: no replica in sync is alive",
        "Start the brokers that have its replicas: `headrace cluster status` names them.",
        alert_after_s=30,
    ),
    HealthRule(
        "under_min_isr", ("critical",), "HeadraceUnderMinIsr", "Partitions refuse acks=all",
        "fewer replicas are in sync than `min.insync.replicas` asks for",
        "Bring the missing brokers back; `headrace cluster status` shows which replicas are not in sync.",
        alert_after_s=30,
    ),
    HealthRule(
        "under_replicated", ("warning",), "HeadraceUnderReplicated", "Partitions lack replicas",
        "a replica of a partition is not in sync",
        "Bring the broker back, or wait until it has caught up: `headrace cluster status`.",
        raise_after_s=10, alert_after_s=120,
    ),
    HealthRule(
        "broker_down", ("critical",), "HeadraceBrokerDown", "A broker is down",
        "the lease of a broker of the cluster has ended",
        "Start it again. If it is gone for good, `headrace cluster drain ID` moves its partitions and removes it.",
        alert_after_s=30,
    ),
    HealthRule(
        "broker_silent", ("warning",), "HeadraceBrokerSilent", "A broker does not answer",
        "a broker that has its lease does not answer other brokers for 15 s",
        "Look at its log and its load, and whether the brokers reach each other: `headrace doctor`.",
        raise_after_s=15, alert_after_s=60,
    ),
    HealthRule(
        "no_controller", ("critical",), "HeadraceNoController", "There is no controller",
        "no broker holds the controller's lease for 15 s",
        "See whether etcd answers (`etcdctl endpoint health`) and brokers run (`headrace cluster status`).",
        raise_after_s=15, alert_after_s=30,
    ),
    HealthRule(
        "store_unreachable", ("critical",), "HeadraceStoreUnreachable", "The metadata store does not answer",
        "a broker cannot reach etcd for 10 s",
        "Check etcd: `etcdctl endpoint health --cluster`. Messages flow on; topics and leaders cannot change.",
        raise_after_s=10, alert_after_s=30,
    ),
    HealthRule(
        "store_slow", ("warning",), "HeadraceStoreSlow", "The metadata store is slow",
        f"etcd takes more than {STORE_SLOW_MS:.0f} ms to answer, on average over a minute",
        "Give etcd a disk of its own: `etcdctl check perf`.",
        raise_after_s=30, alert_after_s=300,
    ),
    HealthRule(
        "disk_full", ("critical", "warning"), "HeadraceDiskFull", "A disk is nearly full",
        "less than `health.disk.free.percent` (15%) of a data directory's disk is free; critical below a third of that",
        "Lower retention (`headrace topic alter TOPIC --set retention.bytes=N`), delete topics, or enlarge the disk.",
        alert_after_s=60,
    ),
    HealthRule(
        "disk_filling", ("critical", "warning"), "HeadraceDiskFilling", "A disk will be full soon",
        "for 5 min a disk fills at a rate that makes it full within 24 h; critical within 3 h",
        "Lower retention (`headrace topic alter TOPIC --set retention.bytes=N`), or enlarge the disk before that.",
        raise_after_s=300, clear_after_s=300, alert_after_s=60,
    ),
    HealthRule(
        "data_dir_failed", ("critical",), "HeadraceDataDirFailed", "A data directory failed",
        "a write or fsync failed: the logs of the broker take no more writes",
        "Check the disk (`dmesg`), then restart the broker; replace the disk if it fails again.",
        alert_after_s=0,
    ),
    HealthRule(
        "group_stuck", ("warning",), "HeadraceGroupStuck", "A group is stuck",
        "a group has members, commits nothing for `health.stuck.ms` (5 min), and its lag grows",
        "See which member has the partitions: `headrace group describe {subject} --members`; restart it if it hangs.",
        noun="GROUP", alert_after_s=60,
    ),
    HealthRule(
        "group_unattended", ("warning",), "HeadraceGroupUnattended", "A group without members falls behind",
        "a group has no members, and its lag grows for `health.stuck.ms` (5 min)",
        "Start its consumers, or delete it if it is not used any more: `headrace group delete {subject}`.",
        noun="GROUP", alert_after_s=60,
    ),
    HealthRule(
        "queue_unattended", ("warning",), "HeadraceQueueUnattended", "A queue has no consumer",
        "the oldest message of a queue gets older, and none is received for `health.stuck.ms` (5 min)",
        "Start its workers: `headrace queue describe {subject}` shows the counts and the settings.",
        noun="QUEUE", alert_after_s=60,
    ),
    HealthRule(
        "dead_letters", ("warning",), "HeadraceDeadLetters", "Dead letters arrive",
        "messages were moved to a dead-letter queue in the last 5 min",
        "Read the reasons (`headrace queue peek {subject}`), fix the cause, and `headrace queue redrive {subject}`.",
        noun="QUEUE", alert_after_s=0,
    ),
    HealthRule(
        "transaction_open", ("warning",), "HeadraceTransactionOpen", "A transaction is open for too long",
        "a transaction is open for longer than `health.transaction.open.ms` (15 min): read_committed readers wait",
        "Find its producer (`headrace txn describe {subject}`), or end it: `headrace txn abort {subject}`.",
        noun="ID", alert_after_s=60,
    ),
    HealthRule(
        "pipeline_failed", ("critical",), "HeadracePipelineFailed", "A pipeline failed",
        "a pipeline has ended with an error",
        "Its last error is in `headrace pipeline status {subject}`; start it again when it is fixed.",
        noun="NAME", alert_after_s=0,
    ),
    HealthRule(
        "pipeline_restarting", ("warning",), "HeadracePipelineRestarting", "A pipeline restarts again and again",
        f"a pipeline was restarted {PIPELINE_RESTARTS} times in 10 min",
        "Its last error is in `headrace pipeline status {subject}`.",
        noun="NAME", clear_after_s=60, alert_after_s=0,
    ),
    HealthRule(
        "pipeline_silent", ("warning",), "HeadracePipelineSilent", "A pipeline does not report",
        f"a pipeline that should run has not reported for {PIPELINE_SILENT_S:.0f} s",
        "See whether its process runs: `headrace pipeline status {subject}`.",
        noun="NAME", alert_after_s=60,
    ),
    HealthRule(
        "certificate", ("critical", "warning"), "HeadraceCertificateExpires", "A certificate expires",
        "a certificate of the broker expires within 30 days; critical within 7",
        "Put the new files in place of the old ones: they are loaded without a restart. `headrace cert show FILE`.",
        alert_after_s=0,
    ),
    HealthRule(
        "master_key", ("critical",), "HeadraceMasterKeyMissing", "A broker lacks the key of encrypted topics",
        "a broker hosts encrypted topics whose data keys it cannot unwrap",
        "Set `encryption.master.key.file`, or the command, to the key that its log names, and restart it.",
        alert_after_s=0,
    ),
    HealthRule(
        "clock_skew", ("critical", "warning"), "HeadraceClockSkew", "The clocks of brokers differ",
        f"the clock of a broker is more than {CLOCK_SKEW_S:.0f} s off another's; critical from 60 s",
        "Let every machine follow NTP: `timedatectl status`, `chronyc tracking`.",
        raise_after_s=10, clear_after_s=30, alert_after_s=60,
    ),
    HealthRule(
        "event_loop_lag", ("critical", "warning"), "HeadraceEventLoopLag", "A broker is overloaded",
        f"its event loop was held up for {LOOP_LAG_S:g} s within the last minute; critical from 5 s",
        "Spread the load: `headrace cluster rebalance --move`, or more brokers on the machine (`--workers`).",
        raise_after_s=15, clear_after_s=60, alert_after_s=300,
    ),
    HealthRule(
        "request_budget", ("warning",), "HeadraceRequestBudget", "The memory for requests is used up",
        f"clients wait for more than {BUDGET_WAIT_S:.0f} s because `queued.max.request.bytes` is used up",
        "Raise `queued.max.request.bytes` if the machine has memory left, or spread the load over more brokers.",
        alert_after_s=60,
    ),
    HealthRule(
        "login_failures", ("warning",), "HeadraceLoginFailures", "Many logins fail",
        f"more than {LOGIN_FAILURES_PER_MINUTE} logins failed in the last minute",
        "See who tries: `headrace audit tail --denied`. A client with an old password retries for ever.",
        clear_after_s=60, alert_after_s=0,
    ),
    HealthRule(
        "feature_level", ("info",), "HeadraceFeatureLevel", "The upgrade is not finished",
        "every broker supports a higher feature level than the cluster has",
        "When the new version has proven itself: `headrace cluster upgrade`. There is no way back after that.",
        alert_after_s=86_400,
    ),
    HealthRule(
        "insecure_listener", ("warning",), "HeadraceInsecureListener", "Everyone on the network may do everything",
        "a listener without authentication is reachable from other machines",
        "`headrace secure` turns on TLS, users and ACLs; or listen on 127.0.0.1 only.",
        alert_after_s=0,
    ),
)  # fmt: skip

BY_ID = {rule.id: rule for rule in RULES}
