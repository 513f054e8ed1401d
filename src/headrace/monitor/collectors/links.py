"""Links to other clusters: how far the mirror partitions that this broker leads are behind, and what was copied."""

from collections import defaultdict
from collections.abc import Callable, Iterable

from headrace.cluster.metadata import Metadata
from headrace.mirror.links import Links
from headrace.mirror.reports import PartitionFigures, last_takeover, seconds_behind
from headrace.model.image import ClusterImage
from headrace.model.links import Mirror
from headrace.monitor.scrape import Collector
from headrace.observe.families import Metric, MetricFamily, gauge
from headrace.runtime.clock import Clock

LAG_MESSAGES = gauge(
    "headrace_link_lag_messages",
    "Messages of the source that the mirror partitions led by this broker do not have yet, as of the last contact.",
    "link",
)
LAG_SECONDS = gauge(
    "headrace_link_lag_seconds",
    "The longest time for which one of them has not had everything of the source: what a failover may lose.",
    "link",
)
COPIED = gauge(
    "headrace_link_copied_bytes", "Bytes copied into the mirror partitions since this broker leads them.", "link"
)
LOST = gauge("headrace_link_lost_messages", "Messages that the source had deleted before they were copied.", "link")
FAULTED = gauge(
    "headrace_link_faulted_partitions", "Mirror partitions that copy nothing until someone intervenes.", "link"
)
SET_ASIDE = gauge(
    "headrace_link_set_aside_messages",
    "Messages that were set aside in .divergent topics when the partitions led by this broker became mirrors.",
    "link",
)
SCHEMAS = gauge(
    "headrace_link_schema_versions",
    "Versions of schemas that the link has brought, by the broker that leads the registry.",
    "link",
)
SYNC_PROBLEMS = gauge(
    "headrace_link_sync_problems",
    "Kinds of what is copied besides records (such as acls, schemas) that this broker cannot copy, or not all of it.",
    "link",
)
QUEUE_STATE_SECONDS = gauge(
    "headrace_link_queue_state_seconds",
    "The longest time since the state of a mirrored queue led by this broker was copied: what was received or deleted "
    "since then is redelivered after a takeover.",
    "link",
)
TAKEOVER_SECONDS = gauge(
    "headrace_link_takeover_seconds",
    "How long the last promotion or failover of a topic of the link took (RTO), the same from every broker.",
    "link",
)
METRICS = (
    LAG_MESSAGES,
    LAG_SECONDS,
    COPIED,
    LOST,
    FAULTED,
    SET_ASIDE,
    SCHEMAS,
    SYNC_PROBLEMS,
    QUEUE_STATE_SECONDS,
    TAKEOVER_SECONDS,
)


def link_collector(links: Links, metadata: Metadata, clock: Clock) -> Collector:
    async def collect() -> Iterable[MetricFamily]:
        image, now_ms = metadata.image, clock.wall_ms()
        by_link: dict[str, list[PartitionFigures]] = defaultdict(list)
        for figures in links.own_figures():
            mirror = image.mirrors.get(figures.topic_id)
            if mirror is not None and mirror.is_read_only and mirror.link in image.links:
                by_link[mirror.link].append(figures)
        rows = sorted(by_link.items())

        def family(metric: Metric, figure: Callable[[list[PartitionFigures]], float]) -> MetricFamily:
            return metric.family([(metric.label_text(name), figure(parts)) for name, parts in rows])

        return (
            family(LAG_MESSAGES, lambda parts: sum(each.lag_messages or 0 for each in parts)),
            family(LAG_SECONDS, lambda parts: max(seconds_behind(each, now_ms) for each in parts)),
            family(COPIED, lambda parts: sum(each.bytes_copied for each in parts)),
            family(LOST, lambda parts: sum(each.lost_messages for each in parts)),
            family(FAULTED, lambda parts: sum(each.is_faulted for each in parts)),
            family(SET_ASIDE, lambda parts: sum(_set_aside(image, each) for each in parts)),
            SCHEMAS.family(
                [(SCHEMAS.label_text(name), each.brought) for name, each in sorted(links.schemas.results.items())]
            ),
            SYNC_PROBLEMS.family(
                [(SYNC_PROBLEMS.label_text(name), len(kinds)) for name, kinds in links.own_sync_problems().items()]
            ),
            family(QUEUE_STATE_SECONDS, lambda parts: max(_state_seconds(each, now_ms) for each in parts)),
            TAKEOVER_SECONDS.family(
                [(TAKEOVER_SECONDS.label_text(name), took_ms / 1000) for name, took_ms in _takeovers(image)]
            ),
        )

    return collect


def _state_seconds(figures: PartitionFigures, now_ms: float) -> float:
    """0 for what is no queue; from the beginning of the copying on if nothing was copied yet."""
    since_ms = figures.state_copied_ms
    if since_ms is None:
        since_ms = figures.since_ms if figures.state_error else None
    return 0.0 if since_ms is None else max(0.0, (now_ms - since_ms) / 1000)


def _takeovers(image: ClusterImage) -> list[tuple[str, int]]:
    """How long the last takeover of each link took, by link, where it is known."""
    of_link: dict[str, list[Mirror]] = defaultdict(list)
    for mirror in image.mirrors.values():
        if mirror.link in image.links and image.links[mirror.link].has(mirror):
            of_link[mirror.link].append(mirror)
    last = ((name, last_takeover(mirrors)) for name, mirrors in sorted(of_link.items()))
    return [(name, each.takeover_took_ms) for name, each in last if each is not None and each.takeover_took_ms]


def _set_aside(image: ClusterImage, figures: PartitionFigures) -> int:
    mirror = image.mirrors.get(figures.topic_id)
    parting = None if mirror is None else mirror.parting(figures.partition)
    return 0 if parting is None else parting.set_aside
