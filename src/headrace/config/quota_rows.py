"""The broker's settings about client quotas. The defaults are in `BrokerSettings`."""

from headrace.config.setting_row import SettingRow
from headrace.config.settings import Kind
from headrace.model.features import QUOTAS_LEVEL

QUOTA_ROWS = (
    SettingRow("max.connection.creation.rate", Kind.INT,
         "How many connections this broker accepts each second; more wait their turn. A listener can have a limit of "
         "its own, by an option of the same name. The listener of brokers is exempt if it is not the only one.", 1,
         dynamic=True, level=QUOTAS_LEVEL),
    SettingRow("quota.scope", Kind.STRING,
         "What a quota of a user or client id limits: with `broker`, as in Kafka, its use of each broker by itself; "
         "with `cluster` its use of all brokers together, of which each has a share that changes every second.",
         choices=("broker", "cluster"), dynamic=True, level=QUOTAS_LEVEL),
    SettingRow("quota.window.num", Kind.INT,
         "The number of windows over which the rates of clients are measured for quotas.", 1, 1000),
    SettingRow("quota.window.size.seconds", Kind.INT, "The length of each of these windows.", 1, 3600),
    SettingRow("controller.quota.window.num", Kind.INT,
         "The number of windows whose quota of changes (controller_mutation_rate) may be used up at once.", 1, 1000),
    SettingRow("controller.quota.window.size.seconds", Kind.INT, "The length of each of these windows.", 1, 3600),
)  # fmt: skip
"""Client quotas."""
