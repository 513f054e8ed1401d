"""The broker's own settings by area: name, type, description and bounds. The defaults are `BrokerSettings`."""

from collections.abc import Iterator
from typing import NamedTuple

from headrace.config.settings import Kind, Setting
from headrace.model.features import FIRST_LEVEL

_MIB = 1024 * 1024

HTTP_OFF = "off"
HTTP_PORT_DISTANCE = 232
"""From the port for Kafka clients to the one for HTTP, where none is given: 9092 and 9324."""
LOOPBACK = "127.0.0.1"


class SettingRow(NamedTuple):
    """A `Setting` without its default."""

    name: str
    kind: Kind
    doc: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    dynamic: bool = False
    level: int = FIRST_LEVEL


_row = SettingRow


_IDENTITY = (
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
)  # fmt: skip
"""Identity and listeners."""

_CLUSTER = (
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
)  # fmt: skip
"""Cluster and replication."""

_TOPICS = (
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
)  # fmt: skip
"""Topics."""

_CONNECTIONS = (
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
)  # fmt: skip
"""Connections, requests and fetches."""

_GROUPS = (
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
         "is refused, without share, ShareGroupHeartbeat is, without streams, StreamsGroupHeartbeat.",
         choices=("classic", "consumer", "share", "streams")),
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
    _row("group.streams.heartbeat.interval.ms", Kind.INT, "How often members of streams groups heartbeat.", 1),
    _row("group.streams.initial.rebalance.delay.ms", Kind.INT,
         "How long an empty streams group waits for more members before its tasks are assigned.", 0),
    _row("group.streams.max.heartbeat.interval.ms", Kind.INT, "The longest interval that may be set.", 1),
    _row("group.streams.max.session.timeout.ms", Kind.INT, "The longest timeout that may be set.", 1),
    _row("group.streams.max.size", Kind.INT, "Members of a streams group beyond this number are refused.", 1),
    _row("group.streams.max.standby.replicas", Kind.INT, "The most standbys that may be set.", 0),
    _row("group.streams.min.heartbeat.interval.ms", Kind.INT, "The shortest interval that may be set.", 1),
    _row("group.streams.min.session.timeout.ms", Kind.INT, "The shortest timeout that may be set.", 1),
    _row("group.streams.num.standby.replicas", Kind.INT,
         "In how many other processes each task with state has a standby: a copy of its state that it goes on from "
         "when its own process is gone.", 0),
    _row("group.streams.session.timeout.ms", Kind.INT,
         "A member of a streams group that is silent for this long is removed.", 1),
    _row("offset.metadata.max.bytes", Kind.INT, "The longest metadata that may be committed with an offset.", 0),
    _row("offsets.retention.check.interval.ms", Kind.LONG, "How often expired offsets are looked for.", 1),
    _row("offsets.retention.minutes", Kind.INT,
         "Forget the offsets of a group that has been without members for this long, and of topics that a group with "
         "members has stopped reading for this long.", 1),
    _row("offsets.topic.num.partitions", Kind.INT,
         "Partitions of __consumer_offsets when it is made, which is when the first group is.", 1),
    _row("offsets.topic.segment.bytes", Kind.INT, "Segment size of __consumer_offsets when it is made.", 1024 * 1024),
)  # fmt: skip
"""Consumer, share and streams groups, and their offsets."""

_SQS = (
    _row("sqs.access.keys", Kind.PASSWORD,
         "Who may use queues over HTTP: ID:SECRET, several by comma. Requests have to be signed (SigV4) with one of "
         "them. Empty: anybody who can reach http.listen, with any credentials."),
    _row("sqs.account.id", Kind.STRING, "The account, 12 digits, in the URLs and ARNs of queues."),
    _row("sqs.recreate.wait.ms", Kind.LONG,
         "For how long after a queue was deleted the SQS API refuses to create one of the same name, as AWS does; 0: "
         "it never does.", 0, 3_600_000, dynamic=True),
    _row("sqs.region", Kind.STRING, "The region in the ARNs of queues."),
)  # fmt: skip
"""The SQS API."""

_LOGS = (
    _row("background.threads", Kind.INT, "Threads for flushing, cold reads and other work that may block.", 1, 256),
    _row("log.cleaner.backoff.ms", Kind.LONG, "How long the cleaner rests when there is nothing to compact.", 1,
         dynamic=True),
    _row("log.cleaner.dedupe.buffer.size", Kind.LONG, "Memory for the keys of one compaction.", _MIB, dynamic=True),
    _row("log.cleaner.io.max.bytes.per.second", Kind.DOUBLE, "The cleaner reads and writes at most this much.", 1,
         dynamic=True),
    _row("log.cleaner.threads", Kind.INT, "Compactions that run at the same time.", 1, 64, dynamic=True),
    _row("log.flush.offset.checkpoint.interval.ms", Kind.INT,
         "How often the point from which recovery starts is written down.", 1),
    _row("log.retention.check.interval.ms", Kind.LONG, "How often retention looks for segments to delete.", 1),
    _row("producer.id.expiration.ms", Kind.INT,
         "Forget the sequence numbers of an idempotent producer that was silent for this long.", 1, dynamic=True),
)  # fmt: skip
"""Logs."""

_TRANSACTIONS = (
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
)  # fmt: skip
"""Transactions."""

_PROCESS = (
    _row("log.level", Kind.STRING, "How much is logged.", choices=("debug", "info", "warning", "error")),
    _row("shutdown.timeout.ms", Kind.INT,
         "On SIGTERM, requests under way get this long to finish. Everything acknowledged is on disk either way.", 0),
)  # fmt: skip
"""The process."""


def broker_rows(defaults: object) -> Iterator[Setting]:
    """The settings of all areas. The attributes of `defaults` are the setting names with `_` for `.`."""
    for area in (_IDENTITY, _CLUSTER, _TOPICS, _CONNECTIONS, _GROUPS, _SQS, _LOGS, _TRANSACTIONS, _PROCESS):
        for row in area:
            default = getattr(defaults, row.name.replace(".", "_"))
            yield Setting(
                row.name,
                row.kind,
                default,
                row.doc,
                row.minimum,
                row.maximum,
                row.choices,
                row.dynamic,
                level=row.level,
            )
