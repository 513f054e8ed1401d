"""The topic settings: Kafka's names and defaults, and `flush.policy`, which is ours.

Kafka settings without effect here (tiered storage, message down-conversion) are in `kafka_only.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.config.backlog import DEFAULT_POLICY, backlog_rows
from headrace.config.kafka_only import RETIRED, TOPIC_ROWS
from headrace.config.queue import NO_QUEUE, PREFIX, QUEUE_SETTINGS, QueueSettings, queue_settings
from headrace.config.schema_aliases import STRATEGIES, VALIDATIONS
from headrace.config.settings import Kind, Setting, Value, parse_all, table
from headrace.model.backlog import BacklogBound, backlog_bound
from headrace.model.errors import SettingsError
from headrace.model.features import BACKLOGS_LEVEL, SCHEMAS_LEVEL

_DAY_MS = 24 * 60 * 60 * 1000
_NEVER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings in force for one topic, typed. Attribute names are the setting names with `_` for `.`."""

    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    delete_retention_ms: int = _DAY_MS
    encryption_at_rest: str = "false"
    errors_deadletterqueue_group_enable: bool = False
    file_delete_delay_ms: int = 60_000
    flush_messages: int = _NEVER
    flush_ms: int = _NEVER
    flush_policy: str = "ack"
    index_interval_bytes: int = 4096
    max_backlog_age_ms: int = 0
    max_backlog_bytes: int = 0
    max_backlog_groups: tuple[str, ...] = ()
    max_backlog_messages: int = 0
    max_backlog_policy: str = DEFAULT_POLICY
    max_compaction_lag_ms: int = _NEVER
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = _NEVER
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    retention_bytes: int = -1
    retention_ms: int = 7 * _DAY_MS
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 7 * _DAY_MS
    unclean_leader_election_enable: bool = False
    key_schema_validation: str = "off"
    key_subject_name_strategy: str = "TopicNameStrategy"
    value_schema_validation: str = "off"
    value_subject_name_strategy: str = "TopicNameStrategy"
    queue: QueueSettings = NO_QUEUE

    def value(self, row: Setting) -> Value:
        """The value in force of a topic setting; the default of one without effect."""
        if not row.has_effect:
            value = row.default
        elif row.name in QUEUE_SETTINGS:
            value = getattr(self.queue, row.attribute.removeprefix("queue_"))
        else:
            value = getattr(self, row.attribute)
        return value

    @property
    def backlog_bound(self) -> BacklogBound | None:
        """The bound on the backlog of each partition."""
        return backlog_bound(
            self.max_backlog_messages, self.max_backlog_bytes, self.max_backlog_age_ms, self.max_backlog_policy
        )

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def checks_schemas(self) -> bool:
        """True if records are refused whose key or value does not fit its schema."""
        return self.value_schema_validation != "off" or self.key_schema_validation != "off"

    @property
    def flushes_before_ack(self) -> bool:
        """True if records are acknowledged and readable only when they are on disk."""
        return self.flush_policy == "ack" or self.flush_messages == 1


_D = TopicSettings()


def _schema_rows(part: str) -> tuple[Setting, Setting]:
    return (
        Setting(f"{part}.schema.validation", Kind.STRING, "off",
                f"Whether the broker refuses records by the schema of their {part}. id: the {part} must have the id of "
                "a schema that belongs to the subject. payload: it must also be what that schema says.",
                choices=VALIDATIONS, level=SCHEMAS_LEVEL),
        Setting(f"{part}.subject.name.strategy", Kind.STRING, "TopicNameStrategy",
                f"The subject that the schema of a {part} must belong to. TopicNameStrategy: TOPIC-{part}. "
                "RecordNameStrategy: the full name of the record. TopicRecordNameStrategy: TOPIC-NAME.",
                choices=STRATEGIES, level=SCHEMAS_LEVEL),
    )  # fmt: skip


TOPIC_SETTINGS: Mapping[str, Setting] = table(
    Setting("cleanup.policy", Kind.LIST, _D.cleanup_policy,
            "What happens to old segments: delete, compact, or both. Empty: nothing, they are retained forever.",
            choices=("delete", "compact"), broker_name="log.cleanup.policy", empty_level=2),
    Setting("compression.gzip.level", Kind.INT, _D.compression_gzip_level,
            "The compression level where the broker recompresses with gzip: 1 (fastest) to 9 (smallest); -1 is gzip's "
            "default.", -1, 9, broker_name="compression.gzip.level", level=2),
    Setting("compression.lz4.level", Kind.INT, _D.compression_lz4_level,
            "The same for lz4: 1 (fastest) to 17 (smallest).", 1, 17, broker_name="compression.lz4.level", level=2),
    Setting("compression.type", Kind.STRING, _D.compression_type,
            "The codec of stored batches. producer: the producer's codec, at no cost. Another one: the broker "
            "recompresses batches that arrive in a different codec.",
            choices=("producer", "gzip", "snappy", "lz4", "zstd", "uncompressed"), broker_name="compression.type"),
    Setting("compression.zstd.level", Kind.INT, _D.compression_zstd_level,
            "The same for zstd: -131072 (fastest) to 22 (smallest).", -131_072, 22,
            broker_name="compression.zstd.level", level=2),
    Setting("delete.retention.ms", Kind.LONG, _D.delete_retention_ms,
            "How long a tombstone stays in a compacted topic after it became clean.", 0,
            broker_name="log.cleaner.delete.retention.ms"),
    Setting("encryption.at.rest", Kind.STRING, _D.encryption_at_rest,
            "true: records are encrypted on disk. Needs a master key: see encryption.master.key.file. Batches that are "
            "there already stay as they are. shredded: the data keys of the topic are destroyed, and all that was "
            "written with them is unreadable on every broker; this cannot be undone.",
            choices=("false", "true", "shredded"), broker_name="log.encryption.at.rest", level=2),
    Setting("errors.deadletterqueue.group.enable", Kind.BOOLEAN, _D.errors_deadletterqueue_group_enable,
            "Whether share groups may write their dead letters to this topic (KIP-1191).", level=2),
    Setting("file.delete.delay.ms", Kind.LONG, _D.file_delete_delay_ms,
            "How long a deleted segment's file remains, for reads in progress.", 0,
            broker_name="log.segment.delete.delay.ms"),
    Setting("flush.messages", Kind.LONG, _D.flush_messages, "Flush to disk after this many messages.", 1,
            broker_name="log.flush.interval.messages"),
    Setting("flush.ms", Kind.LONG, _D.flush_ms, "Flush to disk when a message has waited this long.", 0,
            broker_name="log.flush.interval.ms"),
    Setting("flush.policy", Kind.STRING, _D.flush_policy,
            "When acks=all is acknowledged and records become readable. ack: when they are on disk. "
            "os: when they are in the page cache.",
            choices=("ack", "os"), broker_name="log.flush.policy"),
    Setting("index.interval.bytes", Kind.INT, _D.index_interval_bytes,
            "Bytes between two entries of the offset index.", 0, broker_name="log.index.interval.bytes"),
    *_schema_rows("key"),
    *backlog_rows("", "what the slowest group has not read of a partition", "the oldest records are deleted"),
    Setting("max.backlog.groups", Kind.LIST, (),
            "The groups whose position counts for the backlog; empty: all groups with committed offsets. Without any, "
            "all that is stored counts.", level=BACKLOGS_LEVEL),
    Setting("max.compaction.lag.ms", Kind.LONG, _D.max_compaction_lag_ms,
            "A message is compacted after this time at the latest.", 1,
            broker_name="log.cleaner.max.compaction.lag.ms"),
    Setting("max.message.bytes", Kind.INT, _D.max_message_bytes, "The largest record batch accepted.", 0,
            broker_name="message.max.bytes"),
    Setting("message.timestamp.after.max.ms", Kind.LONG, _D.message_timestamp_after_max_ms,
            "How far a message's timestamp may lie in the future.", 0,
            broker_name="log.message.timestamp.after.max.ms"),
    Setting("message.timestamp.before.max.ms", Kind.LONG, _D.message_timestamp_before_max_ms,
            "How far a message's timestamp may lie in the past.", 0,
            broker_name="log.message.timestamp.before.max.ms"),
    Setting("message.timestamp.type", Kind.STRING, _D.message_timestamp_type,
            "CreateTime: the producer's timestamps. LogAppendTime: the broker's time at the append.",
            choices=("CreateTime", "LogAppendTime"), broker_name="log.message.timestamp.type"),
    Setting("min.cleanable.dirty.ratio", Kind.DOUBLE, _D.min_cleanable_dirty_ratio,
            "Compact when this share of the log has not been compacted yet.", 0, 1,
            broker_name="log.cleaner.min.cleanable.ratio"),
    Setting("min.compaction.lag.ms", Kind.LONG, _D.min_compaction_lag_ms,
            "A message stays uncompacted at least this long.", 0, broker_name="log.cleaner.min.compaction.lag.ms"),
    Setting("min.insync.replicas", Kind.INT, _D.min_insync_replicas,
            "acks=all is refused while fewer replicas are in sync.", 1, broker_name="min.insync.replicas"),
    Setting("retention.bytes", Kind.LONG, _D.retention_bytes,
            "Delete the oldest segments of a partition beyond this size; -1: no limit.", -1,
            broker_name="log.retention.bytes"),
    Setting("retention.ms", Kind.LONG, _D.retention_ms, "Delete segments older than this; -1: never.", -1,
            broker_name="log.retention.ms"),
    Setting("segment.bytes", Kind.INT, _D.segment_bytes, "The size at which a new segment is started.", 14, 2**31 - 1,
            broker_name="log.segment.bytes"),
    Setting("segment.index.bytes", Kind.INT, _D.segment_index_bytes,
            "The size of a segment's offset index at which a new segment is started.", 4,
            broker_name="log.index.size.max.bytes"),
    Setting("segment.jitter.ms", Kind.LONG, _D.segment_jitter_ms,
            "The maximum random reduction of segment.ms, so that partitions do not all roll at once.", 0,
            broker_name="log.roll.jitter.ms"),
    Setting("segment.ms", Kind.LONG, _D.segment_ms, "The age at which a new segment is started.", 1,
            broker_name="log.roll.ms"),
    Setting("unclean.leader.election.enable", Kind.BOOLEAN, _D.unclean_leader_election_enable,
            "Always false: a leader from outside the in-sync replicas would lose acknowledged records.",
            broker_name="unclean.leader.election.enable", only_default="it loses acknowledged records"),
    *_schema_rows("value"),
    *TOPIC_ROWS,
)  # fmt: skip

_WITHOUT_EFFECT = frozenset(row.attribute for row in TOPIC_SETTINGS.values() if not row.has_effect)


def rows_for(overrides: Mapping[str, str]) -> Mapping[str, Setting]:
    """The settings of a topic with these overrides: queue settings only if it is a queue, retired ones only if set."""
    rows = {name: row for name, row in TOPIC_SETTINGS.items() if name not in RETIRED or name in overrides}
    return {**rows, **QUEUE_SETTINGS} if any(map(_is_of_queue, overrides)) else rows


def _is_of_queue(name: str) -> bool:
    return name.startswith(PREFIX)


def topic_settings(overrides: Mapping[str, str], defaults: TopicSettings = _D) -> TopicSettings:
    """The settings in force for a topic with these overrides; `SettingsError` on an unknown or invalid one."""
    of_queue = {name: text for name, text in overrides.items() if _is_of_queue(name)}
    values = parse_all(TOPIC_SETTINGS, {name: text for name, text in overrides.items() if name not in of_queue})
    queue = queue_settings(of_queue) if of_queue else defaults.queue
    in_effect = {name: value for name, value in values.items() if name not in _WITHOUT_EFFECT}
    result = replace(defaults, queue=queue, **in_effect)  # type: ignore[arg-type]
    if result.compression_gzip_level == 0:
        raise SettingsError("compression.gzip.level=0 is not allowed: use -1, or a level from 1 to 9")
    if result.min_compaction_lag_ms > result.max_compaction_lag_ms:
        raise SettingsError("min.compaction.lag.ms is larger than max.compaction.lag.ms")
    if queue.is_queue and result.compacts:
        raise SettingsError("a queue cannot be compacted: use cleanup.policy=delete")
    if queue.is_queue and result.backlog_bound is not None:
        raise SettingsError("max.backlog.* is for topics: a queue has queue.max.backlog.*")
    if result.compacts and result.backlog_bound is not None:
        raise SettingsError("the backlog of a compacted topic has no bound: use cleanup.policy=delete")
    if queue.is_queue and result.checks_schemas:
        raise SettingsError("messages of a queue are not checked: schema validation must be off")
    return result
