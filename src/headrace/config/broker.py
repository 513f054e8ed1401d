"""Every broker setting: Kafka's name where Kafka has one, a plain one where it does not.

Defaults for topics are broker settings too (`log.retention.ms` for `retention.ms`): their rows are derived from those
in `topic.py`, and their values are kept together in `BrokerSettings.topic_defaults`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headrace.config.address import is_loopback, parse_address
from headrace.config.settings import Kind, Setting, Value, parse_all, table
from headrace.config.topic import TOPIC_SETTINGS, TopicSettings, topic_settings
from headrace.model.errors import SettingsError
from headrace.model.features import FIRST_LEVEL
from headrace.model.image import Endpoint

_MIB = 1024 * 1024
_MAX_PORT = 65_535

HTTP_OFF = "off"
HTTP_PORT_DISTANCE = 232
"""From the port for Kafka clients to the one for HTTP, where none is given: 9092 and 9324."""
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The settings in force for one broker, typed. Attribute names are the setting names with `_` for `.`."""

    # Who and where
    broker_id: int = 0
    broker_rack: str = ""
    data_dir: str = "headrace-data"
    kafka_listen: str = ":9092"
    advertise: str = ""
    http_listen: str = ""
    # The cluster
    auto_leader_rebalance_enable: bool = True
    broker_draining: bool = False
    broker_session_timeout_ms: int = 6_000
    controlled_shutdown_timeout_ms: int = 15_000
    etcd_ca_file: str = ""
    etcd_cert_file: str = ""
    etcd_endpoints: tuple[str, ...] = ()
    etcd_key_file: str = ""
    etcd_password: str = ""
    etcd_prefix: str = "/headrace"
    etcd_user: str = ""
    follower_replication_throttled_rate: int = 2**63 - 1
    leader_imbalance_check_interval_seconds: int = 300
    leader_replication_throttled_rate: int = 2**63 - 1
    offsets_topic_replication_factor: int = 3
    replica_fetch_max_bytes: int = _MIB
    replica_fetch_response_max_bytes: int = 10 * _MIB
    replica_fetch_wait_max_ms: int = 500
    replica_lag_time_max_ms: int = 10_000
    transaction_state_log_min_isr: int = 2
    transaction_state_log_replication_factor: int = 3
    # Topics
    auto_create_topics_enable: bool = True
    default_replication_factor: int = 1
    delete_topic_enable: bool = True
    max_partitions_per_broker: int = 10_000
    max_partitions_per_topic: int = 2_000
    num_partitions: int = 4
    # Connections and requests
    connections_max_idle_ms: int = 600_000
    max_connections: int = 10_000
    max_connections_per_ip: int = 2**31 - 1
    max_inflight_requests_per_connection: int = 64
    preload_enable: bool = True
    queued_max_request_bytes: int = 256 * _MIB
    request_read_timeout_ms: int = 30_000
    socket_request_max_bytes: int = 100 * _MIB
    # Reading
    fetch_max_bytes: int = 55 * _MIB
    max_incremental_fetch_session_cache_slots: int = 1_000
    # Groups
    errors_deadletterqueue_auto_create_topics_enable: bool = False
    errors_deadletterqueue_topic_name_prefix: str = "dlq."
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_max_heartbeat_interval_ms: int = 15_000
    group_consumer_max_session_timeout_ms: int = 60_000
    group_consumer_max_size: int = 2**31 - 1
    group_consumer_migration_policy: str = "bidirectional"
    group_consumer_min_heartbeat_interval_ms: int = 5_000
    group_consumer_min_session_timeout_ms: int = 45_000
    group_consumer_session_timeout_ms: int = 45_000
    group_coordinator_rebalance_protocols: tuple[str, ...] = ("classic", "consumer", "share")
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 2**31 - 1
    group_min_session_timeout_ms: int = 6_000
    group_share_delivery_count_limit: int = 5
    group_share_heartbeat_interval_ms: int = 5_000
    group_share_max_delivery_count_limit: int = 10
    group_share_max_heartbeat_interval_ms: int = 15_000
    group_share_max_partition_max_record_locks: int = 4_000
    group_share_max_record_lock_duration_ms: int = 60_000
    group_share_max_session_timeout_ms: int = 60_000
    group_share_max_share_sessions: int = 2_000
    group_share_max_size: int = 200
    group_share_min_delivery_count_limit: int = 2
    group_share_min_heartbeat_interval_ms: int = 5_000
    group_share_min_partition_max_record_locks: int = 100
    group_share_min_record_lock_duration_ms: int = 15_000
    group_share_min_session_timeout_ms: int = 45_000
    group_share_partition_max_record_locks: int = 2_000
    group_share_record_lock_duration_ms: int = 30_000
    group_share_session_timeout_ms: int = 45_000
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_check_interval_ms: int = 600_000
    offsets_retention_minutes: int = 10_080
    offsets_topic_num_partitions: int = 50
    offsets_topic_segment_bytes: int = 100 * _MIB
    # Queues over HTTP
    sqs_access_keys: str = ""
    sqs_account_id: str = "000000000000"
    sqs_recreate_wait_ms: int = 60_000
    sqs_region: str = "us-east-1"
    # Logs
    background_threads: int = 4
    log_cleaner_backoff_ms: int = 15_000
    log_cleaner_dedupe_buffer_size: int = 128 * _MIB
    log_cleaner_io_max_bytes_per_second: float = float(2**63)
    log_cleaner_threads: int = 1
    log_flush_offset_checkpoint_interval_ms: int = 60_000
    log_retention_check_interval_ms: int = 300_000
    producer_id_expiration_ms: int = 86_400_000
    # Transactions
    transaction_max_timeout_ms: int = 900_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
    transaction_state_log_num_partitions: int = 50
    transaction_state_log_segment_bytes: int = 100 * _MIB
    transaction_two_phase_commit_enable: bool = True
    transactional_id_expiration_ms: int = 604_800_000
    # The process
    log_level: str = "info"
    shutdown_timeout_ms: int = 30_000

    topic_defaults: TopicSettings = field(default_factory=TopicSettings)
    """What holds on this broker for a topic that does not say otherwise."""
    given: frozenset[str] = frozenset()
    """The names that were set by a flag, the environment or the config file, as opposed to defaults."""

    @property
    def listen(self) -> Endpoint:
        """Where the Kafka door listens; an empty host stands for every address, IPv4 and IPv6."""
        return parse_address(self.kafka_listen)

    @property
    def http_address(self) -> Endpoint | None:
        """Where the doors over HTTP listen; None if nowhere."""
        if self.http_listen == HTTP_OFF:
            return None
        if self.http_listen:
            return parse_address(self.http_listen)
        port = self.listen.port + HTTP_PORT_DISTANCE if self.listen.port else 0
        return Endpoint(LOOPBACK, port if port <= _MAX_PORT else 0)

    def value(self, name: str) -> Value:
        """The value of the setting called `name`; `KeyError` if there is none."""
        topic_row = TOPIC_DEFAULTS.get(name)
        if topic_row is not None:
            return getattr(self.topic_defaults, topic_row.attribute)  # type: ignore[no-any-return]
        return getattr(self, BROKER_SETTINGS[name].attribute)  # type: ignore[no-any-return]


_D = BrokerSettings()

TOPIC_DEFAULTS: Mapping[str, Setting] = {
    row.broker_name: row for row in TOPIC_SETTINGS.values() if row.broker_name is not None
}
"""Broker setting to the row of the topic setting whose default it is."""


def _row(name: str, kind: Kind, doc: str, minimum: float | None = None, maximum: float | None = None,
         choices: tuple[str, ...] = (), *, dynamic: bool = False, level: int = FIRST_LEVEL) -> Setting:  # fmt: skip
    default = getattr(_D, name.replace(".", "_"))
    return Setting(name, kind, default, doc, minimum, maximum, choices, dynamic, level=level)


_OWN_ROWS = (
    _row("broker.id", Kind.INT, "The number of this broker, unique in its cluster.", 0),
    _row("broker.rack", Kind.STRING, "The rack or machine this broker is on; replicas are spread over racks."),
    _row("data.dir", Kind.STRING, "The directory that holds everything this broker stores."),
    _row("kafka.listen", Kind.STRING,
         "HOST:PORT where Kafka clients connect. Without a host: every address of this machine, IPv4 and IPv6. "
         "Port 0 takes a free one."),
    _row("advertise", Kind.STRING,
         "HOST[:PORT] that clients are told to connect to. Empty: the address through which each client came, which is "
         "right on loopback and on a LAN; set it behind NAT, a proxy or a container's port mapping."),
    _row("http.listen", Kind.STRING,
         f"HOST:PORT where queues are served over HTTP: the SQS API, and what the SDK uses. Empty: on {LOOPBACK} only, "
         f"{HTTP_PORT_DISTANCE} above the port of kafka.listen, which is 9324, or a free one if that is taken. "
         f"{HTTP_OFF}: nowhere. Other addresses than loopback need sqs.access.keys."),
    _row("auto.leader.rebalance.enable", Kind.BOOLEAN,
         "Whether leadership goes back by itself to the first replica of a partition once that is in sync again.",
         dynamic=True),
    _row("broker.draining", Kind.BOOLEAN,
         "Move every replica off this broker, and put no new one on it. When it is stopped after that, it has left the "
         "cluster. Set on the running cluster, for one broker.", dynamic=True),
    _row("broker.session.timeout.ms", Kind.INT,
         "How long the cluster waits for a sign of life before it gives what this broker leads to others. 3000 lets "
         "producers go on within 5 s, on a machine that is never busy for so long.", 2_000),
    _row("controlled.shutdown.timeout.ms", Kind.INT,
         "On SIGTERM, how long a broker of a cluster waits for others to take over what it leads.", 0),
    _row("etcd.ca.file", Kind.STRING, "The authority behind the certificate of etcd. With it, TLS is used."),
    _row("etcd.cert.file", Kind.STRING, "This broker's own certificate for etcd, if that asks for one."),
    _row("etcd.endpoints", Kind.LIST,
         "HOST:PORT of each etcd member, with https:// before it for TLS. With it this broker is one of a cluster; "
         "without it, it is alone."),
    _row("etcd.key.file", Kind.STRING, "The key of etcd.cert.file."),
    _row("etcd.password", Kind.PASSWORD, "The password of etcd.user."),
    _row("etcd.prefix", Kind.STRING, "What all keys of this cluster begin with, so that one etcd can serve several."),
    _row("etcd.user", Kind.STRING, "The user that etcd knows this broker as."),
    _row("follower.replication.throttled.rate", Kind.LONG,
         "Bytes per second that this broker fetches for replicas that a reassignment has given it.", 1, dynamic=True),
    _row("leader.imbalance.check.interval.seconds", Kind.LONG,
         "How often leaders that are not the first replica of their partition are looked for.", 1),
    _row("leader.replication.throttled.rate", Kind.LONG,
         "Bytes per second that this broker sends to replicas that a reassignment brings in.", 1, dynamic=True),
    _row("offsets.topic.replication.factor", Kind.INT,
         "Replicas of __consumer_offsets; fewer while the cluster has fewer brokers.", 1),
    _row("replica.fetch.max.bytes", Kind.INT, "The most a replica asks for from one partition at a time.", 1024),
    _row("replica.fetch.response.max.bytes", Kind.INT,
         "The most a replica asks for from one leader at a time, unless a single batch is larger.", 1024),
    _row("replica.fetch.wait.max.ms", Kind.INT, "How long a leader lets a replica wait when there is nothing new.", 1),
    _row("replica.lag.time.max.ms", Kind.LONG,
         "A replica that has not been level with its leader for this long is out of sync.", 1),
    _row("transaction.state.log.min.isr", Kind.INT,
         "min.insync.replicas of __transaction_state when it is made; fewer if the cluster has fewer brokers.", 1),
    _row("transaction.state.log.replication.factor", Kind.INT,
         "Replicas of __transaction_state; fewer while the cluster has fewer brokers.", 1),
    _row("auto.create.topics.enable", Kind.BOOLEAN, "Create a topic when a client first asks for it.", dynamic=True),
    _row("default.replication.factor", Kind.INT,
         "Replicas of a topic whose creator does not say. Unless it is set: three, or as many as there are brokers.",
         1, 2**15 - 1, dynamic=True),
    _row("delete.topic.enable", Kind.BOOLEAN, "Whether topics may be deleted.", dynamic=True),
    _row("max.partitions.per.broker", Kind.INT, "Creating more partitions than this on one broker is refused.", 1,
         dynamic=True),
    _row("max.partitions.per.topic", Kind.INT, "Creating a topic with more partitions than this is refused.", 1,
         dynamic=True),
    _row("num.partitions", Kind.INT, "Partitions of a topic whose creator does not say.", 1, dynamic=True),
    _row("connections.max.idle.ms", Kind.LONG, "Close a connection on which nothing happened for this long.", 1),
    _row("max.connections", Kind.INT, "Refuse connections beyond this number.", 1, dynamic=True),
    _row("max.connections.per.ip", Kind.INT, "Refuse connections beyond this number from one address.", 1,
         dynamic=True),
    _row("max.inflight.requests.per.connection", Kind.INT,
         "Stop reading a connection while this many of its requests wait for an answer.", 1),
    _row("preload.enable", Kind.BOOLEAN,
         "Whether to get every version of every request ready in the background after the start, for about a second of "
         "a processor. Otherwise each kind of request keeps all others waiting for some milliseconds when it first "
         "comes."),
    _row("queued.max.request.bytes", Kind.LONG,
         "Memory for requests of all connections together; past it, reading pauses. "
         "At least socket.request.max.bytes.", 1),
    _row("request.read.timeout.ms", Kind.INT,
         "Close a connection that began a request and did not finish sending it in this time.", 1),
    _row("socket.request.max.bytes", Kind.INT, "The largest request accepted.", 1024),
    _row("fetch.max.bytes", Kind.INT, "The most a fetch returns, unless a single batch is larger.", 1024, dynamic=True),
    _row("max.incremental.fetch.session.cache.slots", Kind.INT,
         "Fetch sessions kept for clients that fetch incrementally.", 0),
    _row("errors.deadletterqueue.auto.create.topics.enable", Kind.BOOLEAN,
         "Whether a dead-letter topic that a share group names is created when it is not there (KIP-1191).",
         dynamic=True, level=2),
    _row("errors.deadletterqueue.topic.name.prefix", Kind.STRING,
         "What the names of topics for dead letters of share groups begin with; empty: anything.",
         dynamic=True, level=2),
    _row("group.consumer.assignors", Kind.LIST,
         "How consumer groups (KIP-848) may be assigned; the first is for members that ask for none.",
         choices=("uniform", "range")),
    _row("group.consumer.heartbeat.interval.ms", Kind.INT, "How often members of consumer groups heartbeat.", 1),
    _row("group.consumer.max.heartbeat.interval.ms", Kind.INT, "The longest interval that may be set.", 1),
    _row("group.consumer.max.session.timeout.ms", Kind.INT, "The longest timeout that may be set.", 1),
    _row("group.consumer.max.size", Kind.INT, "Members of a consumer group beyond this number are refused.", 1),
    _row("group.consumer.migration.policy", Kind.STRING,
         "Whether a group with members changes its protocol. upgrade: a classic group becomes a consumer group when a "
         "member of that protocol joins it. downgrade: a consumer group becomes a classic one when only members of the "
         "classic protocol are left in it.", choices=("bidirectional", "upgrade", "downgrade", "disabled")),
    _row("group.consumer.min.heartbeat.interval.ms", Kind.INT, "The shortest interval that may be set.", 1),
    _row("group.consumer.min.session.timeout.ms", Kind.INT, "The shortest timeout that may be set.", 1),
    _row("group.consumer.session.timeout.ms", Kind.INT,
         "A member of a consumer group that is silent for this long is removed.", 1),
    _row("group.coordinator.rebalance.protocols", Kind.LIST,
         "The protocols of groups that are served. Classic is always served; without consumer, ConsumerGroupHeartbeat "
         "is refused, without share, ShareGroupHeartbeat is.", choices=("classic", "consumer", "share")),
    _row("group.initial.rebalance.delay.ms", Kind.INT,
         "How long an empty group waits for more members before its first rebalance.", 0),
    _row("group.max.session.timeout.ms", Kind.INT, "The longest session timeout a member may ask for.", 1),
    _row("group.max.size", Kind.INT, "Members of a classic group beyond this number are refused.", 1),
    _row("group.min.session.timeout.ms", Kind.INT, "The shortest session timeout a member may ask for.", 1),
    _row("group.share.delivery.count.limit", Kind.INT,
         "A record that was given out this often to members of a share group, and never accepted, is not given out "
         "again.", 2, 10),
    _row("group.share.heartbeat.interval.ms", Kind.INT, "How often members of share groups heartbeat.", 1),
    _row("group.share.max.delivery.count.limit", Kind.INT,
         "The largest limit that may be set, here or for a group.", 5, 25),
    _row("group.share.max.heartbeat.interval.ms", Kind.INT, "The longest interval that may be set.", 1),
    _row("group.share.max.partition.max.record.locks", Kind.INT,
         "The largest limit that may be set, here or for a group.", 2_000, 20_000),
    _row("group.share.max.record.lock.duration.ms", Kind.INT, "The longest duration that may be set.", 1_000),
    _row("group.share.max.session.timeout.ms", Kind.INT, "The longest timeout that may be set.", 1),
    _row("group.share.max.share.sessions", Kind.INT,
         "Members of share groups that may fetch from this broker at a time.", 1),
    _row("group.share.max.size", Kind.INT, "Members of a share group beyond this number are refused.", 1, 1_000),
    _row("group.share.min.delivery.count.limit", Kind.INT,
         "The smallest limit that may be set, here or for a group.", 2, 5),
    _row("group.share.min.heartbeat.interval.ms", Kind.INT, "The shortest interval that may be set.", 1),
    _row("group.share.min.partition.max.record.locks", Kind.INT,
         "The smallest limit that may be set, here or for a group.", 100, 2_000),
    _row("group.share.min.record.lock.duration.ms", Kind.INT, "The shortest duration that may be set.", 1_000),
    _row("group.share.min.session.timeout.ms", Kind.INT, "The shortest timeout that may be set.", 1),
    _row("group.share.partition.max.record.locks", Kind.INT,
         "Records of one partition that members of one share group may have at a time.", 100, 10_000),
    _row("group.share.record.lock.duration.ms", Kind.INT,
         "How long a record belongs to the member of a share group that it was given to.", 1_000, 3_600_000),
    _row("group.share.session.timeout.ms", Kind.INT,
         "A member of a share group that is silent for this long is removed.", 1),
    _row("offset.metadata.max.bytes", Kind.INT, "The longest metadata that may be committed with an offset.", 0),
    _row("offsets.retention.check.interval.ms", Kind.LONG, "How often expired offsets are looked for.", 1),
    _row("offsets.retention.minutes", Kind.INT,
         "Forget the offsets of a group that has been without members for this long, and of topics that a group with "
         "members has stopped reading for this long.", 1),
    _row("offsets.topic.num.partitions", Kind.INT,
         "Partitions of __consumer_offsets when it is made, which is when the first group is.", 1),
    _row("offsets.topic.segment.bytes", Kind.INT, "Segment size of __consumer_offsets when it is made.", 1024 * 1024),
    _row("sqs.access.keys", Kind.PASSWORD,
         "Who may use queues over HTTP: ID:SECRET, several by comma. Requests have to be signed (SigV4) with one of "
         "them. Empty: anybody who can reach http.listen, with any credentials."),
    _row("sqs.account.id", Kind.STRING, "The account, 12 digits, in the URLs and ARNs of queues."),
    _row("sqs.recreate.wait.ms", Kind.LONG,
         "For how long after a queue was deleted the SQS API refuses to create one of the same name, as AWS does; 0: "
         "it never does.", 0, 3_600_000, dynamic=True),
    _row("sqs.region", Kind.STRING, "The region in the ARNs of queues."),
    _row("background.threads", Kind.INT, "Threads for flushing, cold reads and other work that may block.", 1, 256),
    _row("log.cleaner.backoff.ms", Kind.LONG, "How long the cleaner rests when there is nothing to compact.", 1),
    _row("log.cleaner.dedupe.buffer.size", Kind.LONG, "Memory for the keys of one compaction.", _MIB),
    _row("log.cleaner.io.max.bytes.per.second", Kind.DOUBLE, "The cleaner reads and writes at most this much.", 1),
    _row("log.cleaner.threads", Kind.INT, "Compactions that run at the same time.", 1, 64),
    _row("log.flush.offset.checkpoint.interval.ms", Kind.INT,
         "How often the point from which recovery starts is written down.", 1),
    _row("log.retention.check.interval.ms", Kind.LONG, "How often retention looks for segments to delete.", 1),
    _row("producer.id.expiration.ms", Kind.INT,
         "Forget the sequence numbers of an idempotent producer that was silent for this long.", 1),
    _row("transaction.max.timeout.ms", Kind.INT,
         "The longest transaction timeout that a producer may ask for. A transaction open for longer than its timeout "
         "is aborted.", 1),
    _row("transaction.remove.expired.transaction.cleanup.interval.ms", Kind.INT,
         "How often transactional ids that nobody uses any more are looked for.", 1),
    _row("transaction.state.log.num.partitions", Kind.INT,
         "Partitions of __transaction_state when it is created; transactional ids are spread over them.", 1),
    _row("transaction.state.log.segment.bytes", Kind.INT,
         "Segment size of __transaction_state: small enough to be compacted soon and loaded fast.", 1024),
    _row("transaction.two.phase.commit.enable", Kind.BOOLEAN,
         "Whether a producer may ask for transactions without a time limit, to be ended when another system has "
         "decided. Pipelines that write exactly once do."),
    _row("transactional.id.expiration.ms", Kind.INT,
         "Forget a transactional id that was not used for this long.", 1),
    _row("log.level", Kind.STRING, "How much is logged.", choices=("debug", "info", "warning", "error")),
    _row("shutdown.timeout.ms", Kind.INT,
         "On SIGTERM, requests under way get this long to finish. Everything acknowledged is on disk either way.", 0),
)  # fmt: skip

BROKER_SETTINGS: Mapping[str, Setting] = table(
    *_OWN_ROWS, *(replace(row, name=name, broker_name=None) for name, row in TOPIC_DEFAULTS.items())
)
"""Every broker setting by name, those for the defaults of topics included."""


def broker_settings(texts: Mapping[str, str], base: BrokerSettings = _D) -> BrokerSettings:
    """`base` with these settings changed; `SettingsError` on an unknown or invalid one, or on two that disagree."""
    own = {name: text for name, text in texts.items() if name not in TOPIC_DEFAULTS}
    topic = {TOPIC_DEFAULTS[name].name: text for name, text in texts.items() if name in TOPIC_DEFAULTS}
    parse_all(BROKER_SETTINGS, texts)
    result = replace(
        base,
        **parse_all(BROKER_SETTINGS, own),  # type: ignore[arg-type]
        topic_defaults=topic_settings(topic, base.topic_defaults),
        given=base.given | texts.keys(),
    )
    _check_together(result)
    return result


def _check_together(settings: BrokerSettings) -> None:
    _check_address("kafka.listen", settings.kafka_listen, default_port=None)
    if settings.advertise and not _check_address("advertise", settings.advertise, default_port=0).host:
        raise SettingsError(f"advertise={settings.advertise} has no host: write HOST or HOST:PORT")
    _check_http(settings)
    if not settings.data_dir:
        raise SettingsError("data.dir is empty: name a directory")
    if settings.group_min_session_timeout_ms > settings.group_max_session_timeout_ms:
        raise SettingsError(
            f"group.min.session.timeout.ms={settings.group_min_session_timeout_ms} is larger than "
            f"group.max.session.timeout.ms={settings.group_max_session_timeout_ms}"
        )
    _check_groups(settings, "consumer", ("heartbeat.interval.ms", "session.timeout.ms"))
    _check_groups(
        settings,
        "share",
        (
            "heartbeat.interval.ms",
            "session.timeout.ms",
            "record.lock.duration.ms",
            "delivery.count.limit",
            "partition.max.record.locks",
        ),
    )
    if not settings.group_consumer_assignors:
        raise SettingsError("group.consumer.assignors is empty: name uniform or range")
    if settings.queued_max_request_bytes < settings.socket_request_max_bytes:
        raise SettingsError(
            f"queued.max.request.bytes={settings.queued_max_request_bytes} is smaller than socket.request.max.bytes="
            f"{settings.socket_request_max_bytes}: a request of the allowed size would wait for ever"
        )


def _check_groups(settings: BrokerSettings, kind: str, names: tuple[str, ...]) -> None:
    for name in names:
        low, value, high = (settings.value(f"group.{kind}.{part}{name}") for part in ("min.", "", "max."))
        assert isinstance(low, int)
        assert isinstance(value, int)
        assert isinstance(high, int)
        if not low <= value <= high:
            raise SettingsError(
                f"group.{kind}.{name}={value} is not from group.{kind}.min.{name}={low} "
                f"to group.{kind}.max.{name}={high}"
            )
    interval_ms, timeout_ms = (settings.value(f"group.{kind}.{name}") for name in names[:2])
    if interval_ms >= timeout_ms:  # type: ignore[operator]
        raise SettingsError(
            f"group.{kind}.heartbeat.interval.ms={interval_ms} must be below "
            f"group.{kind}.session.timeout.ms={timeout_ms}"
        )


def _check_http(settings: BrokerSettings) -> None:
    if settings.http_listen not in ("", HTTP_OFF):
        host = _check_address("http.listen", settings.http_listen, default_port=None).host
        if not is_loopback(host) and not settings.sqs_access_keys:
            raise SettingsError(
                f"http.listen={settings.http_listen} can be reached from other machines, and anybody could use the "
                "queues: set sqs.access.keys=ID:SECRET, or listen on 127.0.0.1"
            )
    access_keys(settings.sqs_access_keys)
    if re.fullmatch("[0-9]{12}", settings.sqs_account_id) is None:
        raise SettingsError(f"sqs.account.id={settings.sqs_account_id} is no account: write 12 digits")
    if re.fullmatch("[a-z0-9-]+", settings.sqs_region) is None:
        raise SettingsError(f"sqs.region={settings.sqs_region} is no region: write one such as us-east-1")


def access_keys(text: str) -> dict[str, str]:
    """The secrets in `sqs.access.keys` by their ids. A `SettingsError` does not tell any secret."""
    keys: dict[str, str] = {}
    for number, pair in enumerate((pair.strip() for pair in text.split(",") if pair.strip()), 1):
        key_id, colon, secret = pair.partition(":")
        if not colon or not key_id or not secret or "/" in key_id:
            raise SettingsError(f"sqs.access.keys: number {number} is not ID:SECRET")
        if key_id in keys:
            raise SettingsError(f"sqs.access.keys: {key_id} is there twice")
        keys[key_id] = secret
    return keys


def _check_address(name: str, text: str, *, default_port: int | None) -> Endpoint:
    try:
        return parse_address(text, default_port=default_port)
    except SettingsError as error:
        raise SettingsError(f"{name}={text}: {error}") from None
