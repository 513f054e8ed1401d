"""The views of `headrace top`: where each comes from, and its columns."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.cli.output import human_bytes, human_duration

Row = Mapping[str, Any]
_ARROWS = {"rising": "↑", "falling": "↓", "steady": "→"}
_BAD_STATES = frozenset({"failed", "not-reporting", "dead", "Dead"})
_BUSY_STATES = frozenset({"restarting", "stopping", "starting", "PreparingRebalance", "CompletingRebalance"})
_LATE_S = 60.0


@dataclass(frozen=True, slots=True)
class Column:
    head: str
    key: str
    """The field that is shown, and sorted by."""
    show: Callable[[Row], str]
    is_left: bool = False
    style: Callable[[Row], str] = lambda row: ""


@dataclass(frozen=True, slots=True)
class TopView:
    name: str
    path: str
    columns: tuple[Column, ...]
    sort: str
    """The field to sort by at first, in descending order."""
    items: str = "items"
    """The field of the answer with the rows."""
    is_paged: bool = True
    """Whether the server sorts, searches and pages."""
    name_key: str = "name"
    by_key: Mapping[str, Column] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_key", {each.key: each for each in self.columns})


def text(key: str) -> Callable[[Row], str]:
    return lambda row: str(row[key]) if row.get(key) not in (None, "") else "-"


def number(key: str) -> Callable[[Row], str]:
    return lambda row: "?" if row.get(key) is None else f"{row[key]:,}"


def rate(key: str) -> Callable[[Row], str]:
    return lambda row: "?" if row.get(key) is None else _rate(float(row[key]))


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"


def size(key: str) -> Callable[[Row], str]:
    return lambda row: "?" if row.get(key) is None else human_bytes(row[key])


def age(key: str, absent: str = "-") -> Callable[[Row], str]:
    return lambda row: absent if row.get(key) is None else human_duration(max(0.0, float(row[key])))


def trended(show: Callable[[Row], str]) -> Callable[[Row], str]:
    return lambda row: f"{show(row)} {_ARROWS.get(str(row.get('trend')), ' ')}"


def _when(key: str) -> Callable[[Row], str]:
    """Red where a count is not 0."""
    return lambda row: "bold red" if row.get(key) else ""


def _late(key: str) -> Callable[[Row], str]:
    return lambda row: "yellow" if (row.get(key) or 0) > _LATE_S else ""


def _state_style(row: Row) -> str:
    state = row.get("state")
    return "bold red" if state in _BAD_STATES else "yellow" if state in _BUSY_STATES else ""


def _optional(row: Row, key: str) -> str:
    return "-" if row.get(key) is None else f"{row[key]:,}"


def _disk_free(row: Row) -> str:
    disks = row.get("disks") or ()
    if not disks:
        return "?"
    fullest = min(disks, key=lambda each: each["free_bytes"] / max(1, each["total_bytes"]))
    share = fullest["free_bytes"] / max(1, fullest["total_bytes"])
    soon = "" if fullest["full_in_s"] is None else f", full in {human_duration(fullest['full_in_s'])}"
    return f"{human_bytes(fullest['free_bytes'])} ({share:.0%}{soon})"


def _broker(row: Row) -> str:
    """Its id, with a star for the controller."""
    return f"{row['broker_id']}{'*' if row['is_controller'] else ''}"


TOPICS = TopView(
    "topics",
    "/topics",
    (
        Column("TOPIC", "name", text("name"), is_left=True),
        Column("IN/S", "messages_in_per_s", rate("messages_in_per_s")),
        Column("BYTES IN/S", "bytes_in_per_s", size("bytes_in_per_s")),
        Column("BYTES OUT/S", "bytes_out_per_s", size("bytes_out_per_s")),
        Column("MESSAGES", "messages", number("messages")),
        Column("SIZE", "size_bytes", size("size_bytes")),
        Column("PARTITIONS", "partitions", number("partitions")),
        Column("GROUPS", "groups", number("groups")),
        Column("LAG", "lag_messages_max", lambda row: _optional(row, "lag_messages_max")),
        Column("BEHIND", "lag_seconds_max", age("lag_seconds_max"), style=_late("lag_seconds_max")),
        Column("NOT IN SYNC", "under_replicated", number("under_replicated"), style=_when("under_replicated")),
    ),
    sort="bytes_in_per_s",
)
GROUPS = TopView(
    "groups",
    "/groups",
    (
        Column("GROUP", "group", text("group"), is_left=True),
        Column("TYPE", "type", text("type"), is_left=True),
        Column("STATE", "state", text("state"), is_left=True, style=_state_style),
        Column("MEMBERS", "members", number("members")),
        Column("TOPICS", "topic_count", number("topic_count")),
        Column("LAG", "lag_messages", number("lag_messages")),
        Column("BEHIND", "lag_seconds", trended(age("lag_seconds", "?")), style=_late("lag_seconds")),
        Column("COORDINATOR", "coordinator", number("coordinator")),
    ),
    sort="lag_seconds",
    name_key="group",
)
QUEUES = TopView(
    "queues",
    "/queues",
    (
        Column("QUEUE", "queue", text("queue"), is_left=True),
        Column("VISIBLE", "visible", number("visible")),
        Column("IN FLIGHT", "in_flight", number("in_flight")),
        Column("DELAYED", "delayed", number("delayed")),
        Column("OLDEST", "oldest_age_s", trended(age("oldest_age_s")), style=_late("oldest_age_s")),
        Column("SENT/S", "sent_per_s", rate("sent_per_s")),
        Column("RECEIVED/S", "received_per_s", rate("received_per_s")),
        Column("DELETED/S", "deleted_per_s", rate("deleted_per_s")),
        Column("DEAD LETTERS", "dead_letters", lambda row: _optional(row, "dead_letters"), style=_when("dead_letters")),
    ),
    sort="oldest_age_s",
    name_key="queue",
)
BROKERS = TopView(
    "brokers",
    "/cluster",
    (
        Column(
            "BROKER", "broker_id", lambda row: f"{row['broker_id']}{'*' if row['is_controller'] else ''}", is_left=True
        ),
        Column("ADDRESS", "endpoint", text("endpoint"), is_left=True),
        Column(
            "STATE",
            "state",
            lambda row: "draining" if row["is_draining"] else str(row["state"]),
            is_left=True,
            style=_state_style,
        ),
        Column("LEADS", "leaders", number("leaders")),
        Column("REPLICAS", "partitions", number("partitions")),
        Column("REQUESTS/S", "requests_per_s", rate("requests_per_s")),
        Column("BYTES IN/S", "bytes_in_per_s", size("bytes_in_per_s")),
        Column("BYTES OUT/S", "bytes_out_per_s", size("bytes_out_per_s")),
        Column("CONNECTIONS", "connections", number("connections")),
        Column("CPU", "cpu_percent", lambda row: "?" if row["cpu_percent"] is None else f"{row['cpu_percent']:.0f}%"),
        Column("MEMORY", "memory_bytes", size("memory_bytes")),
        Column("DISK FREE", "disks", _disk_free),
        Column("UP", "uptime_s", age("uptime_s", "?")),
    ),
    sort="bytes_in_per_s",
    items="brokers",
    is_paged=False,
    name_key="broker_id",
)
PIPELINES = TopView(
    "pipelines",
    "/pipelines",
    (
        Column("PIPELINE", "name", text("name"), is_left=True),
        Column("STATE", "state", text("state"), is_left=True, style=_state_style),
        Column("HOST", "host", text("host"), is_left=True),
        Column("ROWS/S", "rows_per_s", rate("rows_per_s")),
        Column("LAG", "lag", number("lag")),
        Column("BATCH", "batch_ms", lambda row: human_duration(row["batch_ms"] / 1000)),
        Column("ROWS IN", "rows_in", number("rows_in")),
        Column("DEAD LETTERS", "dead_letters", number("dead_letters"), style=_when("dead_letters")),
        Column("RESTARTS", "restarts", number("restarts"), style=_when("restarts")),
        Column("STATE SIZE", "state_bytes", size("state_bytes")),
    ),
    sort="lag",
)
VIEWS: Mapping[str, TopView] = {each.name: each for each in (TOPICS, GROUPS, QUEUES, BROKERS, PIPELINES)}
OVERVIEW = "overview"
NAMES = (OVERVIEW, *VIEWS)
