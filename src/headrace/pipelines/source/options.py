"""The options of `spark.read.format("headrace")` and `readStream`, named as those of Spark's Kafka source.

| Option | Default | Meaning |
|---|---|---|
| `kafka.bootstrap.servers` | required | `HOST:PORT,HOST:PORT` |
| `subscribe`, `subscribePattern`, `assign` | one is required | topics by comma, a pattern, or partitions as JSON |
| `startingOffsets` | `latest`; batches: `earliest` | `earliest`, `latest` or JSON by partition |
| `startingTimestamp`, `startingOffsetsByTimestamp` | | start by time: one for all, or JSON by partition |
| `startingOffsetsByTimestampStrategy` | `error` | for partitions without a record of that time: `error` or `latest` |
| `endingOffsets`, `endingTimestamp`, `endingOffsetsByTimestamp` | `latest` | batches only |
| `failOnDataLoss` | `true` | `false` skips offsets that are gone, with a warning |
| `maxOffsetsPerTrigger`, `maxBytesPerTrigger` | | the most of one micro-batch |
| `minOffsetsPerTrigger`, `maxTriggerDelay` | , `15m` | wait for so many offsets, but no longer |
| `minPartitions`, `maxRecordsPerPartition` | | how offsets are split into tasks |
| `includeHeaders`, `columns` | `false`, all | which columns are read |
| `isolation`, `kafka.isolation.level` | `read_committed` | or `read_uncommitted` |
| `commitGroup`, `kafka.group.id` | | a group to commit offsets to, for lag tools |
| `groupIdPrefix`, `kafka.client.id` | `headrace-spark` | the client id in the broker's log |
| `kafka.fetch.max.bytes`, `kafka.max.partition.fetch.bytes` | `8m` | bytes of one fetch |
| `kafka.request.timeout.ms` | 30 s | for one answer |
| `kafka.default.api.timeout.ms` | 60 s | retrying while a broker is away |
| `kafka.socket.connection.setup.timeout.ms` | 5 s | for connecting |
| `user`, `password`, `mechanism`, `token`, `profile` | | the login: see `headrace.pipelines.connection_options` |
| `tls`, `caFile`, `certFile`, `keyFile`, `keyPassword`, `verifyHostname` | | TLS |
| `kafka.security.protocol` | `PLAINTEXT` | the only value: `tls` and `user` choose the others |

Names are case-insensitive. An unknown name, a bad value and a contradiction raise `OptionError` with a sentence.
`kafka.` settings that only tune a Java consumer are accepted and have no effect; those for TLS and SASL are refused,
with the option to use instead.

This module imports nothing heavy: Spark parses the options in a process of its own.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from headrace.model.errors import HeadraceError
from headrace.pipelines.connection_options import (
    CONNECTION_NAMES,
    USE_OURS,
    ConnectionOptions,
    bootstrap_of,
    connection_options,
)
from headrace.pipelines.source.offsets import OffsetsError, Partition, parse_offsets, parse_partitions

T = TypeVar("T")

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
_FETCH_BYTES = 8 * 1024 * 1024
_TRIGGER_DELAY_MS = 15 * 60 * 1000
_CONNECT_TIMEOUT_S, _REQUEST_TIMEOUT_S, _PATIENCE_S = 5.0, 30.0, 60.0

_NAMES = (
    "subscribe", "subscribePattern", "assign", "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy", "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp",
    "failOnDataLoss", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger",
    "minPartitions", "maxRecordsPerPartition", "includeHeaders", "groupIdPrefix", "columns", "commitGroup", "isolation",
    "kafka.bootstrap.servers", "kafka.group.id", "kafka.client.id", "kafka.isolation.level",
    "kafka.request.timeout.ms", "kafka.default.api.timeout.ms", "kafka.socket.connection.setup.timeout.ms",
    "kafka.fetch.max.bytes", "kafka.max.partition.fetch.bytes", "kafka.security.protocol", *CONNECTION_NAMES,
)  # fmt: skip
_KNOWN = {name.lower(): name for name in _NAMES}

_WITHOUT_EFFECT = {
    f"kafka.{name}"
    for name in (
        "session.timeout.ms", "heartbeat.interval.ms", "max.poll.records", "max.poll.interval.ms", "fetch.min.bytes",
        "fetch.max.wait.ms", "receive.buffer.bytes", "send.buffer.bytes", "metadata.max.age.ms", "retry.backoff.ms",
        "retry.backoff.max.ms", "reconnect.backoff.ms", "reconnect.backoff.max.ms", "connections.max.idle.ms",
        "check.crcs", "client.rack", "client.dns.lookup", "allow.auto.create.topics", "metric.reporters",
    )
}  # fmt: skip
"""They tune a Java consumer, or (with the prefixes below) the consumer cache of Spark's own source."""
_WITHOUT_EFFECT_PREFIXES = ("fetchoffset.", "kafkaconsumer.", "spark.", "__")

_REFUSED = {
    "kafka.auto.offset.reset": "startingOffsets sets where to start",
    "kafka.enable.auto.commit": "offsets are stored in the checkpoint; commitGroup mirrors them in a group",
    "kafka.key.deserializer": "keys are always binary; use columns of the DataFrame to decode them",
    "kafka.value.deserializer": "values are always binary; use columns of the DataFrame to decode them",
    "kafka.interceptor.classes": "interceptors could break the guarantees that Spark relies on",
    "path": "use subscribe, subscribePattern or assign for the topics, not load(path)",
    "topic": "use subscribe, subscribePattern or assign for the topics to read; topic is for writing",
    "bootstrap.servers": "its name is kafka.bootstrap.servers",
}

_TIME_UNITS_MS = {"ms": 1, "s": 1000, "sec": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNIT_NAMES = {"millisecond": "ms", "second": "s", "minute": "m", "hour": "h", "day": "d"}


class OptionError(HeadraceError):
    """An option of the data source cannot be used."""


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """The topics to read: exactly one of the three is set."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: frozenset[Partition] = frozenset()

    def matches(self, topic: str, *, is_internal: bool) -> bool:
        """Whether the pattern selects a topic. Internal topics are never selected, as in Kafka."""
        return not is_internal and re.fullmatch(self.pattern, topic) is not None

    def __str__(self) -> str:
        if self.topics:
            return ", ".join(self.topics)
        return self.pattern or ", ".join(sorted({topic for topic, _ in self.assigned}))


@dataclass(frozen=True, slots=True)
class OffsetBound:
    """Where to start or end: the same for all partitions (`all_at`), or by partition; offsets or times."""

    all_at: int | None = None
    by_partition: Mapping[Partition, int] | None = None
    is_time: bool = False
    option: str = ""
    """The option that set it, for messages."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    bootstrap: str
    subscription: TopicSelection
    starting: OffsetBound
    ending: OffsetBound
    time_without_record_is_latest: bool
    fail_on_data_loss: bool
    max_offsets: int | None
    min_offsets: int | None
    max_bytes: int | None
    max_trigger_delay_ms: int
    min_partitions: int
    max_records_per_partition: int
    include_headers: bool
    columns: tuple[str, ...]
    client_id: str
    commit_group: str
    read_committed: bool
    fetch_bytes: int
    connect_timeout_s: float
    request_timeout_s: float
    patience_s: float
    connection: ConnectionOptions = field(default=(), repr=False)


def parse_source_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Parse the options of a read; `OptionError` if one is invalid."""
    return _OptionParser(given).parse(streaming=streaming)


class _OptionParser:
    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        for name in self._given:
            self._check_name(name)

    def parse(self, *, streaming: bool) -> SourceOptions:
        headers = self._boolean("includeHeaders", False)
        columns = self._columns(headers)
        starting = self._starting(streaming)
        ending = self._ending(streaming)
        return SourceOptions(
            bootstrap=self._bootstrap(),
            subscription=self._subscription(),
            starting=starting,
            ending=ending,
            time_without_record_is_latest=self._strategy(),
            fail_on_data_loss=self._boolean("failOnDataLoss", True),
            max_offsets=self._number("maxOffsetsPerTrigger"),
            min_offsets=self._number("minOffsetsPerTrigger"),
            max_bytes=self._bytes("maxBytesPerTrigger"),
            max_trigger_delay_ms=self._parsed("maxTriggerDelay", _duration_ms, _TRIGGER_DELAY_MS),
            min_partitions=self._number("minPartitions") or 0,
            max_records_per_partition=self._number("maxRecordsPerPartition") or 0,
            include_headers="headers" in columns,
            columns=columns,
            client_id=self._text("kafka.client.id") or self._text("groupIdPrefix") or "headrace-spark",
            commit_group=self._commit_group(),
            read_committed=self._read_committed(),
            fetch_bytes=self._bytes("kafka.fetch.max.bytes")
            or self._bytes("kafka.max.partition.fetch.bytes")
            or _FETCH_BYTES,
            connect_timeout_s=self._seconds("kafka.socket.connection.setup.timeout.ms", _CONNECT_TIMEOUT_S),
            request_timeout_s=self._seconds("kafka.request.timeout.ms", _REQUEST_TIMEOUT_S),
            patience_s=self._seconds("kafka.default.api.timeout.ms", _PATIENCE_S),
            connection=connection_options(self._given),
        )

    # -- names

    def _check_name(self, name: str) -> None:
        if name in _KNOWN or name in _WITHOUT_EFFECT or name.startswith(_WITHOUT_EFFECT_PREFIXES):
            return
        if name in _REFUSED:
            raise OptionError(f"the option {name} cannot be used: {_REFUSED[name]}")
        if name.startswith(("kafka.ssl.", "kafka.sasl.")):
            raise OptionError(f"the option {name} cannot be used: {USE_OURS}")
        close = difflib.get_close_matches(name, _KNOWN, n=1)
        hint = f"; did you mean {_KNOWN[close[0]]}?" if close else ""
        raise OptionError(f"there is no option {name} for reading{hint}")

    def _text(self, name: str) -> str:
        return self._given.get(name.lower(), "").strip()

    def _has(self, name: str) -> bool:
        return name.lower() in self._given

    def _parsed(self, name: str, parse: Callable[[str], T], default: T) -> T:
        if not self._has(name):
            return default
        text = self._given[name.lower()].strip()
        try:
            return parse(text)
        except OffsetsError as error:
            raise OptionError(f"the option {name} cannot be used: {error}") from None
        except ValueError as error:
            raise OptionError(f"the option {name} cannot be {text!r}: {error}") from None

    def _boolean(self, name: str, default: bool) -> bool:
        return self._parsed(name, _boolean, default)

    def _number(self, name: str) -> int | None:
        return self._parsed(name, _positive, None)

    def _bytes(self, name: str) -> int | None:
        return self._parsed(name, _size_bytes, None)

    # -- what to read

    def _bootstrap(self) -> str:
        protocol = self._text("kafka.security.protocol").upper() or "PLAINTEXT"
        if protocol != "PLAINTEXT":
            raise OptionError(f"kafka.security.protocol cannot be {protocol}: {USE_OURS}")
        bootstrap = self._text("kafka.bootstrap.servers") or bootstrap_of(connection_options(self._given))
        if not bootstrap:
            raise OptionError("the option kafka.bootstrap.servers is missing: name a broker as HOST:PORT")
        return bootstrap

    def _subscription(self) -> TopicSelection:
        given = [name for name in ("subscribe", "subscribePattern", "assign") if self._has(name)]
        if len(given) != 1:
            found = f"{' and '.join(given)} are given" if given else "none is given"
            raise OptionError(f"set exactly one of subscribe, subscribePattern and assign: {found}")
        if given == ["subscribe"]:
            topics = tuple(
                dict.fromkeys(topic.strip() for topic in self._text("subscribe").split(",") if topic.strip())
            )
            if not topics:
                raise OptionError("the option subscribe names no topic: write topic1,topic2")
            return TopicSelection(topics=topics)
        if given == ["subscribePattern"]:
            return TopicSelection(pattern=self._parsed("subscribePattern", _pattern, ""))
        return TopicSelection(assigned=self._parsed("assign", parse_partitions, frozenset()))

    def _columns(self, headers: bool) -> tuple[str, ...]:
        if not self._has("columns"):
            return COLUMNS if headers else COLUMNS[:-1]
        known = {name.lower(): name for name in COLUMNS}
        columns: list[str] = []
        for name in (part.strip() for part in self._text("columns").split(",")):
            if name.lower() not in known:
                raise OptionError(f"the option columns names {name!r}, which is none of {', '.join(COLUMNS)}")
            if known[name.lower()] in columns:
                raise OptionError(f"the option columns names {name!r} twice")
            columns.append(known[name.lower()])
        return tuple(columns)

    # -- where to start and end

    def _starting(self, streaming: bool) -> OffsetBound:
        special = {"latest": -1, "earliest": -2} if streaming else {"earliest": -2}
        default = OffsetBound(all_at=-1 if streaming else -2, option="startingOffsets")
        return self._position("starting", special, default, "endingOffsets=latest ends there" if not streaming else "")

    def _ending(self, streaming: bool) -> OffsetBound:
        if streaming:
            for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
                if self._has(name):
                    raise OptionError(f"the option {name} is for batch reads: a stream has no end")
        return self._position("ending", {"latest": -1}, OffsetBound(all_at=-1, option="endingOffsets"), "")

    def _position(self, end: str, special: Mapping[str, int], default: OffsetBound, hint: str) -> OffsetBound:
        """A time for all takes precedence over times by partition, and these over offsets, as in Spark's source."""
        if self._has(f"{end}Timestamp"):
            name = f"{end}Timestamp"
            return OffsetBound(all_at=self._parsed(name, _time_ms, 0), is_time=True, option=name)
        if self._has(f"{end}OffsetsByTimestamp"):
            name = f"{end}OffsetsByTimestamp"
            times = self._parsed(name, lambda text: parse_offsets(text, lowest=0), None)
            return OffsetBound(by_partition=times, is_time=True, option=name)
        name = f"{end}Offsets"
        if not self._has(name):
            return default
        text = self._text(name)
        if text.lower() in special:
            return OffsetBound(all_at=special[text.lower()], option=name)
        if not text.startswith("{"):
            because = f" ({hint})" if hint and text.lower() == "latest" else ""
            raise OptionError(
                f"the option {name} cannot be {text!r}: write {' or '.join(special)}, or JSON such as "
                f'{{"topic": {{"0": 23}}}}{because}'
            )
        offsets = self._parsed(name, parse_offsets, None) or {}
        allowed = set(special.values())
        for (topic, partition), offset in offsets.items():
            if offset < 0 and offset not in allowed:
                raise OptionError(f"the option {name} cannot be {offset} for {topic}-{partition} here")
        return OffsetBound(by_partition=offsets, option=name)

    def _strategy(self) -> bool:
        strategy = self._text("startingOffsetsByTimestampStrategy").lower() or "error"
        if strategy not in ("error", "latest"):
            raise OptionError(f"startingOffsetsByTimestampStrategy cannot be {strategy!r}: write error or latest")
        return strategy == "latest"

    # -- how

    def _read_committed(self) -> bool:
        for name in ("isolation", "kafka.isolation.level"):
            if self._has(name):
                level = self._text(name).lower()
                if level not in ("read_committed", "read_uncommitted"):
                    raise OptionError(
                        f"the option {name} cannot be {level!r}: write read_committed or read_uncommitted"
                    )
                return level == "read_committed"
        return True

    def _commit_group(self) -> str:
        group = self._text("commitGroup")
        if group.lower() in ("", "false"):
            return ""
        if group.lower() != "true":
            return group
        named = self._text("kafka.group.id")
        if not named:
            raise OptionError("commitGroup=true needs the name of the group: set kafka.group.id, or commitGroup to it")
        return named

    def _seconds(self, name: str, default_s: float) -> float:
        milliseconds = self._number(name)
        return default_s if milliseconds is None else milliseconds / 1000


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("write true or false")
    return text.lower() == "true"


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ValueError("write a number above 0")
    return int(text)


def _time_ms(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError("write a time in milliseconds since 1970-01-01 UTC")
    return int(text)


def _size_bytes(text: str) -> int:
    """A number of bytes, or one with a unit: 10485760, 10m, 10 MiB, 1gb."""
    match = re.fullmatch(r"(\d+)\s*([kmgt]?)(?:i?b)?", text.lower())
    if match is None or int(match[1]) == 0:
        raise ValueError("write a number of bytes, such as 10485760 or 10m")
    return int(match[1]) << 10 * " kmgt".index(match[2] or " ")


def _duration_ms(text: str) -> int:
    """15m, 90s, 2 hours: as Spark's own time strings."""
    match = re.fullmatch(r"(\d+)\s*([a-z]+)", text.lower())
    unit = match[2] if match else ""
    unit = _UNIT_NAMES.get(unit.removesuffix("s"), unit)
    if match is None or unit not in _TIME_UNITS_MS:
        raise ValueError("write a duration such as 15m, 90s or 2 hours")
    return int(match[1]) * _TIME_UNITS_MS[unit]


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"it is not a regular expression ({error})") from None
    if not text:
        raise ValueError("it matches no topic")
    return text
