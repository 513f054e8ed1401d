"""The typed broker settings, their defaults, and the table of all of them: Kafka's name where Kafka has one.

Defaults for topics are broker settings too (`log.retention.ms` for `retention.ms`): their rows are derived from those
in `topic.py`, and their values are in `BrokerSettings.topic_defaults`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headrace.config.address import parse_address
from headrace.config.broker_checks import check_consistent
from headrace.config.broker_rows import (
    HTTP,
    HTTP_OFF,
    HTTP_PORT_DISTANCE,
    HTTPS,
    LOOPBACK,
    REGISTRY_PORT_DISTANCE,
    broker_rows,
)
from headrace.config.kafka_only import BROKER_ROWS
from headrace.config.listeners import KafkaListener, parse_listener
from headrace.config.settings import Setting, Value, parse_all, table
from headrace.config.topic import TOPIC_SETTINGS, TopicSettings, topic_settings
from headrace.model.image import Endpoint
from headrace.model.users import principal_of

_MIB = 1024 * 1024
_MAX_PORT = 65_535


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The settings in force for one broker, typed. Attribute names are the setting names with `_` for `.`."""

    # Identity and listeners
    broker_id: int = 0
    broker_rack: str = ""
    data_dir: str = "headrace-data"
    kafka_listen: str = f"{LOOPBACK}:9092"
    listeners: tuple[str, ...] = ()
    inter_broker_listener: str = ""
    insecure: bool = False
    advertise: str = ""
    http_listen: str = ""
    registry_listen: str = ""
    # Security
    authorization_enable: bool = False
    super_users: str = ""
    allow_everyone_if_no_acl_found: bool = False
    tls_cert_file: str = ""
    tls_key_file: str = ""
    tls_key_password: str = field(default="", repr=False)
    tls_ca_file: str = ""
    tls_client_auth: str = "none"
    tls_min_version: str = "1.2"
    tls_principal_mapping_rules: str = "DEFAULT"
    sasl_enabled_mechanisms: tuple[str, ...] = ("SCRAM-SHA-256", "SCRAM-SHA-512")
    sasl_server_max_receive_size: int = 64 * 1024
    connections_max_reauth_ms: int = 0
    connection_failed_authentication_delay_ms: int = 100
    max_pending_connections: int = 1_000
    max_pending_connections_per_ip: int = 500
    inter_broker_user: str = ""
    inter_broker_password: str = field(default="", repr=False)
    inter_broker_sasl_mechanism: str = "SCRAM-SHA-512"
    sasl_oauthbearer_jwks_endpoint_url: str = ""
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = 3_600_000
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = 100
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = 10_000
    sasl_oauthbearer_expected_issuer: str = ""
    sasl_oauthbearer_expected_audience: tuple[str, ...] = ()
    sasl_oauthbearer_clock_skew_seconds: int = 30
    sasl_oauthbearer_scope_claim_name: str = "scope"
    sasl_oauthbearer_sub_claim_name: str = "sub"
    # The audit log
    audit_enable: str = "auto"
    audit_events: tuple[str, ...] = ("authentication", "authorization", "admin")
    audit_excluded_principals: tuple[str, ...] = ()
    audit_topics: tuple[str, ...] = ()
    audit_sample_rate: float = 1.0
    audit_file: str = ""
    audit_file_max_bytes: int = 100 * _MIB
    audit_file_max_files: int = 10
    audit_buffer_max_events: int = 10_000
    audit_full_policy: str = "drop"
    audit_topic_replication_factor: int = 3
    # The cluster
    auto_leader_rebalance_enable: bool = True
    broker_draining: bool = False
    broker_session_timeout_ms: int = 6_000
    controlled_shutdown_timeout_ms: int = 15_000
    etcd_ca_file: str = ""
    etcd_cert_file: str = ""
    etcd_endpoints: tuple[str, ...] = ()
    etcd_key_file: str = ""
    etcd_password: str = field(default="", repr=False)
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
    max_connection_creation_rate: int = 2**31 - 1
    max_connections: int = 10_000
    max_connections_per_ip: int = 2**31 - 1
    max_inflight_requests_per_connection: int = 64
    preload_enable: bool = True
    queued_max_request_bytes: int = 256 * _MIB
    request_read_timeout_ms: int = 30_000
    socket_receive_buffer_bytes: int = -1
    socket_request_max_bytes: int = 100 * _MIB
    socket_send_buffer_bytes: int = 196_608
    telemetry_max_bytes: int = _MIB
    # Client quotas
    controller_quota_window_num: int = 11
    controller_quota_window_size_seconds: int = 1
    quota_scope: str = "broker"
    quota_window_num: int = 11
    quota_window_size_seconds: int = 1
    # Links to other clusters
    link_files_dir: str = ""
    link_refresh_interval_ms: int = 5_000
    # Fetches
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
    group_coordinator_rebalance_protocols: tuple[str, ...] = ("classic", "consumer", "share", "streams")
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
    group_streams_heartbeat_interval_ms: int = 5_000
    group_streams_initial_rebalance_delay_ms: int = 3_000
    group_streams_max_heartbeat_interval_ms: int = 15_000
    group_streams_max_session_timeout_ms: int = 60_000
    group_streams_max_size: int = 2**31 - 1
    group_streams_max_standby_replicas: int = 2
    group_streams_min_heartbeat_interval_ms: int = 5_000
    group_streams_min_session_timeout_ms: int = 45_000
    group_streams_num_standby_replicas: int = 0
    group_streams_session_timeout_ms: int = 45_000
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_check_interval_ms: int = 600_000
    offsets_retention_minutes: int = 10_080
    offsets_topic_num_partitions: int = 50
    offsets_topic_segment_bytes: int = 100 * _MIB
    # Queues over HTTP
    sqs_access_keys: str = field(default="", repr=False)
    sqs_account_id: str = "000000000000"
    sqs_recreate_wait_ms: int = 60_000
    sqs_region: str = "us-east-1"
    # The dashboard
    dashboard_read_only: bool = False
    dashboard_session_idle_ms: int = 30 * 60_000
    dashboard_session_max_ms: int = 12 * 60 * 60_000
    # Encryption at rest
    encryption_cache_bytes: int = 32 * _MIB
    encryption_master_key: str = field(default="", repr=False)
    encryption_master_key_command: str = ""
    encryption_master_key_file: str = ""
    # Logs
    background_threads: int = 4
    log_cleaner_backoff_ms: int = 15_000
    log_cleaner_dedupe_buffer_size: int = 128 * _MIB
    disk_refuse_below_bytes: int = 128 * _MIB
    disk_slow_below_bytes: int = 1024 * _MIB
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
    # Metrics
    metrics_enable: bool = True
    metrics_allow_anonymous: bool = False
    metrics_topic_max: int = 10_000
    metrics_partition_max: int = 20_000
    metrics_group_max: int = 10_000
    metrics_group_partition_max: int = 50_000
    metrics_queue_max: int = 1_000
    monitor_history_series_max: int = 10_000
    # Health
    health_stuck_ms: int = 300_000
    health_transaction_open_ms: int = 900_000
    health_disk_free_percent: int = 15
    canary_enable: bool = False
    canary_interval_ms: int = 1_000
    # The process
    event_loop_stall_ms: int = 0
    http_access_log: bool = False
    log_format: str = "text"
    log_level: str = "info"
    shutdown_timeout_ms: int = 30_000

    topic_defaults: TopicSettings = field(default_factory=TopicSettings)
    """This broker's defaults for topic settings."""
    without_effect: Mapping[str, Value] = field(default_factory=dict, hash=False)
    """The Kafka settings without effect that were set, by attribute name."""
    given: frozenset[str] = frozenset()
    """The names set by a flag, the environment or the config file, as opposed to defaults."""

    @property
    def kafka_listeners(self) -> tuple[KafkaListener, ...]:
        """The Kafka listeners; the first is the one for brokers, unless `inter.broker.listener` names another."""
        texts = self.listeners or (f"plain://{self.kafka_listen}",)
        return tuple(
            parse_listener(
                text,
                client_auth=self.tls_client_auth,
                mechanisms=self.sasl_enabled_mechanisms,
                advertise=self.advertise,
            )
            for text in texts
        )

    @property
    def broker_listener(self) -> KafkaListener:
        """The listener that the other brokers use."""
        listeners = self.kafka_listeners
        return next((each for each in listeners if each.name == self.inter_broker_listener), listeners[0])

    @property
    def listen(self) -> Endpoint:
        """The address of the listener for brokers; an empty host means every address, IPv4 and IPv6."""
        return self.broker_listener.address

    @property
    def super_user_principals(self) -> frozenset[str]:
        """The principals that may do everything: `super.users`, and the user of brokers among themselves."""
        named = {each.strip() for each in self.super_users.split(";") if each.strip()}
        return frozenset(named | ({principal_of(self.inter_broker_user)} if self.inter_broker_user else set()))

    @property
    def is_audited(self) -> bool:
        """Whether security events are recorded."""
        return self.authorization_enable if self.audit_enable == "auto" else self.audit_enable == "true"

    @property
    def http_uses_tls(self) -> bool:
        return self.http_listen.startswith(HTTPS)

    @property
    def registry_uses_tls(self) -> bool:
        return self.registry_listen.startswith(HTTPS)

    @property
    def http_address(self) -> Endpoint | None:
        """The address of the HTTP listener; None if it is disabled."""
        if self.http_listen == HTTP_OFF:
            return None
        if self.http_listen:
            return parse_address(self.http_listen.removeprefix(HTTPS).removeprefix(HTTP))
        port = self.listen.port + HTTP_PORT_DISTANCE if self.listen.port else 0
        return Endpoint(LOOPBACK, port if port <= _MAX_PORT else 0)

    @property
    def registry_address(self) -> Endpoint | None:
        """The address of the registry's own listener; None if it is disabled."""
        if HTTP_OFF in (self.registry_listen, self.http_listen):
            return None
        if self.registry_listen:
            return parse_address(self.registry_listen.removeprefix(HTTPS).removeprefix(HTTP))
        port = self.listen.port + REGISTRY_PORT_DISTANCE
        return Endpoint(LOOPBACK, port) if self.listen.port and not self.http_listen and port > 0 else None

    def value(self, name: str) -> Value:
        """The value of a setting by name; `KeyError` if it is unknown."""
        row = BROKER_SETTINGS[name]
        if not row.has_effect:
            return self.without_effect.get(row.attribute, row.default)
        topic_row = TOPIC_DEFAULTS.get(name)
        if topic_row is not None:
            return getattr(self.topic_defaults, topic_row.attribute)  # type: ignore[no-any-return]
        return getattr(self, row.attribute)  # type: ignore[no-any-return]


_D = BrokerSettings()

TOPIC_DEFAULTS: Mapping[str, Setting] = {
    row.broker_name: row for row in TOPIC_SETTINGS.values() if row.broker_name is not None
}
"""Maps a broker setting to the topic setting whose default it is."""


_OWN_ROWS = tuple(broker_rows(_D))

BROKER_SETTINGS: Mapping[str, Setting] = table(
    *_OWN_ROWS, *(replace(row, name=name, broker_name=None) for name, row in TOPIC_DEFAULTS.items()), *BROKER_ROWS
)
"""Every broker setting by name, including topic defaults and Kafka settings without effect."""

_OWN = frozenset(row.attribute for row in _OWN_ROWS)
_WITHOUT_EFFECT = frozenset(row.attribute for row in BROKER_SETTINGS.values() if not row.has_effect)


def broker_settings(texts: Mapping[str, str], base: BrokerSettings = _D) -> BrokerSettings:
    """`base` with these settings changed; `SettingsError` on an unknown or invalid one, or on a conflict."""
    topic = {TOPIC_DEFAULTS[name].name: text for name, text in texts.items() if name in TOPIC_DEFAULTS}
    values = parse_all(BROKER_SETTINGS, texts)
    own = {name: value for name, value in values.items() if name in _OWN}
    unused = {name: value for name, value in values.items() if name in _WITHOUT_EFFECT}
    result = replace(
        base,
        **own,  # type: ignore[arg-type]
        topic_defaults=topic_settings(topic, base.topic_defaults),
        without_effect={**base.without_effect, **unused},
        given=base.given | texts.keys(),
    )
    check_consistent(result)
    return result
