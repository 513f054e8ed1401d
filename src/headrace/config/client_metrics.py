"""The settings of a subscription to metrics of clients (KIP-714)."""

from collections.abc import Mapping

from headrace.config.settings import Kind, Setting, table

DEFAULT_INTERVAL_MS = 300_000
MATCHED = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)

CLIENT_METRICS_SETTINGS: Mapping[str, Setting] = table(
    Setting("interval.ms", Kind.INT, DEFAULT_INTERVAL_MS, "How often clients push their metrics.", 100, 3_600_000),
    Setting(
        "match",
        Kind.LIST,
        (),
        f"Which clients: NAME=PATTERN with the names {', '.join(MATCHED)}; all must match. Empty: all clients.",
        pattern=rf"({'|'.join(MATCHED)})=.+",
        form=f"NAME=PATTERN with one of the names {', '.join(MATCHED)}",
    ),
    Setting("metrics", Kind.LIST, (), "The prefixes of the names of metrics that clients push; * for all of them."),
)
