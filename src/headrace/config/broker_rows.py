"""The broker's own settings by area: name, type, description and bounds. The defaults are `BrokerSettings`."""

from collections.abc import Iterator

from headrace.config.link_rows import LINK_ROWS
from headrace.config.monitor_rows import MONITOR_ROWS
from headrace.config.quota_rows import QUOTA_ROWS
from headrace.config.setting_row import SettingRow
from headrace.config.settings import Kind, Setting
from headrace.model.features import QUOTAS_LEVEL, SECURITY_LEVEL, STALLS_LEVEL

_MIB = 1024 * 1024

HTTP_OFF = "off"
HTTP = "http://"
HTTPS = "https://"
HTTP_PORT_DISTANCE = 232
REGISTRY_PORT_DISTANCE = -1011
"""The default HTTP port is the Kafka port plus this: 9092 and 9324."""
LOOPBACK = "127.0.0.1"


_row = SettingRow


_IDENTITY = (
    _row("broker.id", Kind.INT, "The id of this broker, unique in its cluster.", 0),
    _row("broker.rack", Kind.STRING, "The rack or machine this broker is on; replicas are spread over racks."),
    _row("data.dir", Kind.STRING, "The data directory of this broker."),
    _row("kafka.listen", Kind.STRING,
         "HOST:PORT where Kafka clients connect: the short form of one plain listener. Without a host: every address "
         "of this machine, IPv4 and IPv6, which needs `insecure`. Port 0 chooses a free one."),
    _row("listeners", Kind.LIST,
         "Where Kafka clients and brokers connect, instead of kafka.listen: PROTOCOL://HOST:PORT with the protocols "
         "plain, tls, sasl_plain and sasl_tls. Options follow a question mark, separated by &: name, advertise, "
         "client.auth and sasl, as in sasl_tls://:9093?name=public&sasl=SCRAM-SHA-512."),
    _row("inter.broker.listener", Kind.STRING,
         "The name of the listener that brokers use among themselves. Empty: the first one."),
    _row("insecure", Kind.BOOLEAN,
         "Whether listeners without authentication may be reached from other machines: everyone who reaches the port "
         "may then do everything."),
    _row("advertise", Kind.STRING,
         "HOST[:PORT] advertised to clients. Empty: the address that each client connected to, which works on loopback "
         "and on a LAN; set it behind NAT, a proxy or a container's port mapping."),
    _row("http.listen", Kind.STRING,
         f"HOST:PORT of the HTTP listener for queues: the SQS API and the SDK's protocol. Empty: on {LOOPBACK} only, "
         f"at the port of kafka.listen plus {HTTP_PORT_DISTANCE}, which is 9324, or a free one if that is in use. "
         f"{HTTP_OFF}: disabled. With https:// before it, over TLS. Addresses other than loopback require "
         "authorization.enable, sqs.access.keys or insecure."),
    _row("registry.listen", Kind.STRING,
         "HOST:PORT of an HTTP listener for the schema registry alone; it is also under /registry of http.listen. "
         f"Empty: on {LOOPBACK} only, at 8081 if kafka.listen is at 9092 (as far from it otherwise), if that is free. "
         f"{HTTP_OFF}: disabled. With https:// before it, over TLS. Addresses other than loopback require "
         "authorization.enable or insecure."),
)  # fmt: skip
"""Identity and listeners."""

_CLUSTER = (
    _row("auto.leader.rebalance.enable", Kind.BOOLEAN,
         "Whether leadership returns automatically to the preferred leader, the first replica, once it is in sync.",
         dynamic=True),
    _row("broker.draining", Kind.BOOLEAN,
         "Move every replica off this broker, and place no new one on it. When it is stopped after that, it is removed "
         "from the cluster. Set dynamically, for one broker.", dynamic=True),
    _row("broker.session.timeout.ms", Kind.INT,
         "The TTL of this broker's lease: how long after its last renewal other brokers take over its partitions. With "
         "3000, producers continue within 5 s; the machine must never stall for that long.", 2_000),
    _row("controlled.shutdown.timeout.ms", Kind.INT,
         "On SIGTERM, how long a broker of a cluster waits for its leadership to be transferred.", 0),
    _row("etcd.ca.file", Kind.STRING, "The CA of etcd's certificate, as PEM. Setting it enables TLS."),
    _row("etcd.cert.file", Kind.STRING, "This broker's client certificate, if etcd requires one."),
    _row("etcd.endpoints", Kind.LIST,
         "HOST:PORT of each etcd member, with https:// before it for TLS. Set: this broker is part of a cluster. "
         "Empty: it is a single node."),
    _row("etcd.key.file", Kind.STRING, "The private key of etcd.cert.file."),
    _row("etcd.password", Kind.PASSWORD, "The password of etcd.user."),
    _row("etcd.prefix", Kind.STRING, "The prefix of all keys of this cluster, so that one etcd can serve several."),
    _row("etcd.user", Kind.STRING, "The etcd user of this broker."),
    _row("follower.replication.throttled.rate", Kind.LONG,
         "Bytes per second that this broker fetches for replicas that a reassignment adds to it.", 1, dynamic=True),
    _row("leader.imbalance.check.interval.seconds", Kind.LONG,
         "How often to check for partitions that are not led by their preferred leader.", 1),
    _row("leader.replication.throttled.rate", Kind.LONG,
         "Bytes per second that this broker sends to replicas that a reassignment adds.", 1, dynamic=True),
    _row("offsets.topic.replication.factor", Kind.INT,
         "Replication factor of __consumer_offsets; lower while the cluster has fewer brokers.", 1),
    _row("replica.fetch.max.bytes", Kind.INT, "The most a follower fetches from one partition at a time.", 1024),
    _row("replica.fetch.response.max.bytes", Kind.INT,
         "The most a follower fetches from one leader at a time, unless a single batch is larger.", 1024),
    _row("replica.fetch.wait.max.ms", Kind.INT, "How long a follower's fetch waits when there is nothing new.", 1),
    _row("replica.lag.time.max.ms", Kind.LONG,
         "A follower that has not caught up with its leader for this long is out of sync.", 1),
    _row("transaction.state.log.min.isr", Kind.INT,
         "min.insync.replicas of __transaction_state when it is created; lower if the cluster has fewer brokers.", 1),
    _row("transaction.state.log.replication.factor", Kind.INT,
         "Replication factor of __transaction_state; lower while the cluster has fewer brokers.", 1),
)  # fmt: skip
"""Cluster and replication."""

_SECURITY = (
    _row("authorization.enable", Kind.BOOLEAN,
         "Whether ACLs decide what a client may do. Off: every client may do everything.", dynamic=True,
         level=SECURITY_LEVEL),
    _row("super.users", Kind.STRING,
         "Principals that may do everything, separated by semicolons: User:admin;User:broker."),
    _row("allow.everyone.if.no.acl.found", Kind.BOOLEAN,
         "Whether a resource that no ACL is about is open to everyone.", dynamic=True, level=SECURITY_LEVEL),
    _row("tls.cert.file", Kind.STRING,
         "The certificate of this broker, as PEM, with intermediate certificates after it. It is read again when it "
         "changes."),
    _row("tls.key.file", Kind.STRING, "The private key of tls.cert.file, as PEM."),
    _row("tls.key.password", Kind.PASSWORD, "The password of tls.key.file, if it is encrypted."),
    _row("tls.ca.file", Kind.STRING,
         "The certificate authorities, as PEM, of clients' and other brokers' certificates."),
    _row("tls.client.auth", Kind.STRING,
         "Whether TLS clients must present a certificate, unless a listener says otherwise.",
         choices=("none", "requested", "required")),
    _row("tls.min.version", Kind.STRING, "The oldest TLS version that is accepted.", choices=("1.2", "1.3")),
    _row("tls.principal.mapping.rules", Kind.STRING,
         "How the subject of a client's certificate becomes a user name: RULE:pattern/replacement/[LU] or DEFAULT, "
         "separated by commas; the first that matches."),
    _row("sasl.enabled.mechanisms", Kind.LIST, "The SASL mechanisms of listeners that do not name their own.",
         choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")),
    _row("sasl.server.max.receive.size", Kind.INT,
         "The largest request accepted before authentication.", 1024),
    _row("connections.max.reauth.ms", Kind.LONG,
         "After this long a SASL client must authenticate again (KIP-368); 0: only when its token expires.", 0),
    _row("connection.failed.authentication.delay.ms", Kind.INT,
         "How long the answer to a failed authentication is delayed.", 0, 10_000),
    _row("max.pending.connections", Kind.INT,
         "How many connections may be in the TLS handshake, and how many may not have authenticated by SASL yet; "
         "beyond it the oldest of them is closed.", 1),
    _row("max.pending.connections.per.ip", Kind.INT,
         "The same bound for the connections of one address.", 1),
    _row("inter.broker.user", Kind.STRING, "The user as which this broker logs in to other brokers."),
    _row("inter.broker.password", Kind.PASSWORD, "The password of inter.broker.user."),
    _row("inter.broker.sasl.mechanism", Kind.STRING, "The SASL mechanism among brokers.",
         choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")),
    _row("sasl.oauthbearer.jwks.endpoint.url", Kind.STRING,
         "Where the OIDC provider publishes its keys: an https URL, or an http URL on loopback."),
    _row("sasl.oauthbearer.jwks.endpoint.refresh.ms", Kind.LONG, "How often these keys are fetched.", 1_000),
    _row("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", Kind.LONG, "The first delay after a failed fetch.", 1),
    _row("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", Kind.LONG, "The longest such delay.", 1),
    _row("sasl.oauthbearer.expected.issuer", Kind.STRING, "The required issuer (iss) of tokens."),
    _row("sasl.oauthbearer.expected.audience", Kind.LIST, "Audiences (aud), one of which a token must have."),
    _row("sasl.oauthbearer.clock.skew.seconds", Kind.INT, "The tolerated difference of clocks.", 0, 600),
    _row("sasl.oauthbearer.scope.claim.name", Kind.STRING, "The claim with the scopes of a token."),
    _row("sasl.oauthbearer.sub.claim.name", Kind.STRING, "The claim with the name of the user."),
)  # fmt: skip
"""Authentication, authorization and TLS."""

_TOPICS = (
    _row("auto.create.topics.enable", Kind.BOOLEAN, "Create a topic when a client first requests it.", dynamic=True),
    _row("default.replication.factor", Kind.INT,
         "Replication factor of topics created without one. Unless it is set: 3, or the number of brokers if lower; "
         "those of one rack and host count as one.",
         1, 2**15 - 1, dynamic=True),
    _row("delete.topic.enable", Kind.BOOLEAN, "Whether topics may be deleted.", dynamic=True),
    _row("max.partitions.per.broker", Kind.INT, "Creating more partitions than this on one broker is refused.", 1,
         dynamic=True),
    _row("max.partitions.per.topic", Kind.INT, "Creating a topic with more partitions than this is refused.", 1,
         dynamic=True),
    _row("num.partitions", Kind.INT, "Partitions of topics created without a number.", 1, dynamic=True),
)  # fmt: skip
"""Topics."""

_CONNECTIONS = (
    _row("connections.max.idle.ms", Kind.LONG, "Close a connection that was idle for this long.", 1),
    _row("max.connections", Kind.INT, "Refuse connections beyond this number.", 1, dynamic=True),
    _row("max.connections.per.ip", Kind.INT, "Refuse connections beyond this number from one address.", 1,
         dynamic=True),
    _row("max.inflight.requests.per.connection", Kind.INT,
         "Stop reading a connection while this many of its requests are in flight.", 1),
    _row("preload.enable", Kind.BOOLEAN,
         "Whether to build the codecs of all request versions in the background after the start, for about a second of "
         "CPU time. Otherwise the first request of each kind delays all others by some milliseconds."),
    _row("queued.max.request.bytes", Kind.LONG,
         "Memory for the requests of all connections; beyond it, reading pauses (back-pressure). "
         "At least socket.request.max.bytes.", 1),
    _row("request.read.timeout.ms", Kind.INT,
         "Close a connection that started a request and did not finish sending it in this time.", 1),
    _row("socket.receive.buffer.bytes", Kind.INT,
         "SO_RCVBUF of the connections of clients and brokers; -1: the operating system sizes the buffer.", -1),
    _row("socket.request.max.bytes", Kind.INT, "The largest request accepted.", 1024),
    _row("socket.send.buffer.bytes", Kind.INT,
         "SO_SNDBUF of the connections of clients and brokers: small, so that bytes stay in the processor's cache "
         "until they are read. Clients far away need more; -1: the operating system sizes the buffer.", -1),
    _row("telemetry.max.bytes", Kind.INT, "The most that a client may push of its metrics at a time.", 1, dynamic=True),
    _row("fetch.max.bytes", Kind.INT, "The most a fetch returns, unless a single batch is larger.", 1024, dynamic=True),
    _row("max.incremental.fetch.session.cache.slots", Kind.INT,
         "The number of cached fetch sessions for clients that fetch incrementally.", 0),
)  # fmt: skip
"""Connections, requests and fetches."""

_GROUPS = (
    _row("errors.deadletterqueue.auto.create.topics.enable", Kind.BOOLEAN,
         "Whether a share group's dead-letter topic is created if it does not exist (KIP-1191).",
         dynamic=True, level=2),
    _row("errors.deadletterqueue.topic.name.prefix", Kind.STRING,
         "The required name prefix of share groups' dead-letter topics; empty: none.",
         dynamic=True, level=2),
    _row("group.consumer.assignors", Kind.LIST,
         "The assignors of consumer groups (KIP-848); the first is the default.",
         choices=("uniform", "range")),
    _row("group.consumer.heartbeat.interval.ms", Kind.INT, "How often members of consumer groups heartbeat.", 1),
    _row("group.consumer.max.heartbeat.interval.ms", Kind.INT, "The longest interval that may be set.", 1),
    _row("group.consumer.max.session.timeout.ms", Kind.INT, "The longest timeout that may be set.", 1),
    _row("group.consumer.max.size", Kind.INT, "Members of a consumer group beyond this number are refused.", 1),
    _row("group.consumer.migration.policy", Kind.STRING,
         "Whether a group with members may change its protocol. upgrade: a classic group becomes a consumer group when "
         "a member of that protocol joins. downgrade: a consumer group becomes a classic one when only members of the "
         "classic protocol are left.", choices=("bidirectional", "upgrade", "downgrade", "disabled")),
    _row("group.consumer.min.heartbeat.interval.ms", Kind.INT, "The shortest interval that may be set.", 1),
    _row("group.consumer.min.session.timeout.ms", Kind.INT, "The shortest timeout that may be set.", 1),
    _row("group.consumer.session.timeout.ms", Kind.INT,
         "A member of a consumer group without a heartbeat for this long is removed.", 1),
    _row("group.coordinator.rebalance.protocols", Kind.LIST,
         "The enabled group protocols. Classic is always enabled; without consumer, ConsumerGroupHeartbeat is refused, "
         "without share, ShareGroupHeartbeat, without streams, StreamsGroupHeartbeat.",
         choices=("classic", "consumer", "share", "streams")),
    _row("group.initial.rebalance.delay.ms", Kind.INT,
         "How long an empty group waits for more members before its first rebalance.", 0),
    _row("group.max.session.timeout.ms", Kind.INT, "The longest session timeout a member may request.", 1),
    _row("group.max.size", Kind.INT, "Members of a classic group beyond this number are refused.", 1),
    _row("group.min.session.timeout.ms", Kind.INT, "The shortest session timeout a member may request.", 1),
    _row("group.share.delivery.count.limit", Kind.INT,
         "A record that was delivered this often to members of a share group, and never accepted, is not delivered "
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
         "The number of concurrent share sessions on this broker.", 1),
    _row("group.share.max.size", Kind.INT, "Members of a share group beyond this number are refused.", 1, 1_000),
    _row("group.share.min.delivery.count.limit", Kind.INT,
         "The smallest limit that may be set, here or for a group.", 2, 5),
    _row("group.share.min.heartbeat.interval.ms", Kind.INT, "The shortest interval that may be set.", 1),
    _row("group.share.min.partition.max.record.locks", Kind.INT,
         "The smallest limit that may be set, here or for a group.", 100, 2_000),
    _row("group.share.min.record.lock.duration.ms", Kind.INT, "The shortest duration that may be set.", 1_000),
    _row("group.share.min.session.timeout.ms", Kind.INT, "The shortest timeout that may be set.", 1),
    _row("group.share.partition.max.record.locks", Kind.INT,
         "The number of records of one partition that a share group may have acquired at a time.", 100, 10_000),
    _row("group.share.record.lock.duration.ms", Kind.INT,
         "How long the member of a share group that acquired a record holds its lock.", 1_000, 3_600_000),
    _row("group.share.session.timeout.ms", Kind.INT,
         "A member of a share group without a heartbeat for this long is removed.", 1),
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
         "The number of standbys of each stateful task: copies of its state in other processes, for failover.", 0),
    _row("group.streams.session.timeout.ms", Kind.INT,
         "A member of a streams group without a heartbeat for this long is removed.", 1),
    _row("offset.metadata.max.bytes", Kind.INT, "The longest metadata that may be committed with an offset.", 0),
    _row("offsets.retention.check.interval.ms", Kind.LONG, "How often to check for expired offsets.", 1),
    _row("offsets.retention.minutes", Kind.INT,
         "Delete the offsets of a group that has been empty for this long, and of topics that a group with members "
         "has not been subscribed to for this long.", 1),
    _row("offsets.topic.num.partitions", Kind.INT,
         "Partitions of __consumer_offsets when it is created, with the first group.", 1),
    _row("offsets.topic.segment.bytes", Kind.INT, "Segment size of __consumer_offsets when it is created.", _MIB),
)  # fmt: skip
"""Consumer, share and streams groups, and their offsets."""

_SQS = (
    _row("sqs.access.keys", Kind.PASSWORD,
         "Access keys for queues over HTTP: ID:SECRET, separated by commas, besides those of users. Each belongs to "
         "the user whose name is its ID. Requests must be signed (SigV4) as soon as there is a key, and with "
         "authorization.enable; otherwise any credentials are accepted."),
    _row("sqs.account.id", Kind.STRING, "The account, 12 digits, in the URLs and ARNs of queues."),
    _row("sqs.recreate.wait.ms", Kind.LONG,
         "How long after the deletion of a queue the SQS API refuses to create one of the same name, as AWS does; 0: "
         "not at all.", 0, 3_600_000, dynamic=True),
    _row("sqs.region", Kind.STRING, "The region in the ARNs of queues."),
)  # fmt: skip
"""The SQS API."""

_DASHBOARD = (
    _row("dashboard.read.only", Kind.BOOLEAN,
         "Whether the dashboard and the HTTP API under /api/v1 only show things: every change is refused, whatever the "
         "permissions of the user.", dynamic=True, level=SECURITY_LEVEL),
    _row("dashboard.session.idle.ms", Kind.LONG,
         "A login to the dashboard ends when no page has been open for this long.", 60_000, dynamic=True,
         level=SECURITY_LEVEL),
    _row("dashboard.session.max.ms", Kind.LONG, "A login to the dashboard ends after this time at the latest.", 60_000,
         dynamic=True, level=SECURITY_LEVEL),
)  # fmt: skip
"""The dashboard and the HTTP API."""

_ENCRYPTION = (
    _row("encryption.cache.bytes", Kind.LONG,
         "Memory for the newest batches of encrypted topics that are consumed, of all partitions together, so that "
         "consumers at the end of a topic need no decryption. 0: none.", 0),
    _row("encryption.master.key", Kind.PASSWORD,
         "The master key of encryption at rest: base64 of 32 bytes. After a comma: former keys, which only unwrap. "
         "Meant for the environment variable HEADRACE_ENCRYPTION_MASTER_KEY, since others can see a command line."),
    _row("encryption.master.key.command", Kind.STRING,
         "A command that prints the master keys, for example the client of a key management service. Run without a "
         "shell when the broker starts."),
    _row("encryption.master.key.file", Kind.STRING,
         "A file with the master keys, one per line, the current one first; only its owner may read it."),
)  # fmt: skip
"""Encryption at rest."""

_LOGS = (
    _row("background.threads", Kind.INT, "Threads for flushes, cold reads and other blocking work.", 1, 256),
    _row("disk.refuse.below.bytes", Kind.LONG,
         "With less free space than this on the disk of the data directory (at most 1% of it), producers are refused "
         "with a retriable error, so that room is left for commits of offsets and other records of brokers. 0: never.",
         0, dynamic=True, level=QUOTAS_LEVEL),
    _row("disk.slow.below.bytes", Kind.LONG,
         "With less free space than this on the disk of the data directory (at most 5% of it), producers are slowed "
         "down, the more the less is left (`throttle_time_ms`). 0: never.", 0, dynamic=True, level=QUOTAS_LEVEL),
    _row("log.cleaner.backoff.ms", Kind.LONG, "How long the cleaner sleeps when there is nothing to compact.", 1,
         dynamic=True),
    _row("log.cleaner.dedupe.buffer.size", Kind.LONG, "Memory for the keys of one compaction.", _MIB, dynamic=True),
    _row("log.cleaner.io.max.bytes.per.second", Kind.DOUBLE, "The cleaner reads and writes at most this much.", 1,
         dynamic=True),
    _row("log.cleaner.threads", Kind.INT, "Compactions that run at the same time.", 1, 64, dynamic=True),
    _row("log.flush.offset.checkpoint.interval.ms", Kind.INT,
         "How often the recovery point is checkpointed.", 1),
    _row("log.retention.check.interval.ms", Kind.LONG, "How often to check for segments to delete by retention.", 1),
    _row("producer.id.expiration.ms", Kind.INT,
         "Delete the state of an idempotent producer that was idle for this long.", 1, dynamic=True),
)  # fmt: skip
"""Logs."""

_TRANSACTIONS = (
    _row("transaction.max.timeout.ms", Kind.INT,
         "The longest transaction timeout that a producer may request. A transaction open for longer than its timeout "
         "is aborted.", 1),
    _row("transaction.remove.expired.transaction.cleanup.interval.ms", Kind.INT,
         "How often to check for expired transactional ids.", 1),
    _row("transaction.state.log.num.partitions", Kind.INT,
         "Partitions of __transaction_state when it is created; transactional ids are spread over them.", 1),
    _row("transaction.state.log.segment.bytes", Kind.INT,
         "Segment size of __transaction_state: small enough to be compacted early and loaded fast.", 1024),
    _row("transaction.two.phase.commit.enable", Kind.BOOLEAN,
         "Whether a producer may use two-phase commit: transactions without a timeout, ended by an external "
         "coordinator. Pipelines that write exactly once do."),
    _row("transactional.id.expiration.ms", Kind.INT,
         "Delete a transactional id that was not used for this long.", 1),
)  # fmt: skip
"""Transactions."""

_PROCESS = (
    _row("event.loop.stall.ms", Kind.INT,
         "Look for what holds up the event loop for this long, log each case with its cause and count it in the "
         "metrics; certain from twice this length on. 0: do not look; looking takes some 5 % of a processor.",
         0, 60_000, dynamic=True, level=STALLS_LEVEL),
    _row("http.access.log", Kind.BOOLEAN,
         "Whether each request over HTTP is logged when it is answered: method, path, status, bytes and time."),
    _row("log.format", Kind.STRING,
         "How log lines are written: as text for people, or as JSON lines for programs.", choices=("text", "json")),
    _row("log.level", Kind.STRING, "The minimum level of log lines.", choices=("debug", "info", "warning", "error")),
    _row("shutdown.timeout.ms", Kind.INT,
         "On SIGTERM, requests in flight get this long to finish. Everything acknowledged is on disk either way.", 0),
)  # fmt: skip
"""The process."""

_AUDIT = (
    _row("audit.enable", Kind.STRING,
         "Whether security events are recorded in the topic __audit. auto: while authorization.enable is true.",
         choices=("auto", "true", "false"), dynamic=True, level=SECURITY_LEVEL),
    _row("audit.events", Kind.LIST,
         "What is recorded: logins, denied requests, administrative changes, and writing to and reading from topics.",
         choices=("authentication", "authorization", "admin", "produce", "consume"), dynamic=True,
         level=SECURITY_LEVEL),
    _row("audit.excluded.principals", Kind.LIST,
         "Principals of which nothing is recorded, as User:monitoring; failed logins are recorded all the same.",
         dynamic=True, level=SECURITY_LEVEL),
    _row("audit.topics", Kind.LIST,
         "The topics of which produce and consume are recorded, by name or as a prefix with * at its end. Empty: all.",
         dynamic=True, level=SECURITY_LEVEL),
    _row("audit.sample.rate", Kind.DOUBLE,
         "The share of produce and consume requests that is recorded; all other events are recorded always.", 0, 1,
         dynamic=True, level=SECURITY_LEVEL),
    _row("audit.file", Kind.STRING,
         "A file that gets the same events, one JSON object per line. Empty: none."),
    _row("audit.file.max.bytes", Kind.LONG,
         "The size at which audit.file is renamed to audit.file.1, that one to audit.file.2 and so on.", 4096,
         dynamic=True, level=SECURITY_LEVEL),
    _row("audit.file.max.files", Kind.INT, "The number of renamed files to retain.", 1, 1_000, dynamic=True,
         level=SECURITY_LEVEL),
    _row("audit.buffer.max.events", Kind.INT, "The number of events that may wait to be written.", 1, 1_000_000,
         dynamic=True, level=SECURITY_LEVEL),
    _row("audit.full.policy", Kind.STRING,
         "What happens when that many wait. drop: further events are lost, and an event says how many; block: "
         "administrative requests wait, all but changes of settings.", choices=("drop", "block"), dynamic=True,
         level=SECURITY_LEVEL),
    _row("audit.topic.replication.factor", Kind.INT,
         "Replication factor of __audit; lower while the cluster has fewer brokers.", 1),
)  # fmt: skip
"""The audit log."""


def broker_rows(defaults: object) -> Iterator[Setting]:
    """The settings of all areas. The attributes of `defaults` are the setting names with `_` for `.`."""
    for area in (
        _IDENTITY,
        _SECURITY,
        _AUDIT,
        _CLUSTER,
        _TOPICS,
        _CONNECTIONS,
        QUOTA_ROWS,
        LINK_ROWS,
        _GROUPS,
        _SQS,
        _DASHBOARD,
        _ENCRYPTION,
        _LOGS,
        _TRANSACTIONS,
        MONITOR_ROWS,
        _PROCESS,
    ):
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
