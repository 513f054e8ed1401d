"""The lease engine of a share partition against a dictionary: records in order, deliveries counted, ranges whole."""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.property.profile import examples

from headrace.coordinator.machine import Entry
from headrace.model.errors import NotInFlight
from headrace.queues.records import CHUNK
from headrace.queues.spans import SpanEngine

LOCK_MS = 1000
MOST_DELIVERIES = 3
MOST_IN_FLIGHT = 12
START = CHUNK - 10

receivers = st.sampled_from(["a", "b"])
places = st.integers(0, 25)
lengths = st.integers(1, 8)


@dataclass
class Record:
    deliveries: int = 0
    excused: int = 0
    """How many of the deliveries do not count towards the limit."""
    receiver: str | None = None
    until_ms: int = 0
    is_done: bool = False
    kept: tuple[int, int, bool] = (0, 0, False)
    """Deliveries, those that were excused, and whether it is done, as committed."""

    def come_back(self) -> None:
        self.receiver = None
        self.is_done = self.deliveries - self.excused >= MOST_DELIVERIES


class Spans(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_700_000_000_000
        self.records: dict[int, Record] = {}
        self.kept: dict[bytes, bytes] = {}
        self.engine = self.new_engine()
        self.engine.start_at(START)
        self.commit()

    def new_engine(self) -> SpanEngine:
        return SpanEngine(MOST_DELIVERIES, MOST_IN_FLIGHT, LOCK_MS)

    @property
    def end(self) -> int:
        return START + len(self.records)

    def age(self) -> None:
        for record in self.records.values():
            if record.receiver is not None and record.until_ms <= self.now_ms:
                record.come_back()

    def range(self, place: int, length: int) -> tuple[int, int]:
        first = START + place % max(1, len(self.records))
        return first, min(first + length, self.end) - 1

    # -- what may happen

    @rule(count=st.integers(1, 10))
    def records_come(self, count: int) -> None:
        first = self.end
        for offset in range(first, first + count):
            self.records[offset] = Record()
        self.engine.index_plain(first, self.end - 1, None, self.now_ms)

    @rule(place=places, length=lengths, most=lengths, receiver=receivers)
    def acquire(self, place: int, length: int, most: int, receiver: str) -> None:
        first, last = self.range(place, length)
        in_flight = sum(record.receiver is not None for record in self.records.values())
        expected = [
            offset
            for offset, record in self.records.items()
            if first <= offset <= last and record.receiver is None and not record.is_done
        ][: max(0, min(most, MOST_IN_FLIGHT - in_flight))]
        spans = self.engine.acquire(first, last, most, self.now_ms, receiver)
        for offset in expected:
            record = self.records[offset]
            record.receiver, record.until_ms, record.deliveries = receiver, self.now_ms + LOCK_MS, record.deliveries + 1
        told = [(offset, span.attempt) for span in spans for offset in range(span.first, span.last + 1)]
        assert told == [(offset, self.records[offset].deliveries) for offset in expected]

    @rule(
        place=places,
        length=lengths,
        receiver=receivers,
        act=st.sampled_from(["accept", "accept", "release", "release excused", "renew"]),
    )
    def acknowledge(self, place: int, length: int, receiver: str, act: str) -> None:
        first, last = self.range(place, length)
        records = [self.records[offset] for offset in range(first, last + 1)]
        is_theirs = all(record.receiver == receiver for record in records)
        try:
            if act == "accept":
                self.engine.accept(first, last, receiver, self.now_ms)
            elif act == "renew":
                self.engine.renew(first, last, receiver, self.now_ms)
            else:
                self.engine.release(first, last, receiver, self.now_ms, is_excused=act == "release excused")
        except NotInFlight:
            assert not is_theirs
            return
        assert is_theirs
        for record in records:
            if act == "accept":
                record.receiver, record.is_done = None, True
            elif act == "renew":
                record.until_ms = self.now_ms + LOCK_MS
            else:
                record.excused += act == "release excused"
                record.come_back()

    @rule(place=places, length=lengths)
    def archive(self, place: int, length: int) -> None:
        first, last = self.range(place, length)
        self.engine.archive(first, last)
        for offset in range(first, last + 1):
            self.records[offset].receiver, self.records[offset].is_done = None, True

    @rule(passing_ms=st.sampled_from([1, LOCK_MS // 2, LOCK_MS]))
    def time_passes(self, passing_ms: int) -> None:
        self.now_ms += passing_ms
        self.age()
        self.engine.due(self.now_ms)

    @rule()
    def commit(self) -> None:
        self.store(self.engine.take_changes())
        for record in self.records.values():
            record.kept = self.known(record)

    def known(self, record: Record) -> tuple[int, int, bool]:
        """What survives of it: not that it is acquired, but that it was delivered, which is excused then."""
        return record.deliveries, record.excused + (record.receiver is not None), record.is_done

    def store(self, entries: list[Entry]) -> None:
        for key, value in entries:
            if value is None:
                self.kept.pop(key, None)
            else:
                self.kept[key] = value

    @rule(written=st.integers(0, 1000))
    def restart(self, written: int) -> None:
        changes = self.engine.take_changes()
        self.store(changes[: written % (len(changes) + 1)])
        self.engine = self.new_engine()
        self.engine.load([Entry(key, value) for key, value in self.kept.items()])
        self.engine.index_plain(self.engine.indexed_to, self.end - 1, None, self.now_ms)
        self.engine.due(self.now_ms)
        for offset, record in self.records.items():
            look = self.engine.look(offset)
            versions = [
                (deliveries, excused)
                for deliveries, excused, is_done in (self.known(record), record.kept)
                if is_done == (look is None) and (look is None or look.attempt == deliveries)
            ]
            assert versions
            record.receiver, record.is_done = None, look is None
            record.deliveries, record.excused = versions[0]
            held = self.engine._leases.held.get(offset)
            if held is not None:
                assert (held.attempt, held.excused) in versions
                record.deliveries, record.excused = held.attempt, held.excused
        self.commit()

    # -- what must hold

    @invariant()
    def it_is_the_same(self) -> None:
        assert list(self.engine.live(0)) == [offset for offset, record in self.records.items() if not record.is_done]
        for offset, record in self.records.items():
            look = self.engine.look(offset)
            if look is not None:
                state = "available" if record.receiver is None else "in flight"
                assert (look.state, look.attempt) == (state, record.deliveries)
        for receiver in ("a", "b"):
            spans = self.engine.acquired_by(receiver, self.now_ms)
            assert [offset for span in spans for offset in range(span.first, span.last + 1)] == [
                offset for offset, record in self.records.items() if record.receiver == receiver
            ]

    @invariant()
    def the_head_is_the_first_that_is_not_done(self) -> None:
        live = [offset for offset, record in self.records.items() if not record.is_done]
        assert self.engine.head == min(live, default=self.end)


TestSpans = Spans.TestCase
TestSpans.settings = settings(max_examples=examples(50), stateful_step_count=40, deadline=None)
