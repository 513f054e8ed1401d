"""What the brokers say about links and mirror topics, to each other and to people."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

import msgspec

from headrace.model.features import LINKS_LEVEL
from headrace.model.links import DIVERGENT_SUFFIX, Link, Mirror, MirrorState
from headrace.replication.calls import Call

_COUNT_MAX = 2**53
FRESH_S = 5.0
"""A source that has answered within this time counts as reachable."""


class AskMirrorFigures(Call, frozen=True):
    """The figures of the partitions of these mirror topics that the broker leads: a list of `PartitionFigures`."""

    level = LINKS_LEVEL

    topics: list[UUID]


class AskLinkStatus(Call, frozen=True):
    """What the controller knows of the source cluster of a link: a `LinkStatus`."""

    level = LINKS_LEVEL

    link: str


class AskSchemaSync(Call, frozen=True):
    """Why the schemas of a link are not copied, or not all of them, as the leader of the registry knows it: a text."""

    level = LINKS_LEVEL

    link: str


class AskPartings(Call, frozen=True):
    """Where the partitions of a topic that the broker leads part from a topic of the source of a link: a list of
    `PartingFigures`. Nothing is changed."""

    level = LINKS_LEVEL

    topic_id: UUID
    link: str
    source_topic: str
    promoted_epoch: int


class WriteDivergent(Call, frozen=True):
    """Append a batch to a partition of a `.divergent` topic, on the broker that leads it; answered when committed."""

    level = LINKS_LEVEL

    topic_id: UUID
    partition: int
    batch: bytes


class SetGroupsBack(Call, frozen=True):
    """Set the consumer groups that the broker coordinates back to where a topic parts from its new source."""

    level = LINKS_LEVEL

    topic_id: UUID
    reversed_ms: int
    """The time of the reversal, which the broker must know of."""
    coordinates: dict[int, int]
    """Partitions of the offsets topic that it must lead, with their leader epochs: otherwise it refuses."""


LinkCall = AskMirrorFigures | AskLinkStatus | AskSchemaSync | AskPartings | WriteDivergent | SetGroupsBack


class AskVerifiers(Call, frozen=True):
    """Asks another cluster for what verifies the passwords of its users: `SourceVerifiers` of `user_plan.py`.

    It is the only call that a link makes in an Envelope: see `kafka/link_verifiers.py`.
    """

    level = LINKS_LEVEL

    known: str = ""
    """The digest of the last answer: with the same one, no verifier is sent."""


class PartingFigures(msgspec.Struct, array_like=True, frozen=True):
    """A `Parting`, between brokers."""

    partition: int
    offset: int
    end: int
    set_aside: int
    aborted: int
    undecided: int


class PartitionFigures(msgspec.Struct, array_like=True, frozen=True):
    """A mirror partition, on the broker that leads it."""

    topic_id: UUID
    partition: int
    local_end: int
    """The high watermark: what is below it survives a failover of brokers here."""
    log_epoch: int
    """The highest leader epoch in its log; -1 if there is none."""
    source_end: int | None = None
    caught_up_ms: float | None = None
    contact_ms: float | None = None
    bytes_copied: int = 0
    lost_messages: int = 0
    error: str = ""
    is_faulted: bool = False
    undecided: int = 0
    """Messages of the source that cannot be copied yet: those of open transactions, and what follows them."""
    since_ms: float | None = None
    """When its leader began to copy it; None if it never did."""
    looked_ms: float | None = None
    """The time of these figures by the leader's clock; None if nothing was copied there."""
    state_copied_ms: float | None = None
    """Of the mirror of a queue: when the source was asked for the state of its messages that is stored here; None if
    none is."""
    state_error: str = ""
    """Why that state is not copied now."""
    is_inherited: bool = False
    """The source was heard by an earlier leader, and not since."""
    state_end: int | None = None
    """The state of messages below this offset is stored, as of `state_copied_ms`; None if no state is, or if the leader
    is of a version that does not say."""

    @property
    def lag_messages(self) -> int | None:
        """Messages of the source that are not copied yet, as of the last contact; None before the first one."""
        return None if self.source_end is None else max(0, self.source_end - self.local_end)

    def has_state_since(self, since_ms: float) -> bool:
        """Whether the state of all messages that are here was copied since then."""
        has_all = self.state_end is None or self.state_end >= self.local_end
        return has_all and self.state_copied_ms is not None and self.state_copied_ms > since_ms

    def lag_seconds(self, now_ms: float) -> float | None:
        """For how long the mirror has not been known to have everything; None if it never was."""
        if self.caught_up_ms is None:
            return None
        is_fresh = self.contact_ms is not None and now_ms - self.contact_ms < FRESH_S * 1000
        return 0.0 if is_fresh and not self.lag_messages else max(0.0, (now_ms - self.caught_up_ms) / 1000)

    def unconfirmed_seconds(self, now_ms: float) -> float | None:
        """The time since the source was last heard, however short; None if it never was. What it had then and the
        mirror has not is in `lag_messages` and `undecided`."""
        return None if self.contact_ms is None else max(0.0, (now_ms - self.contact_ms) / 1000)


def seconds_behind(figures: PartitionFigures, now_ms: float) -> float:
    """`lag_seconds`, or the time for which its leader has tried to catch up since it began, if it never was."""
    if (known := figures.lag_seconds(now_ms)) is not None:
        return known
    return 0.0 if figures.since_ms is None else max(0.0, (now_ms - figures.since_ms) / 1000)


class LinkStatus(msgspec.Struct, array_like=True, frozen=True):
    """The last contact of the controller with the source cluster of a link."""

    contact_ms: float | None = None
    error: str = ""
    """Why the last attempt failed; empty if it did not."""
    problems: dict[str, str] = {}
    """By source topic: why it is not mirrored, or not as it is at the source."""
    sync_problems: dict[str, str] = {}
    """By what else is copied, such as acls: why it is not, or not all of it."""
    reversible: dict[str, str] = {}
    """By source topic with a problem: the topic here that was its source before it was taken over there, and can become
    its mirror."""


@dataclass(frozen=True, slots=True)
class PartitionReport:
    partition: int
    leader: int
    figures: PartitionFigures | None
    """None if its leader does not answer."""


@dataclass(frozen=True, slots=True)
class MirrorReport:
    """A mirror topic and how far it is."""

    topic: str
    mirror: Mirror
    partitions: tuple[PartitionReport, ...]
    lag_messages: int | None
    """Of all partitions; None if that of one is not known."""
    lag_seconds: float | None
    """The longest of all partitions; None if that of one is not known."""
    bytes_copied: int
    lost_messages: int
    undecided: int
    """Messages that wait for the end of a transaction at the source; they are not part of `lag_messages`."""
    errors: tuple[str, ...]
    """Of its partitions, each once."""
    missing_seconds: float | None = None
    """The time before now, since the source was last heard, whose messages may be missing besides `missing_messages`;
    None if that is not known."""
    state_seconds: float | None = None
    """Of the mirror of a queue: the age of the state of its messages here. What was received and deleted at the source
    since then is redelivered after a takeover. None if none was copied, or it is no queue."""
    state_error: str = ""
    """Why that state is not copied now."""

    @property
    def is_queue(self) -> bool:
        """True if it is a queue at the source, and becomes one here when it is taken over."""
        return bool(self.mirror.queue) and self.mirror.is_read_only

    @property
    def missing_messages(self) -> int | None:
        """All messages of the source that are not here, as of the last contact; None if that is not known."""
        return None if self.lag_messages is None else min(_COUNT_MAX, self.lag_messages + self.undecided)

    @property
    def set_aside(self) -> int:
        """Messages in the divergent topic, if it is a former source that was reversed."""
        return sum(each.set_aside for each in self.mirror.partings)


@dataclass(frozen=True, slots=True)
class LinkReport:
    link: Link
    status: LinkStatus
    mirrors: tuple[MirrorReport, ...]
    """By topic."""


def last_takeover(mirrors: Iterable[Mirror]) -> Mirror | None:
    """The one of these that was taken over last."""
    taken = [mirror for mirror in mirrors if not mirror.is_read_only]
    return max(taken, key=lambda mirror: mirror.changed_ms, default=None)


@dataclass(frozen=True, slots=True)
class LinkSummary:
    link: Link
    mirrors: int
    """Its mirror topics that are read-only."""
    faulted: int
    promoted: int


@dataclass(frozen=True, slots=True)
class PromotionReport:
    """A promotion or failover, or what it would do."""

    topic: str
    is_dry_run: bool
    missing_messages: int | None
    """Messages of the source that were not copied, as of the last contact with it; None if that is not known."""
    missing_seconds: float | None
    """The time before the promotion whose messages may be missing; None if that is not known."""
    took_ms: float


@dataclass(frozen=True, slots=True)
class ReversalReport:
    """A reversal, or what it would do."""

    topic: str
    is_dry_run: bool
    source_topic: str
    divergent_topic: str
    set_aside: int
    """Messages that the new source never had; they are in the divergent topic."""
    aborted: int
    """Messages among them of aborted transactions: they are not set aside."""
    undecided: int
    """Messages among them of transactions without an end: they are not set aside."""
    is_complete: bool
    """Everything is set aside, and the records of the new source are copied; False if that still goes on."""
    note: str
    """Why it has not ended yet, as far as is known."""


def reversal_report(topic: str, mirror: Mirror, *, is_dry_run: bool = False) -> ReversalReport:
    """How far a reversal is, by the record of its topic."""
    is_complete = mirror.state is not MirrorState.REVERSING
    return ReversalReport(
        topic,
        is_dry_run,
        mirror.source_topic,
        topic + DIVERGENT_SUFFIX,
        set_aside=sum(each.set_aside for each in mirror.partings),
        aborted=sum(each.aborted for each in mirror.partings),
        undecided=sum(each.undecided for each in mirror.partings),
        is_complete=is_complete,
        note="" if is_complete else mirror.reason,
    )


def planned_reversal(topic: str, source_topic: str, rows: Iterable[PartingFigures]) -> ReversalReport:
    """What a reversal would set aside."""
    found = tuple(rows)
    return ReversalReport(
        topic,
        is_dry_run=True,
        source_topic=source_topic,
        divergent_topic=topic + DIVERGENT_SUFFIX,
        set_aside=sum(each.set_aside for each in found),
        aborted=sum(each.aborted for each in found),
        undecided=sum(each.undecided for each in found),
        is_complete=False,
        note="",
    )


def is_copied(report: PartitionReport, first: dict[tuple[int, int], float], *, is_queue: bool = False) -> bool:
    """True if a partition has had everything of the source since the first look at it, in sync replicas included; if
    it `is_queue`, the state of its messages as well.

    `first` has the times of the first looks. Times are those of the leader's clock, which may differ from the clock
    here: they are compared only with times of the same leader. The source must have been asked after the first look:
    an answer that was in flight then does not have what the source got before.
    """
    figures = report.figures
    if figures is None or figures.looked_ms is None or figures.is_inherited:
        return False
    since_ms = first.setdefault((report.partition, report.leader), figures.looked_ms)
    is_caught_up = figures.caught_up_ms is not None and figures.caught_up_ms > since_ms
    if is_queue and not figures.has_state_since(since_ms):
        return False
    return is_caught_up and figures.lag_messages == 0 and not figures.undecided


def not_ready(report: MirrorReport, behind: int, waited_s: float, source_says: str) -> str:
    """Why a topic is not promoted of which so many partitions may lack something, and what to do."""
    topic, source = report.topic, report.mirror.source_topic
    lag, undecided = report.lag_messages, report.undecided
    reasons = "; ".join(each for each in (*report.errors[:1], report.state_error, source_says) if each)
    if reasons and not lag:
        return (
            f"{topic} is not promoted: after {waited_s:g} s it is not known whether it has everything of {source}: "
            f"{reasons}. If the source is lost, use headrace link failover {topic}"
        )
    head = f"it is not known how far {topic} is" if lag is None else f"{topic} is still {count_of(lag, 'message')}"
    more = f" ({undecided:,} more wait for the end of a transaction there)" if undecided else ""
    why = f": {reasons}" if reasons else ""
    return (
        f"{head}{more} behind in {count_of(behind, 'partition')} after {waited_s:g} s{why}. Stop the "
        f"producers of {source} and try again, or use headrace link failover {topic}"
    )


def count_of(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def mirror_report(topic: str, mirror: Mirror, partitions: tuple[PartitionReport, ...], now_ms: float) -> MirrorReport:
    """Sum up the partitions of a mirror topic."""
    figures = [each.figures for each in partitions]
    known = [each for each in figures if each is not None]
    lags = [None if each is None else each.lag_messages for each in figures]
    ages = [None if each is None else each.lag_seconds(now_ms) for each in figures]
    unconfirmed = [None if each is None else each.unconfirmed_seconds(now_ms) for each in figures]
    return MirrorReport(
        topic,
        mirror,
        partitions,
        lag_messages=total_lag(lags),
        lag_seconds=_longest(ages),
        bytes_copied=sum(each.bytes_copied for each in known),
        lost_messages=sum(each.lost_messages for each in known),
        undecided=sum(each.undecided for each in known),
        errors=tuple(dict.fromkeys(each.error for each in known if each.error)),
        missing_seconds=_longest(unconfirmed),
        state_seconds=_state_age(known, now_ms),
        state_error=next((each.state_error for each in known if each.state_error), ""),
    )


def home_note(report: MirrorReport) -> str:
    """Where the home of a mirrored queue is, and how old the state of its messages here is; empty for a topic."""
    if not report.is_queue:
        return ""
    state = "the state of its messages is not copied yet"
    if report.state_seconds is not None:
        state = f"the state of its messages is of {report.state_seconds:.1f} s ago"
    why = f" ({report.state_error})" if report.state_error else ""
    return f"a queue whose home is the source: {state}{why}"


def _state_age(known: Sequence[PartitionFigures], now_ms: float) -> float | None:
    copied_ms = next((each.state_copied_ms for each in known if each.state_copied_ms is not None), None)
    return None if copied_ms is None else max(0.0, (now_ms - copied_ms) / 1000)


def total_lag(lags: Sequence[int | None]) -> int | None:
    """The sum; None if one is not known. At most what JSON readers read exactly, whatever sources say."""
    return None if None in lags else min(_COUNT_MAX, sum(each for each in lags if each is not None))


def _longest(seconds: Sequence[float | None]) -> float | None:
    """None if one is not known."""
    return None if None in seconds else max((each for each in seconds if each is not None), default=0.0)
