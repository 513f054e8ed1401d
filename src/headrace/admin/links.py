"""Links to other clusters and their mirror topics: created, paused, deleted, promoted, failed over and reversed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from headrace.admin.routes import ALTER_CLUSTER, DESCRIBE_CLUSTER, AdminReply, AdminRequest, route
from headrace.mirror.reports import (
    LinkStatus,
    LinkSummary,
    MirrorReport,
    PartitionReport,
    PromotionReport,
    home_note,
)
from headrace.model.links import (
    MAX_BOOTSTRAP,
    MAX_PATTERNS,
    SCHEMAS_TOPIC_DEFAULT,
    SYNC_CHOICES,
    Link,
    LinkSync,
    MirrorState,
)

SyncChoice = Literal["acls", "quotas", "queues", "schemas", "users"]
_NO_ID = UUID(int=0)
_MAX_TIMEOUT_S = 3600.0
_TIMEOUT_S = 60.0
_MAX_TOPICS = 1_000
_MAX_CHOICES = 16


class LinkRow(msgspec.Struct, frozen=True):
    name: str
    bootstrap: list[str]
    state: str
    """active or paused."""
    topics: list[str]
    """Regular expressions of topics of the source that are mirrored."""
    exclude: list[str]
    prefix: str
    user: str
    tls: bool
    max_bytes_per_second: int | None
    groups: bool
    """The committed offsets of consumer groups are copied."""
    settings: bool
    """Changed settings of the source topics are followed."""
    sync: list[str]
    """What else is copied: acls, quotas, queues, schemas, users."""
    schemas_topic: str
    """The topic of the source's registry."""
    source_cluster_id: str
    created_ms: int
    topic_count: int
    """Its mirror topics that are read-only."""
    faulted_count: int
    promoted_count: int


class MirrorPartitionRow(msgspec.Struct, frozen=True):
    partition: int
    leader: int
    state: str
    """copying, waiting, faulted or unknown."""
    local_end: int | None
    source_end: int | None
    """The source's last stable offset at the last contact."""
    lag_messages: int | None
    lag_seconds: float | None
    copied_bytes: int
    note: str


class MirrorRow(msgspec.Struct, frozen=True):
    topic: str
    source_topic: str
    state: str
    """mirroring, paused, promoting, stopped (it was promoted), reversing or faulted."""
    lag_messages: int | None
    lag_seconds: float | None
    """The time since the mirror had everything of the source."""
    copied_bytes: int
    """Since the leaders of its partitions lead them."""
    lost_messages: int
    """What the source had deleted before it was copied."""
    set_aside_messages: int
    """What it had before it was reversed and its new source never had: in its divergent topic."""
    is_queue: bool
    """It is a queue whose home is the source; here it becomes one when it is taken over."""
    state_seconds: float | None
    """Of a queue: the age of the state of its messages here. What was received or deleted at the source since then
    is redelivered after a takeover. null if none is copied yet."""
    note: str
    partitions: list[MirrorPartitionRow]


class LinkDetail(msgspec.Struct, frozen=True):
    link: LinkRow
    problem: str
    """Why the source was not reached at the last attempt; empty if it was."""
    contact_ms: float | None
    problems: dict[str, str]
    """By topic of the source: why it is not mirrored, or not as it is there."""
    sync_problems: dict[str, str]
    """By what else is copied, such as acls: why it is not, or not all of it."""
    last_takeover_topic: str | None
    """The topic of it that was promoted or failed over last; null before the first."""
    last_takeover_ms: int | None
    """When that was."""
    last_takeover_took_ms: int | None
    """How long it took (RTO): from the command until producers could write."""
    topics: list[MirrorRow]


class LinkRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    bootstrap: Annotated[list[str], Meta(min_length=1, max_length=MAX_BOOTSTRAP)]
    topics: Annotated[list[str], Meta(max_length=MAX_PATTERNS)] = msgspec.field(default_factory=lambda: [".*"])
    exclude: Annotated[list[str], Meta(max_length=MAX_PATTERNS)] = msgspec.field(default_factory=list)
    prefix: str = ""
    max_bytes_per_second: int | None = None
    user: str = ""
    mechanism: str = ""
    """PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512."""
    password_env: str = ""
    """The environment variable of the brokers that has the password: HEADRACE_LINK_PASSWORD_ and more."""
    password_file: str = ""
    """Or the file on the brokers that has it: a name in their folder link.files.dir, as the other files."""
    tls: bool = False
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    groups: bool = True
    """Copy the committed offsets of consumer groups."""
    settings: bool = True
    """Follow changed settings of the source topics."""
    sync: Annotated[list[SyncChoice], Meta(max_length=_MAX_CHOICES)] = msgspec.field(default_factory=list)
    """What else is copied: acls, quotas, queues, schemas, users. With acls, users who may change ACLs at the source
    give permissions here; with users, those who may change users there log in here."""
    schemas_topic: str = SCHEMAS_TOPIC_DEFAULT
    """The topic of the source's registry."""
    dry_run: bool = False
    """Only check it, and whether the source answers."""


class LinkAlteration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What changes; whatever is left out stays as it is."""

    bootstrap: Annotated[list[str], Meta(min_length=1, max_length=MAX_BOOTSTRAP)] | UnsetType = UNSET
    """Other addresses of the same source cluster."""
    topics: Annotated[list[str], Meta(max_length=MAX_PATTERNS)] | UnsetType = UNSET
    """Topics that are mirrored already go on if they match no longer."""
    exclude: Annotated[list[str], Meta(max_length=MAX_PATTERNS)] | UnsetType = UNSET
    max_bytes_per_second: int | UnsetType | None = UNSET
    """null for no limit."""
    groups: bool | UnsetType = UNSET
    settings: bool | UnsetType = UNSET
    sync: Annotated[list[SyncChoice], Meta(max_length=_MAX_CHOICES)] | UnsetType = UNSET
    """All that is copied by choice; what was copied before stays."""
    schemas_topic: str | UnsetType = UNSET
    dry_run: bool = False
    """Only check it, and whether the source answers at other addresses."""

    def altered(self, link: Link) -> Link:
        if not isinstance(self.bootstrap, UnsetType):
            link = replace(link, bootstrap=tuple(self.bootstrap))
        if not isinstance(self.topics, UnsetType):
            link = replace(link, topics=tuple(self.topics))
        if not isinstance(self.exclude, UnsetType):
            link = replace(link, exclude=tuple(self.exclude))
        if not isinstance(self.max_bytes_per_second, UnsetType):
            link = replace(link, max_bytes_per_second=self.max_bytes_per_second)
        if not isinstance(self.schemas_topic, UnsetType):
            link = replace(link, schemas_topic=self.schemas_topic)
        return replace(link, sync=self._sync(link.sync))

    def _sync(self, sync: LinkSync) -> LinkSync:
        if not isinstance(self.groups, UnsetType):
            sync = replace(sync, groups=self.groups)
        if not isinstance(self.settings, UnsetType):
            sync = replace(sync, settings=self.settings)
        return sync if isinstance(self.sync, UnsetType) else replace(sync, **_chosen(self.sync))


class PauseRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    is_paused: bool
    topics: Annotated[list[str], Meta(max_length=_MAX_TOPICS)] = msgspec.field(default_factory=list)
    """Only these mirror topics of the link; all that it copies if there are none."""


class TakeOverRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    dry_run: bool = False
    timeout_s: Annotated[float, Meta(gt=0, le=_MAX_TIMEOUT_S)] = _TIMEOUT_S
    """How long a promotion waits until everything is copied."""


class TakeOverResult(msgspec.Struct, frozen=True):
    topic: str
    dry_run: bool
    missing_messages: int | None
    """What the source was known to have and was not copied; null if that is not known."""
    missing_seconds: float | None
    """The time before the promotion whose messages may be missing as well; null if that is not known."""
    took_ms: float


class ReverseRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topic: str
    """The topic here that becomes a mirror."""
    dry_run: bool = False
    timeout_s: Annotated[float, Meta(gt=0, le=_MAX_TIMEOUT_S)] = _TIMEOUT_S
    """How long to wait until everything is set aside; it goes on afterwards."""


class ReverseResult(msgspec.Struct, frozen=True):
    topic: str
    dry_run: bool
    source_topic: str
    """The topic of the other cluster that is copied from now on."""
    divergent_topic: str
    set_aside: int
    """Messages that the other cluster never had: they are in the divergent topic."""
    aborted: int
    """Messages of aborted transactions, which are not set aside."""
    undecided: int
    """Messages of transactions without an end, which are not set aside."""
    is_complete: bool
    """Everything is set aside; false if that still goes on."""
    note: str


@route("GET", "/links", needs=DESCRIBE_CLUSTER, answer=list[LinkRow])
async def list_links(request: AdminRequest) -> AdminReply:
    """All links."""
    return AdminReply([_row(each) for each in request.services.links.summaries()])


@route("POST", "/links", needs=ALTER_CLUSTER, body=LinkRequest, answer=LinkRow)
async def create_link(request: AdminRequest) -> AdminReply:
    """Create a link, once the source cluster has answered."""
    wanted = request.read(LinkRequest)
    link = Link(
        name=wanted.name,
        link_id=_NO_ID,
        bootstrap=tuple(wanted.bootstrap),
        topics=tuple(wanted.topics),
        exclude=tuple(wanted.exclude),
        prefix=wanted.prefix,
        max_bytes_per_second=wanted.max_bytes_per_second,
        user=wanted.user,
        mechanism=wanted.mechanism,
        password_env=wanted.password_env,
        password_file=wanted.password_file,
        tls=wanted.tls,
        ca_file=wanted.ca_file,
        cert_file=wanted.cert_file,
        key_file=wanted.key_file,
        sync=LinkSync(groups=wanted.groups, settings=wanted.settings, **_chosen(wanted.sync)),
        schemas_topic=wanted.schemas_topic,
    )
    made = await request.services.links.create(link, dry_run=wanted.dry_run)
    return AdminReply(_row(LinkSummary(made, 0, 0, 0)), 200 if wanted.dry_run else 201)


@route("GET", "/links/{link}", needs=DESCRIBE_CLUSTER, answer=LinkDetail)
async def describe_link(request: AdminRequest) -> AdminReply:
    """A link with its mirror topics, and how far behind each of their partitions is."""
    report = await request.services.links.describe(request.parameters["link"])
    states = [each.mirror.state for each in report.mirrors]
    stopped, faulted = states.count(MirrorState.STOPPED), states.count(MirrorState.FAULTED)
    row = _row(LinkSummary(report.link, len(states) - stopped, faulted, stopped))
    now_ms = request.services.clock.wall_ms()
    mirrors = [_mirror(each, now_ms) for each in report.mirrors]
    status: LinkStatus = report.status
    taken = [each for each in report.mirrors if not each.mirror.is_read_only]
    last = max(taken, key=lambda each: each.mirror.changed_ms, default=None)
    return AdminReply(
        LinkDetail(
            link=row,
            problem=status.error,
            contact_ms=status.contact_ms,
            problems=status.problems,
            sync_problems=status.sync_problems,
            last_takeover_topic=None if last is None else last.topic,
            last_takeover_ms=None if last is None else last.mirror.changed_ms,
            last_takeover_took_ms=None if last is None else last.mirror.takeover_took_ms or None,
            topics=mirrors,
        )
    )


@route("PATCH", "/links/{link}", needs=ALTER_CLUSTER, body=LinkAlteration, answer=LinkRow)
async def alter_link(request: AdminRequest) -> AdminReply:
    """Change a link: its topics, its limit, the addresses of its source, what is copied besides records."""
    wanted, links = request.read(LinkAlteration), request.services.links
    name = request.parameters["link"]
    link = await links.alter(name, wanted.altered, dry_run=wanted.dry_run)
    found = next((each for each in links.summaries() if each.link.name == name), LinkSummary(link, 0, 0, 0))
    return AdminReply(_row(replace(found, link=link)))


@route("PUT", "/links/{link}/paused", needs=ALTER_CLUSTER, body=PauseRequest)
async def pause_link(request: AdminRequest) -> AdminReply:
    """Pause a link or some of its mirror topics, or let them copy again."""
    wanted, links = request.read(PauseRequest), request.services.links
    await (links.pause if wanted.is_paused else links.resume)(request.parameters["link"], wanted.topics)
    return AdminReply(None, 204)


@route("POST", "/links/{link}/reverse", needs=ALTER_CLUSTER, body=ReverseRequest, answer=ReverseResult)
async def reverse_topic(request: AdminRequest) -> AdminReply:
    """Make a topic here, whose mirror was taken over in the cluster of the link, the mirror of that one."""
    wanted, links = request.read(ReverseRequest), request.services.links
    report = await links.reverse(
        request.parameters["link"], wanted.topic, dry_run=wanted.dry_run, timeout_s=wanted.timeout_s
    )
    return AdminReply(
        ReverseResult(
            topic=report.topic,
            dry_run=report.is_dry_run,
            source_topic=report.source_topic,
            divergent_topic=report.divergent_topic,
            set_aside=report.set_aside,
            aborted=report.aborted,
            undecided=report.undecided,
            is_complete=report.is_complete,
            note=report.note,
        )
    )


@route("DELETE", "/links/{link}", needs=ALTER_CLUSTER)
async def delete_link(request: AdminRequest) -> AdminReply:
    """Delete a link whose mirror topics have been promoted, failed over or deleted."""
    await request.services.links.delete(request.parameters["link"])
    return AdminReply(None, 204)


@route("POST", "/mirrors/{topic}/promote", needs=ALTER_CLUSTER, body=TakeOverRequest, answer=TakeOverResult)
async def promote_mirror(request: AdminRequest) -> AdminReply:
    """Make a mirror topic writable once it has everything of the source."""
    wanted = request.read(TakeOverRequest)
    links = request.services.links
    return _taken(await links.promote(request.parameters["topic"], dry_run=wanted.dry_run, timeout_s=wanted.timeout_s))


@route("POST", "/mirrors/{topic}/failover", needs=ALTER_CLUSTER, body=TakeOverRequest, answer=TakeOverResult)
async def fail_over_mirror(request: AdminRequest) -> AdminReply:
    """Make a mirror topic writable now, whatever of the source is not copied."""
    wanted = request.read(TakeOverRequest)
    return _taken(await request.services.links.failover(request.parameters["topic"], dry_run=wanted.dry_run))


def _taken(report: PromotionReport) -> AdminReply:
    return AdminReply(
        TakeOverResult(report.topic, report.is_dry_run, report.missing_messages, report.missing_seconds, report.took_ms)
    )


def _chosen(choices: Sequence[str]) -> dict[str, bool]:
    return {choice: choice in choices for choice in SYNC_CHOICES}


def _row(summary: LinkSummary) -> LinkRow:
    link = summary.link
    return LinkRow(
        name=link.name,
        bootstrap=list(link.bootstrap),
        state="paused" if link.is_paused else "active",
        topics=list(link.topics),
        exclude=list(link.exclude),
        prefix=link.prefix,
        user=link.user,
        tls=link.tls,
        max_bytes_per_second=link.max_bytes_per_second,
        groups=link.sync.groups,
        settings=link.sync.settings,
        sync=[choice for choice in SYNC_CHOICES if getattr(link.sync, choice)],
        schemas_topic=link.schemas_topic,
        source_cluster_id=link.source_cluster_id,
        created_ms=link.created_ms,
        topic_count=summary.mirrors,
        faulted_count=summary.faulted,
        promoted_count=summary.promoted,
    )


def _mirror(report: MirrorReport, now_ms: float) -> MirrorRow:
    mirror = report.mirror
    notes = (mirror.reason, *report.errors, *_lost(report.lost_messages), home_note(report))
    return MirrorRow(
        topic=report.topic,
        source_topic=mirror.source_topic,
        state=mirror.state.value,
        lag_messages=report.lag_messages,
        lag_seconds=report.lag_seconds,
        copied_bytes=report.bytes_copied,
        lost_messages=report.lost_messages,
        set_aside_messages=report.set_aside,
        is_queue=report.is_queue,
        state_seconds=report.state_seconds,
        note="; ".join(each for each in notes if each),
        partitions=[_partition(each, now_ms) for each in report.partitions],
    )


def _partition(report: PartitionReport, now_ms: float) -> MirrorPartitionRow:
    figures = report.figures
    if figures is None:
        note = "its leader does not answer" if report.leader >= 0 else "it has no leader"
        return MirrorPartitionRow(report.partition, report.leader, "unknown", None, None, None, None, 0, note)
    state = "faulted" if figures.is_faulted else "waiting" if figures.error else "copying"
    return MirrorPartitionRow(
        partition=report.partition,
        leader=report.leader,
        state=state,
        local_end=figures.local_end,
        source_end=figures.source_end,
        lag_messages=figures.lag_messages,
        lag_seconds=figures.lag_seconds(now_ms),
        copied_bytes=figures.bytes_copied,
        note="; ".join((*filter(None, (figures.error,)), *_lost(figures.lost_messages))),
    )


def _lost(messages: int) -> tuple[str, ...]:
    return (f"{messages:,} messages were deleted at the source before they were copied",) if messages else ()
