"""Calls between brokers for the figures of a cluster. They change nothing, and any broker may make them at any time.

They need no feature level: a broker that does not know one refuses it (`PeerUnavailable`), and is shown without data. A
call or an answer gets new fields only at its end and with defaults.

Bounds: rows are sent in pages of `PAGE_BYTES`, at most `PAGES_MAX` of them; 15,000 groups are about 1.5 MB, 6 pages.
Positions are asked for in calls of `POSITIONS_MAX` offsets.
"""

import msgspec

from headrace.monitor.snapshots import NO_RATES, PartitionStat, Rates
from headrace.replication.calls import Call

PAGE_BYTES = 256 * 1024
"""A page is at most this large, or one row; it is encoded and decoded in about 2 ms."""
PAGES_MAX = 256
"""64 MiB of rows from one broker; what is beyond is left out."""
POSITIONS_MAX = 2_000
DEMANDS_MAX = 4_000
"""About 200 KiB each second."""


class AskTotals(Call, frozen=True):
    """What the broker has and does: `BrokerTotals`."""


class AskRows(Call, frozen=True):
    """One page of a section of the broker's figures: a `RowsPage`."""

    section: str
    """topics, groups, shares, queues, transactions, problems, clients, connections or quotas."""
    version: int = 0
    """That of the first page; 0 to ask for the first one."""
    page: int = 0


class RowsPage(msgspec.Struct, array_like=True, frozen=True):
    version: int
    pages: int
    rows: msgspec.Raw
    """An array of the section's rows."""


class AskTopic(Call, frozen=True):
    """What the broker has of a topic: `LedPartitions`."""

    topic: str


class LedPartitions(msgspec.Struct, array_like=True, frozen=True):
    partitions: list[PartitionStat]
    """Those that the broker leads."""
    rates: Rates = NO_RATES
    """Of the topic on this broker; followers may send messages to consumers, too."""


class AskGroup(Call, frozen=True):
    """A group that the broker coordinates: a `GroupDetail`, or None."""

    group: str


class AskPositions(Call, frozen=True):
    """For partitions that the broker leads: their offsets, and the times of the records that groups read next.

    The answer is a list of `LogPositions`; partitions that the broker does not lead are left out.
    """

    wanted: list[tuple[str, int, list[int]]]
    """Topic, partition, and the offsets whose times are wanted; none if only start and end are."""


class LogPositions(msgspec.Struct, array_like=True, frozen=True):
    topic: str
    partition: int
    start_offset: int
    end_offset: int
    """The high watermark."""
    times: list[int | None]
    """For each offset that was asked for, the time in ms of the first record at or after it that consumers are to read;
    None if there is none, -1 if it has no time."""


class AskHistory(Call, frozen=True):
    """The history of an object on the broker: a `HistoryData`, without series if it has none."""

    kind: str
    name: str


class AskClient(Call, frozen=True):
    """A client that pushes metrics to the broker: a `ClientDetail`, or None."""

    client_instance_id: str


class AskQuotaDemand(Call, frozen=True):
    """How much clients with a quota use on the broker: `QuotaDemand`."""


class QuotaDemand(msgspec.Struct, array_like=True, frozen=True):
    rows: list[tuple[str, str, str, bool, float, bool]]
    """The name of the quota, user, client id, whether that is a prefix, what is used each second, whether they are
    delayed."""
    is_whole: bool = True
    """False if more than `DEMANDS_MAX` use something: the others are left out."""


class AskStoredBytes(Call, frozen=True):
    """Bytes in the logs that the broker leads, by the prefix of topics with a quota: `dict[str, int]`."""


COMMITTED_MAX = 50_000
"""Offsets in one answer, about 3 MB."""


class AskCommitted(Call, frozen=True):
    """What the groups that the broker coordinates have committed in these topics: `CommittedOffsets`."""

    topics: list[str]


class CommittedOffsets(msgspec.Struct, array_like=True, frozen=True):
    shards: list[int]
    """The partitions of __consumer_offsets whose groups these are: those that the broker leads and has loaded."""
    rows: list[tuple[str, str, int, int]]
    """Group, topic, partition and the committed offset."""


MonitorCall = (
    AskTotals
    | AskRows
    | AskTopic
    | AskGroup
    | AskPositions
    | AskHistory
    | AskClient
    | AskQuotaDemand
    | AskStoredBytes
    | AskCommitted
)
