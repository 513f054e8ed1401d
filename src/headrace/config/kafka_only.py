"""Kafka settings without effect here, because Kafka's tools, MirrorMaker and scripts set, delete and describe them.

Such a setting is accepted, validated, stored and described; its doc says why it has no effect, and setting it logs a
warning once. Where it would be unsafe to ignore a value (tiered storage, encryption), only the default is accepted.
When a setting gets an effect, its row moves to `topic.py`, `broker_rows.py` or `group.py`.

Names and defaults are those of Apache Kafka 4.1's DescribeConfigs, plus those that Kafka 3 had and 4 removed
(`RETIRED`), and the group settings that 4.2 to 4.4 added.
"""

from collections.abc import Iterator

from headrace.config.settings import Kind, Setting, Value

_LEVEL = 2
"""Brokers of level 1 refuse metadata with these names."""

_BOOLEAN, _STRING, _INT, _LONG, _DOUBLE, _LIST, _CLASS, _PASSWORD = (
    Kind.BOOLEAN, Kind.STRING, Kind.INT, Kind.LONG, Kind.DOUBLE, Kind.LIST, Kind.CLASS, Kind.PASSWORD,
)  # fmt: skip
_NO_LIMIT = 2**63 - 1
_MIB = 1024 * 1024

_ONE_LOOP = "requests are handled on one event loop; background.threads is for blocking work"
_ONE_DIRECTORY = "a broker has one data directory, and its logs are recovered by background.threads"
_REPLICATION = "a broker has one fetcher per leader, which fetches continuously"
_REASSIGNED = "the rate applies to every replica that a reassignment moves, and to no other"
_NO_TIERS = "there is no tiered storage"
_NO_PLUGINS = "Java classes cannot be loaded"
_NO_SECURITY = "security is configured with listeners, tls.* and inter.broker.*; there is no Kerberos"
_OWN_METRICS = "metrics are Headrace's own"
_OWN_STATE = "groups and transactions are stored and loaded in Headrace's own way"


def _unused(
    because: str,
    *rows: tuple[str, Kind, Value],
    minimum: float | None = None,
    dynamic: bool = True,
    only_default: str = "",
) -> Iterator[Setting]:
    """Rows without effect, all for the same reason."""
    for name, kind, default in rows:
        yield Setting(
            name,
            kind,
            default,
            f"No effect in Headrace: {because}.",
            minimum,
            dynamic=dynamic,
            level=_LEVEL,
            has_effect=False,
            only_default=only_default,
        )


def _refused(because: str, *rows: tuple[str, Kind, Value], dynamic: bool = True) -> Iterator[Setting]:
    """Rows of which only the default is accepted, all for the same reason."""
    yield from _unused(f"{because}, and only the default is accepted", *rows, dynamic=dynamic, only_default=because)


def _throttled_replicas(role: str) -> Setting:
    return Setting(
        f"{role}.replication.throttled.replicas",
        _LIST,
        (),
        f"The replicas that {role}.replication.throttled.rate applies to: * or PARTITION:BROKER. "
        f"No effect in Headrace: {_REASSIGNED}.",
        level=_LEVEL,
        has_effect=False,
        pattern=r"\*|[0-9]+:[0-9]+",
        form="* or PARTITION:BROKER",
    )


def _for_all_topics(row: Setting, broker_name: str) -> Setting:
    return Setting(
        row.name, row.kind, row.default, row.doc, row.minimum,
        broker_name=broker_name, level=row.level, has_effect=row.has_effect,
    )  # fmt: skip


_LOCAL = {
    row.name: _for_all_topics(row, f"log.{row.name}")
    for row in (
        *_unused(_NO_TIERS, ("local.retention.bytes", _LONG, -2), ("local.retention.ms", _LONG, -2), minimum=-2),
        *_unused("segments grow as they are written", ("preallocate", _BOOLEAN, False)),
    )
}

_RETIRED = (
    *_unused("there is one message format, that of Kafka 4", ("message.format.version", _STRING, "3.0-IV1")),
    *_unused("there is one message format", ("message.downconversion.enable", _BOOLEAN, True)),
    *_unused(
        "message.timestamp.before.max.ms and message.timestamp.after.max.ms replace it",
        ("message.timestamp.difference.max.ms", _LONG, _NO_LIMIT),
        minimum=0,
    ),
)
RETIRED = frozenset(row.name for row in _RETIRED)
"""Topic settings of Kafka 3 that Kafka 4 removed. They are described only on topics that set them."""

TOPIC_ROWS = (
    _throttled_replicas("follower"),
    _throttled_replicas("leader"),
    *_LOCAL.values(),
    *_unused(
        _NO_TIERS, ("remote.log.copy.disable", _BOOLEAN, False), ("remote.log.delete.on.disable", _BOOLEAN, False)
    ),
    *_refused(_NO_TIERS, ("remote.storage.enable", _BOOLEAN, False)),
    *_RETIRED,
)

_CHANGED_LIVE = (
    *_unused(
        _ONE_LOOP,
        ("num.io.threads", _INT, 8),
        ("num.network.threads", _INT, 3),
        minimum=1,
    ),
    *_unused(_ONE_DIRECTORY, ("num.recovery.threads.per.data.dir", _INT, 2), minimum=1),
    *_unused(
        "a broker has one directory, and replicas do not move between directories",
        ("replica.alter.log.dirs.io.max.bytes.per.second", _LONG, _NO_LIMIT),
        minimum=0,
    ),
    *_unused(_REPLICATION, ("num.replica.fetchers", _INT, 1), minimum=1),
    *_unused("the cleaner reads and writes whole batches", ("log.cleaner.io.buffer.size", _INT, 524_288), minimum=0),
    *_unused("log.cleaner.dedupe.buffer.size is used whole", ("log.cleaner.io.buffer.load.factor", _DOUBLE, 0.9)),
    *_unused("max.connections.per.ip applies to every address", ("max.connections.per.ip.overrides", _STRING, "")),
    *_unused("partitions are always verified", ("transaction.partition.verification.enable", _BOOLEAN, True)),
    *_unused(
        _NO_TIERS,
        ("remote.fetch.max.wait.ms", _INT, 500),
        ("remote.list.offsets.request.timeout.ms", _LONG, 30_000),
        ("remote.log.index.file.cache.total.size.bytes", _LONG, 1024 * _MIB),
        ("remote.log.manager.copier.thread.pool.size", _INT, 10),
        ("remote.log.manager.copy.max.bytes.per.second", _LONG, _NO_LIMIT),
        ("remote.log.manager.expiration.thread.pool.size", _INT, 10),
        ("remote.log.manager.fetch.max.bytes.per.second", _LONG, _NO_LIMIT),
        ("remote.log.reader.threads", _INT, 10),
        minimum=1,
    ),
    *_refused(
        _NO_PLUGINS,
        ("metric.reporters", _LIST, ("org.apache.kafka.common.metrics.JmxReporter",)),
        ("principal.builder.class", _CLASS,
         "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"),
    ),
    *_refused(
        _NO_SECURITY,
        ("sasl.jaas.config", _PASSWORD, ""),
        ("sasl.kerberos.kinit.cmd", _STRING, "/usr/bin/kinit"),
        ("sasl.kerberos.min.time.before.relogin", _LONG, 60_000),
        ("sasl.kerberos.principal.to.local.rules", _LIST, ("DEFAULT",)),
        ("sasl.kerberos.service.name", _STRING, ""),
        ("sasl.kerberos.ticket.renew.jitter", _DOUBLE, 0.05),
        ("sasl.kerberos.ticket.renew.window.factor", _DOUBLE, 0.8),
        ("sasl.login.refresh.buffer.seconds", Kind.SHORT, 300),
        ("sasl.login.refresh.min.period.seconds", Kind.SHORT, 60),
        ("sasl.login.refresh.window.factor", _DOUBLE, 0.8),
        ("sasl.login.refresh.window.jitter", _DOUBLE, 0.05),
        ("sasl.mechanism.inter.broker.protocol", _STRING, "GSSAPI"),
        ("ssl.cipher.suites", _LIST, ()),
        ("ssl.client.auth", _STRING, "none"),
        ("ssl.enabled.protocols", _LIST, ("TLSv1.2", "TLSv1.3")),
        ("ssl.endpoint.identification.algorithm", _STRING, "https"),
        ("ssl.engine.factory.class", _CLASS, ""),
        ("ssl.key.password", _PASSWORD, ""),
        ("ssl.keymanager.algorithm", _STRING, "SunX509"),
        ("ssl.keystore.certificate.chain", _PASSWORD, ""),
        ("ssl.keystore.key", _PASSWORD, ""),
        ("ssl.keystore.location", _STRING, ""),
        ("ssl.keystore.password", _PASSWORD, ""),
        ("ssl.keystore.type", _STRING, "JKS"),
        ("ssl.protocol", _STRING, "TLSv1.3"),
        ("ssl.provider", _STRING, ""),
        ("ssl.secure.random.implementation", _STRING, ""),
        ("ssl.trustmanager.algorithm", _STRING, "PKIX"),
        ("ssl.truststore.certificates", _PASSWORD, ""),
        ("ssl.truststore.location", _STRING, ""),
        ("ssl.truststore.password", _PASSWORD, ""),
        ("ssl.truststore.type", _STRING, "JKS"),
    ),
)  # fmt: skip

_NEEDS_RESTART = (
    *_unused(_ONE_LOOP, ("queued.max.requests", _INT, 500), ("group.coordinator.threads", _INT, 4), minimum=1,
             dynamic=False),
    *_unused(
        "the operating system sizes its buffers itself",
        ("socket.listen.backlog.size", _INT, 50),
        ("replica.socket.receive.buffer.bytes", _INT, 65_536),
        minimum=-1,
        dynamic=False,
    ),
    *_unused(
        _REPLICATION,
        ("replica.fetch.backoff.ms", _INT, 1_000),
        ("replica.fetch.min.bytes", _INT, 1),
        ("replica.high.watermark.checkpoint.interval.ms", _LONG, 5_000),
        ("replica.socket.timeout.ms", _INT, 30_000),
        minimum=0,
        dynamic=False,
    ),
    *_unused(
        "broker liveness is a lease in etcd",
        ("broker.heartbeat.interval.ms", _INT, 2_000),
        ("controller.socket.timeout.ms", _INT, 30_000),
        ("initial.broker.registration.timeout.ms", _INT, 60_000),
        ("request.timeout.ms", _INT, 30_000),
        minimum=0,
        dynamic=False,
    ),
    *_unused(
        "there is no purgatory for delayed requests",
        ("delete.records.purgatory.purge.interval.requests", _INT, 1),
        ("fetch.purgatory.purge.interval.requests", _INT, 1_000),
        ("producer.purgatory.purge.interval.requests", _INT, 1_000),
        dynamic=False,
    ),
    *_unused(
        _OWN_STATE,
        ("group.coordinator.append.linger.ms", _INT, 5),
        ("offsets.commit.timeout.ms", _INT, 5_000),
        ("offsets.load.buffer.size", _INT, 5 * _MIB),
        ("offsets.topic.compression.codec", _INT, 0),
        ("transaction.abort.timed.out.transaction.cleanup.interval.ms", _INT, 10_000),
        ("transaction.state.log.load.buffer.size", _INT, 5 * _MIB),
        minimum=-1,
        dynamic=False,
    ),
    *_unused(
        "logs are flushed as flush.policy says",
        ("log.flush.scheduler.interval.ms", _LONG, _NO_LIMIT),
        ("log.flush.start.offset.checkpoint.interval.ms", _INT, 60_000),
        minimum=0,
        dynamic=False,
    ),
    *_unused(
        "rates are not measured in fixed windows",
        ("alter.log.dirs.replication.quota.window.num", _INT, 11),
        ("alter.log.dirs.replication.quota.window.size.seconds", _INT, 1),
        ("replication.quota.window.num", _INT, 11),
        ("replication.quota.window.size.seconds", _INT, 1),
        minimum=1,
        dynamic=False,
    ),
    *_unused(
        _OWN_METRICS,
        ("kafka.metrics.polling.interval.secs", _INT, 10),
        ("metrics.num.samples", _INT, 2),
        ("metrics.sample.window.ms", _LONG, 30_000),
        minimum=1,
        dynamic=False,
    ),
    *_unused(_OWN_METRICS, ("metrics.recording.level", _STRING, "INFO"), dynamic=False),
    *_unused("a broker always transfers leadership when it stops", ("controlled.shutdown.enable", _BOOLEAN, True),
             dynamic=False),
    *_unused(
        "only the client limits the size of a response", ("max.request.partition.size.limit", _INT, 2_000),
        minimum=1, dynamic=False,
    ),
    *_refused("topics with cleanup.policy=compact are always compacted", ("log.cleaner.enable", _BOOLEAN, True),
              dynamic=False),
    *_refused(_NO_TIERS, ("remote.log.storage.system.enable", _BOOLEAN, False), dynamic=False),
    *_refused(
        _NO_PLUGINS,
        ("alter.config.policy.class.name", _CLASS, ""),
        ("client.quota.callback.class", _CLASS, ""),
        ("create.topic.policy.class.name", _CLASS, ""),
        ("kafka.metrics.reporters", _LIST, ()),
        dynamic=False,
    ),
    *_refused(
        "access control is enabled with authorization.enable",
        ("authorizer.class.name", _STRING, ""),
        dynamic=False,
    ),
    *_refused(_NO_SECURITY, ("security.inter.broker.protocol", _STRING, "PLAINTEXT"), dynamic=False),
)  # fmt: skip

BROKER_ROWS = (*_CHANGED_LIVE, *_NEEDS_RESTART)

GROUP_ROWS = (
    *_unused(
        "assignments are computed as soon as they are needed",
        ("consumer.assignment.interval.ms", _INT, 1_000),
        ("share.assignment.interval.ms", _INT, 1_000),
        ("streams.assignment.interval.ms", _INT, 1_000),
        minimum=0,
    ),
)
