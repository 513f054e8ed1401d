"""The broker's settings about metrics, history and health. The defaults are in `BrokerSettings`."""

from headrace.config.setting_row import SettingRow
from headrace.config.settings import Kind
from headrace.model.features import SECURITY_LEVEL

MONITOR_ROWS = (
    SettingRow("metrics.enable", Kind.BOOLEAN,
         "Whether requests are counted and timed for GET /metrics on the HTTP port. Off: only what is known without "
         "counting is shown there."),
    SettingRow("metrics.allow.anonymous", Kind.BOOLEAN,
         "Whether GET /metrics needs no login, from any machine. Off: with authorization.enable it needs DESCRIBE on "
         "the cluster; without, it is served to this machine only, or to all if the broker is insecure.",
         dynamic=True, level=SECURITY_LEVEL),
    SettingRow("metrics.topic.max", Kind.INT,
         "The number of topics with metrics of their own; headrace_metrics_omitted counts those beyond it.", 0),
    SettingRow("metrics.partition.max", Kind.INT,
         "The number of partitions with metrics of their own, in the same way.", 0),
    SettingRow("metrics.group.max", Kind.INT,
         "The number of groups with metrics of their own, in the same way.", 0),
    SettingRow("metrics.group.partition.max", Kind.INT,
         "The number of offsets of groups, one for each partition, with metrics of their own, in the same way.", 0),
    SettingRow("metrics.queue.max", Kind.INT,
         "The number of queues with metrics of their own, in the same way.", 0),
    SettingRow("monitor.history.series.max", Kind.INT,
         "The number of series that the broker stores of the last hour, for charts and trends, at 1.4 KiB each: four "
         "for a topic, three for a group, seven for a queue. Objects beyond it have no history.", 100),
    SettingRow("health.stuck.ms", Kind.INT,
         "How long a group may fall behind without progress, or a queue have messages that none receives, before "
         "headrace health and the alerts call that a problem.", 1_000, dynamic=True, level=SECURITY_LEVEL),
    SettingRow("health.transaction.open.ms", Kind.INT,
         "How long a transaction may be open before that is a problem: consumers with read_committed wait behind it.",
         1_000, dynamic=True, level=SECURITY_LEVEL),
    SettingRow("health.disk.free.percent", Kind.INT,
         "With less free space than this on the disk of the data directory, that is a problem; below a third of it, a "
         "critical one.", 0, 100, dynamic=True, level=SECURITY_LEVEL),
    SettingRow("canary.enable", Kind.BOOLEAN,
         "Whether the broker writes and reads small messages of its own all the time, in the topic __canary and in a "
         "queue, and exports how long they take (headrace_canary_…).", dynamic=True, level=SECURITY_LEVEL),
    SettingRow("canary.interval.ms", Kind.INT, "The time between two messages of the canary.", 100, 3_600_000,
         dynamic=True, level=SECURITY_LEVEL),
)  # fmt: skip
"""Metrics, history, health and the canary."""
