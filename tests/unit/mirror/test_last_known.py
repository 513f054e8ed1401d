"""Figures of mirror partitions that other brokers have answered, by the clock of this one."""

from uuid import uuid4

from headrace.mirror.last_known import LastKnown
from headrace.mirror.reports import PartitionFigures, PartitionReport, is_copied, mirror_report
from headrace.model.links import Mirror

TOPIC = uuid4()
KEY = TOPIC, 0
AHEAD_MS = 60_000.0
"""The clock of the other broker is a minute ahead."""


def figures(contact_ms: float = 900.0, *, source_end: int | None = 12, inherited: bool = False) -> PartitionFigures:
    """What a leader says that looks at 1,000 of our clock."""
    return PartitionFigures(
        TOPIC,
        0,
        10,
        3,
        source_end,
        caught_up_ms=AHEAD_MS + 700.0,
        contact_ms=AHEAD_MS + contact_ms,
        undecided=1,
        error="away",
        looked_ms=AHEAD_MS + 1000.0,
        is_inherited=inherited,
    )


def test_only_ages_of_another_clock_are_used() -> None:
    known = LastKnown()
    known.note([figures()], asked_ms=980.0)
    progress = known.progress(KEY)
    assert progress is not None
    assert (progress.source_end, progress.undecided, progress.is_inherited) == (12, 1, True)
    assert (progress.contact_ms, progress.caught_up_ms) == (880.0, 680.0), "older than it was, and never younger"
    assert progress.error == ""


def test_what_says_nothing_changes_nothing() -> None:
    known = LastKnown()
    known.note([figures(source_end=None)], asked_ms=1000.0)
    assert known.progress(KEY) is None
    known.note([figures()], asked_ms=1000.0)
    known.note([figures(500.0, inherited=True), figures(source_end=None)], asked_ms=1000.0)
    found = known.get(KEY)
    assert found is not None
    assert found.contact_ms == 900.0, "a leader that has only heard of it knows no more"
    known.note([figures(950.0, inherited=True)], asked_ms=1000.0)
    found = known.get(KEY)
    assert found is not None
    assert found.contact_ms == 950.0


def test_they_survive_a_restart_and_topics_that_are_gone_do_not() -> None:
    known, later = LastKnown(), LastKnown()
    known.note([figures()], asked_ms=1000.0)
    later.load(known.encoded())
    assert later.get(KEY) == known.get(KEY)
    later.load(b"damaged")
    assert later.get(KEY) == known.get(KEY)
    later.keep(set())
    assert later.get(KEY) is None


def test_nothing_is_promoted_by_what_another_leader_has_heard() -> None:
    heard = figures(source_end=10)
    first: dict[tuple[int, int], float] = {(0, 1): 0.0}
    copied = PartitionFigures(TOPIC, 0, 10, 3, 10, caught_up_ms=1.0, contact_ms=1.0, looked_ms=2.0)
    assert is_copied(PartitionReport(0, 1, copied), first)
    inherited = PartitionFigures(TOPIC, 0, 10, 3, 10, 1.0, 1.0, looked_ms=2.0, is_inherited=True)
    assert not is_copied(PartitionReport(0, 1, inherited), first)
    assert not heard.is_inherited


def test_what_may_be_missing_counts_from_when_the_source_was_last_heard() -> None:
    never_caught_up = PartitionFigures(TOPIC, 0, 10, 3, 12, None, 5_000.0, undecided=1, looked_ms=6_000.0)
    mirror = Mirror(TOPIC, "eu", "orders", uuid4(), "eu")
    report = mirror_report("orders", mirror, (PartitionReport(0, 1, never_caught_up),), 8_000.0)
    assert (report.missing_messages, report.missing_seconds, report.lag_seconds) == (3, 3.0, None)
