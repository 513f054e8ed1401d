"""The lease engine of a share partition against a dictionary: records in order and fairly, deliveries counted, ranges
whole."""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.property.profile import examples

from headrace.coordinator.machine import InternalRecord
from headrace.model.errors import NotInFlight
from headrace.queues.engine.stored import CHUNK
from headrace.queues.share.engine import ShareEngine

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
    position: int | None = None
    """The end of the log when it came back; None if it stands where its offset says."""
    turn: int = 0
    """Which of those that came back it was."""
    passed_by: set[int] = field(default_factory=set)
    """The records that were acquired while this one could have been."""
    kept: tuple[int, int, bool] = (0, 0, False)
    """Deliveries, those that were excused, and whether it is done, as committed."""

    def come_back(self, end: int, turn: int) -> None:
        self.receiver = None
        self.position, self.turn = end, turn
        self.passed_by.clear()
        self.is_done = self.deliveries - self.excused >= MOST_DELIVERIES


class Spans(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_700_000_000_000
        self.records: dict[int, Record] = {}
        self.turns = 0
        self.kept: dict[bytes, bytes] = {}
        self.engine = self.new_engine()
        self.engine.start_at(START)
        self.commit()

    def new_engine(self) -> ShareEngine:
        return ShareEngine(MOST_DELIVERIES, MOST_IN_FLIGHT, LOCK_MS)

    @property
    def end(self) -> int:
        return START + len(self.records)

    def age(self) -> None:
        ended = [(record.until_ms, offset) for offset, record in self.records.items() if record.receiver is not None]
        for until_ms, offset in sorted(ended):
            if until_ms <= self.now_ms:
                self.come_back(offset)

    def come_back(self, offset: int) -> None:
        self.turns += 1
        self.records[offset].come_back(self.end, self.turns)

    def range(self, place: int, length: int) -> tuple[int, int]:
        first = START + place % max(1, len(self.records))
        return first, min(first + length, self.end) - 1

    def available(self, first: int, last: int) -> dict[int, Record]:
        return {
            offset: record
            for offset, record in self.records.items()
            if first <= offset <= last and record.receiver is None and not record.is_done
        }

    def new_records(self, first: int, last: int) -> list[int]:
        return [offset for offset, record in self.available(first, last).items() if record.position is None]

    def returned_records(self, first: int, last: int, reached: int) -> list[int]:
        """Those that came back when the log was no longer than this."""
        found = [
            (record.turn, offset)
            for offset, record in self.available(first, last).items()
            if record.position is not None and record.position <= reached
        ]
        return [offset for _, offset in sorted(found)]

    # -- what may happen

    @rule(count=st.integers(1, 10))
    def records_come(self, count: int) -> None:
        first = self.end
        for offset in range(first, first + count):
            self.records[offset] = Record()
        self.engine.log_end = self.end
        self.engine.index_plain(first, self.end - 1, None, self.now_ms)

    @rule(place=places, length=lengths, most=lengths, receiver=receivers)
    def acquire(self, place: int, length: int, most: int, receiver: str) -> None:
        first, last = self.range(place, length)
        in_flight = sum(record.receiver is not None for record in self.records.values())
        room = max(0, min(most, MOST_IN_FLIGHT - in_flight))
        expected = self.new_records(first, last)[:room]
        if len(expected) < room:
            reached = min(set(self.new_records(START, self.end)) - set(expected), default=self.end)
            expected += self.returned_records(first, last, reached)[: room - len(expected)]
            expected.sort()
        self.check_fair(self.available(first, last), expected)
        spans = self.engine.acquire(first, last, most, self.now_ms, receiver)
        for offset in expected:
            record = self.records[offset]
            record.receiver, record.until_ms, record.deliveries = receiver, self.now_ms + LOCK_MS, record.deliveries + 1
        told = [(offset, span.attempt) for span in spans for offset in range(span.first, span.last + 1)]
        assert told == [(offset, self.records[offset].deliveries) for offset in expected]

    def check_fair(self, available: dict[int, Record], acquired: list[int]) -> None:
        """No record is acquired twice while another one of the same range waits."""
        for offset, record in available.items():
            if offset not in acquired:
                assert record.passed_by.isdisjoint(acquired)
                record.passed_by.update(acquired)

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
        for offset, record in enumerate(records, first):
            if act == "accept":
                record.receiver, record.is_done = None, True
            elif act == "renew":
                record.until_ms = self.now_ms + LOCK_MS
            else:
                record.excused += act == "release excused"
                self.come_back(offset)

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

    def store(self, entries: list[InternalRecord]) -> None:
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
        self.engine.load([InternalRecord(key, value) for key, value in self.kept.items()])
        self.engine.log_end = self.end
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
            record.receiver, record.is_done, record.position = None, look is None, None
            record.passed_by.clear()
            record.deliveries, record.excused = versions[0]
            held = self.engine._inventory.leases.held.get(offset)
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
