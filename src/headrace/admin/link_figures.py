"""Links and their mirror topics as lists with figures: searched, sorted and cut into pages, for the dashboard."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace.admin.pages import Listing, Page, PageQuery
from headrace.admin.routes import DESCRIBE_CLUSTER, AdminReply, AdminRequest, route
from headrace.mirror.reports import LinkReport, MirrorReport, home_note, last_takeover, total_lag
from headrace.model.links import MirrorState

_SHOWN_PROBLEMS = 100


class LinkEntry(msgspec.Struct, frozen=True):
    name: str
    state: str
    """active, paused, or unreachable: the source did not answer at the last attempt."""
    problem: str
    """Why the source was not reached at the last attempt; empty if it was."""
    bootstrap: list[str]
    source_cluster_id: str
    prefix: str
    topic_count: int
    """Its mirror topics that are read-only."""
    faulted_count: int
    promoted_count: int
    lag_messages: int | None
    """What a failover of all its topics would lose now; null if that of one is not known."""
    lag_seconds: float | None
    """The longest time since a mirror had everything of the source."""
    copied_per_s: float | None
    """Bytes per second lately; null until the second look."""
    last_takeover_ms: int | None
    """When a topic of it was made writable here last."""
    last_takeover_took_ms: float | None
    """How long that took: from the command until producers could write."""


class TopicProblem(msgspec.Struct, frozen=True):
    topic: str
    problem: str
    reversible: str | None
    """The topic here that was its source and can be made its mirror, by a reversal; null if there is none."""


class LinkFigures(msgspec.Struct, frozen=True):
    link: LinkEntry
    topics: list[str]
    """Regular expressions of topics of the source that are mirrored."""
    exclude: list[str]
    max_bytes_per_second: int | None
    contact_ms: float | None
    problems: list[TopicProblem]
    """Topics of the source that are not mirrored, or not as they are there: the first of them, by name."""
    problem_count: int


class MirrorEntry(msgspec.Struct, frozen=True):
    topic: str
    source_topic: str
    state: str
    """mirroring, paused, promoting, stopped (it was taken over), reversing or faulted."""
    partition_count: int
    lag_messages: int | None
    lag_seconds: float | None
    copied_bytes: int
    lost_messages: int
    note: str
    """What is wrong, or what happened at the last change of its state."""


class MirrorQuery(PageQuery, frozen=True, forbid_unknown_fields=True):
    state: Annotated[
        Literal["", "mirroring", "paused", "promoting", "stopped", "reversing", "faulted"],
        Meta(description="Only mirror topics in this state."),
    ] = ""


_LINKS: Listing[LinkEntry, LinkEntry] = Listing(LinkEntry, lambda each: each, name="name")
_MIRRORS: Listing[MirrorEntry, MirrorEntry] = Listing(MirrorEntry, lambda each: each, name="topic")


@route("GET", "/link-figures", needs=DESCRIBE_CLUSTER, query=PageQuery, answer=Page[LinkEntry])
async def list_link_figures(request: AdminRequest) -> AdminReply:
    """The links with their lag, the rate at which they copy, and their last takeover."""
    reports = await request.services.links.reports()
    return AdminReply(_LINKS.page([_entry(request, each) for each in reports], request.query(PageQuery)))


@route("GET", "/links/{link}/figures", needs=DESCRIBE_CLUSTER, answer=LinkFigures)
async def link_figures(request: AdminRequest) -> AdminReply:
    """One link with its figures, without its mirror topics."""
    report = await request.services.links.describe(request.parameters["link"])
    problems = sorted(report.status.problems.items())
    return AdminReply(
        LinkFigures(
            _entry(request, report),
            list(report.link.topics),
            list(report.link.exclude),
            report.link.max_bytes_per_second,
            report.status.contact_ms,
            [
                TopicProblem(topic, problem, report.status.reversible.get(topic))
                for topic, problem in problems[:_SHOWN_PROBLEMS]
            ],
            len(problems),
        )
    )


@route("GET", "/links/{link}/topics", needs=DESCRIBE_CLUSTER, query=MirrorQuery, answer=Page[MirrorEntry])
async def list_mirrors(request: AdminRequest) -> AdminReply:
    """The mirror topics of a link, and how far behind each is."""
    query = request.query(MirrorQuery)
    report = await request.services.links.describe(request.parameters["link"])
    entries = [_mirror(each) for each in report.mirrors if query.state in ("", each.mirror.state.value)]
    return AdminReply(_MIRRORS.page(entries, query))


def _entry(request: AdminRequest, report: LinkReport) -> LinkEntry:
    link, error = report.link, report.status.error
    mirrors = [each for each in report.mirrors if each.mirror.is_read_only]
    last = last_takeover(each.mirror for each in report.mirrors)
    lags, ages = [each.lag_messages for each in mirrors], [each.lag_seconds for each in mirrors]
    links = request.services.links
    copied = sum(each.bytes_copied for each in mirrors)
    return LinkEntry(
        name=link.name,
        state="paused" if link.is_paused else "unreachable" if error else "active",
        problem=error,
        bootstrap=list(link.bootstrap),
        source_cluster_id=link.source_cluster_id,
        prefix=link.prefix,
        topic_count=len(mirrors),
        faulted_count=sum(each.mirror.state is MirrorState.FAULTED for each in mirrors),
        promoted_count=len(report.mirrors) - len(mirrors),
        lag_messages=total_lag(lags),
        lag_seconds=None if None in ages else max((each for each in ages if each is not None), default=0.0),
        copied_per_s=links.rates.note(link.name, copied, request.services.clock.wall_ms()),
        last_takeover_ms=None if last is None else last.changed_ms,
        last_takeover_took_ms=None if last is None else last.takeover_took_ms or None,
    )


def _mirror(report: MirrorReport) -> MirrorEntry:
    mirror = report.mirror
    is_copy = mirror.is_read_only
    return MirrorEntry(
        topic=report.topic,
        source_topic=mirror.source_topic,
        state=mirror.state.value,
        partition_count=len(report.partitions),
        lag_messages=report.lag_messages if is_copy else None,
        lag_seconds=report.lag_seconds if is_copy else None,
        copied_bytes=report.bytes_copied,
        lost_messages=report.lost_messages,
        note="; ".join(filter(None, (mirror.reason, *report.errors, home_note(report)))),
    )
