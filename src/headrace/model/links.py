"""Links to other clusters and the mirror topics that they fill, as the metadata store has them. Pure.

A *link* names a source cluster and which of its topics are copied. A *mirror topic* is the local, read-only copy of one
of them; its record is created with the topic in one transaction, and outlives the link as a note of where the data is
from. No secret is stored: a link names an environment variable or a file of the brokers that has the password.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from uuid import UUID

from headrace.model.patterns import topic_pattern

MAX_LINKS = 64
MAX_MIRRORS = 10_000
"""Mirror topics of a cluster. Every broker has all of them in memory."""
MAX_NAME_CHARS = 100
"""Of the name of a link, and of a prefix."""
MAX_PATTERNS = 100
"""All topics of the source are matched at each refresh: fewer patterns than are cached (`model/patterns.py`)."""
MAX_BOOTSTRAP = 64
MAX_TEXT_CHARS = 1024
"""Of any other text of a link."""
MAX_ORIGINS = 16
"""Clusters whose records a mirror topic may have. More than one only where topics that were taken over are mirrored."""
MAX_COPIED = 10_000
"""ACLs, users and entities with quotas that links have brought to a cluster. Every broker has all of them in memory."""
MAX_SOURCE_EPOCH = 2**30
"""Leader epochs of a source. They have 32 bits, and this cluster needs higher ones for its own leaders."""
MAX_SOURCE_OFFSET = 2**53
"""A million records a second for 285 years. Beyond it offsets would leave no room for local writes."""
EPOCH_ROOM = 100
"""Between the highest epoch known of the source and the first local one: the source may move on meanwhile."""

DIVERGENT_SUFFIX = ".divergent"
"""Of the topic that gets the records of a reversed topic which its new source never had."""


class MirrorState(Enum):
    MIRRORING = "mirroring"
    PAUSED = "paused"
    """Read-only, and nothing is copied."""
    PROMOTING = "promoting"
    """Read-only, and nothing is copied: the leader epochs of its partitions are being raised."""
    STOPPED = "stopped"
    """A topic like any other from now on."""
    REVERSING = "reversing"
    """A former source that becomes a mirror: read-only, and nothing is copied yet. What its new source never had is
    being set aside."""
    FAULTED = "faulted"
    """Read-only, and nothing is copied, for the reason given: the source topic was created again or deleted."""


@dataclass(frozen=True, slots=True)
class LinkSync:
    """What is copied besides records."""

    groups: bool = True
    """The committed offsets of consumer groups."""
    settings: bool = True
    """Settings of the source topics that change after the mirror topic was created."""
    acls: bool = False
    """The ACLs of the source: users who may change them there give permissions here."""
    quotas: bool = False
    """The client quotas of the source."""
    queues: bool = False
    """The settings of queues: their mirrors are queues once they are taken over."""
    schemas: bool = False
    """The registry of the source, with the ids of its schemas."""
    users: bool = False
    """The users of the source, with what verifies their passwords: users who may change them there log in here."""


SYNC_CHOICES = ("acls", "quotas", "queues", "schemas", "users")
"""The names of what is copied only by choice."""
SCHEMAS_TOPIC_DEFAULT = "_schemas"
"""The topic of the source's registry, unless a link names another one."""


@dataclass(frozen=True, slots=True)
class Copied:
    """Notes that a link has brought an ACL, a user or quotas: what it has not brought it never changes or removes."""

    link_id: UUID
    quotas: Mapping[str, float] = field(default_factory=dict)
    """The quotas of an entity that the link has set, with their values; none for an ACL or a user."""


@dataclass(frozen=True, slots=True)
class Link:
    """A source cluster, how to reach it, and what is copied from it."""

    name: str
    link_id: UUID
    """New each time the name is created again."""
    bootstrap: tuple[str, ...]
    """Addresses `host:port` of the source cluster."""
    topics: tuple[str, ...] = ()
    """Regular expressions of the source's topics to copy. Those that are mirrored already go on if they match no
    longer."""
    exclude: tuple[str, ...] = ()
    """Regular expressions of topics that are left out of those."""
    prefix: str = ""
    """The name of a mirror topic is this and the name of the source topic."""
    is_paused: bool = False
    max_bytes_per_second: int | None = None
    """Of each broker that fetches over this link; None for no limit."""
    user: str = ""
    """The SASL user; empty for no login."""
    mechanism: str = ""
    """PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512."""
    password_env: str = ""
    """The environment variable of the brokers that has the password: one that is meant for links, by its name."""
    password_file: str = ""
    """The file on the brokers that has the password, if no variable is named: in their `link.files.dir`, as all files
    of a link."""
    tls: bool = False
    ca_file: str = ""
    """Certificates that sign those of the source; empty for the system's."""
    cert_file: str = ""
    key_file: str = ""
    sync: LinkSync = field(default_factory=LinkSync)
    schemas_topic: str = SCHEMAS_TOPIC_DEFAULT
    """The topic of the source's registry, in the format of Confluent's."""
    created_ms: int = 0
    source_cluster_id: str = ""
    """Learned at the first contact. Another one later means that the addresses lead to another cluster."""

    def wants(self, topic: str) -> bool:
        """True for a name of a source topic that matches a pattern and no excluding one."""
        return matches(topic, self.topics) and not matches(topic, self.exclude)

    def has(self, mirror: "Mirror") -> bool:
        """True for a mirror topic that this link fills, or did: not one of an earlier link with the same name."""
        return mirror.link == self.name and mirror.link_id in (None, self.link_id)


@dataclass(frozen=True, slots=True)
class Parting:
    """Where the history of a partition parts from that of its new source, and how much of the rest was set aside."""

    partition: int
    offset: int
    """The new source has everything below it, as far as leader epochs can prove that."""
    end: int
    """The end of the log when producers and transactions had stopped."""
    next_offset: int
    """Everything from `offset` to here is set aside and committed, or was no committed message."""
    set_aside: int = 0
    """Messages that were set aside."""
    aborted: int = 0
    """Messages of aborted transactions, which were not set aside."""
    undecided: int = 0
    """Messages of transactions that had not ended, which were not set aside either."""

    @property
    def is_complete(self) -> bool:
        return self.next_offset >= self.end


@dataclass(frozen=True, slots=True)
class Mirror:
    """The record of a mirror topic."""

    topic_id: UUID
    """Of the local topic."""
    link: str
    """The name of the link that fills it, or did."""
    source_topic: str
    source_topic_id: UUID
    """Another one at the source means that the topic was created again."""
    source_cluster_id: str
    state: MirrorState = MirrorState.MIRRORING
    reason: str = ""
    """Why it is FAULTED, or what happened at the last change; empty if there is nothing to say."""
    changed_ms: int = 0
    """When the state changed."""
    takeover_took_ms: int = 0
    """How long its promotion or failover took, from the command until producers may write; 0 before one."""
    source_epoch: int = 0
    """At least the highest leader epoch of the source's partitions, as far as is known."""
    promoted_epoch: int = -1
    """The lowest leader epoch of local writes, from PROMOTING on: higher than every epoch in the mirrored logs. The
    log of a partition is the source's below the start of its first epoch that is at least this."""
    link_id: UUID | None = None
    """Of that link; None in records of older brokers."""
    older_origins: tuple[str, ...] = ()
    """Clusters whose records the source topic had from before, as a topic that was taken over there."""
    queue: Mapping[str, str] = field(default_factory=dict)
    """The settings by which the topic becomes a queue when it is promoted; none for an ordinary topic. Until then it
    is no queue, since receives would delete messages of the source's log."""
    reverse_epoch: int = -1
    """In a reversed topic: no producer has written in this leader epoch or a later one."""
    source_promoted_epoch: int = -1
    """In a reversed topic: the lowest leader epoch of the writes of the new source, above every epoch of the writes
    here."""
    reversed_ms: int = 0
    """When it was reversed; 0 if it was not."""
    partings: tuple[Parting, ...] = ()
    """In a reversed topic, by partition: those that are known."""

    @property
    def origins(self) -> tuple[str, ...]:
        """The clusters whose records it may have, besides its own: the source, then older ones."""
        return (self.source_cluster_id, *self.older_origins)

    def parting(self, partition: int) -> Parting | None:
        return next((each for each in self.partings if each.partition == partition), None)

    def with_parting(self, parting: Parting) -> "Mirror":
        """The record with this parting in place of an earlier one of its partition."""
        others = [each for each in self.partings if each.partition != parting.partition]
        return replace(self, partings=tuple(sorted([*others, parting], key=lambda each: each.partition)))

    def is_set_aside(self, partitions: int) -> bool:
        """True if everything that parts from the new source is set aside, in all of the first `partitions`."""
        done = {each.partition for each in self.partings if each.is_complete}
        return done.issuperset(range(partitions))

    @property
    def is_copy(self) -> bool:
        """True while its source has, or had, every record of it: nothing was written here, and no operator has given
        the source up."""
        return self.state in (MirrorState.MIRRORING, MirrorState.PAUSED)

    @property
    def is_read_only(self) -> bool:
        """True until the promotion is complete: no producer writes to the topic."""
        return self.state is not MirrorState.STOPPED


def link_principal(link: str) -> str:
    """Who makes the changes of a link, for the audit log: `Link:eu`."""
    return f"Link:{link}"


def matches(name: str, patterns: Iterable[str]) -> bool:
    """True if the whole name matches one of the patterns."""
    return any(topic_pattern(pattern).matches(name) for pattern in patterns)


def is_fetching(link: Link | None, mirror: Mirror) -> bool:
    """True while records are to be copied into a mirror topic; `link` is None if it was deleted."""
    return link is not None and not link.is_paused and mirror.state is MirrorState.MIRRORING
