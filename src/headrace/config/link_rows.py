"""The broker's settings about links to other clusters. The defaults are in `BrokerSettings`."""

from headrace.config.setting_row import SettingRow
from headrace.config.settings import Kind
from headrace.model.features import LINKS_LEVEL

LINK_PASSWORD_PREFIX = "HEADRACE_LINK_PASSWORD_"
"""Environment variables with passwords of links begin with this. They are no settings."""

LINK_ROWS = (
    SettingRow("link.files.dir", Kind.STRING,
         "The folder with the files that links name: passwords, certificate authorities, client certificates and keys. "
         "Links read no other file. Empty: they can name none."),
    SettingRow("link.refresh.interval.ms", Kind.INT,
         "How often a link asks its source cluster for new topics and partitions and for committed offsets of groups.",
         100, 3_600_000, dynamic=True, level=LINKS_LEVEL),
)  # fmt: skip
"""Links to other clusters."""
