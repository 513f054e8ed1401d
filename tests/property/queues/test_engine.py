"""The lease engine against a dictionary: the same messages to the same receivers, whatever happens, and after a restart
from any part of what it wanted to be kept, nothing else than what was answered or could have been.
"""

from collections.abc import Callable
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.property.profile import examples
from tests.property.queues.naive import AVAILABLE, DEAD, DONE, HIDDEN, IN_FLIGHT, Message, NaiveQueue

from headrace.config.queue import MAX_VISIBILITY_MS, QueueSettings
from headrace.coordinator.machine import InternalRecord
from headrace.model.errors import LeaseTooLong, NotInFlight, TooManyInFlight
from headrace.queues.engine.chunk_index import LogMessage
from headrace.queues.engine.engine import Engine, Lease
from headrace.queues.engine.moved_pages import PageSlot
from headrace.queues.engine.packed_times import STEP_MS
from headrace.queues.engine.stored import CHUNK

START_MS = 1_700_000_000_000 // STEP_MS * STEP_MS
STEPS_PER_SECOND = 15
MINUTE = 60 * STEPS_PER_SECOND

SETTINGS = {
    "standard": QueueSettings(type="standard", visibility_timeout_ms=64_000),
    "delayed": QueueSettings(type="standard", visibility_timeout_ms=64_000, delay_ms=640),
    "dead letters": QueueSettings(
        type="standard", visibility_timeout_ms=64_000, max_receives=2, dead_letter="d", max_in_flight=7
    ),
    "retries": QueueSettings(
        type="standard",
        visibility_timeout_ms=64_000,
        max_receives=4,
        dead_letter="d",
        retry_backoff_ms=64_000,
        retry_backoff_max_ms=192_000,
    ),
    "short retention": QueueSettings(type="standard", visibility_timeout_ms=64_000, retention_ms=640_000),
    "fifo": QueueSettings(type="fifo", visibility_timeout_ms=64_000, max_in_flight=9),
    "fifo by group": QueueSettings(
        type="fifo",
        visibility_timeout_ms=64_000,
        dedupe_scope="messageGroup",
        max_receives=3,
        dead_letter="d",
        retry_backoff_ms=640,
    ),
}

steps = st.sampled_from([0, 1, 10, 20, MINUTE, 3 * MINUTE, 60 * MINUTE, 3 * 24 * 60 * MINUTE])
"""Of time, in the engine's steps."""
some = st.integers(0, 1_000_000)


class Engines(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.log: dict[int, LogMessage] = {}
        self.log_start = 0
        self.end = 0
        """The next offset of the log."""
        self.kept: dict[bytes, bytes] = {}
        self.pending: list[InternalRecord] = []
        """Taken from the engine, and not committed."""

    @initialize(kind=st.sampled_from(sorted(SETTINGS)), start=st.sampled_from([0, CHUNK - 5]))
    def begin(self, kind: str, start: int) -> None:
        self.settings = SETTINGS[kind]
        self.naive = NaiveQueue(self.settings, START_MS)
        self.committed: dict[int, Message] = {}
        """The messages as they were when everything was committed last."""
        self.snapshots: list[dict[int, Message]] = []
        """As they were whenever something was taken since."""
        self.engine = self.new_engine()
        self.end = start
        self.engine.drop_before(start)

    def new_engine(self) -> Engine:
        engine = Engine(self.settings, lambda: 0.5)
        # Two neighbours are a group already, so that groups are often cut apart.
        engine._inventory.leases.group_from = 2
        return engine

    @property
    def now_ms(self) -> int:
        return self.naive.now_ms

    # -- messages come

    def arrive(self, arrival: LogMessage) -> None:
        self.log[arrival.offset] = arrival
        self.end = arrival.offset + 1

    @rule(
        count=st.integers(1, 4),
        priority=st.sampled_from([4, 4, 4, 0, 9]),
        due=st.none() | steps,
        ttl=st.none() | steps,
        group=st.sampled_from([None, b"a", b"b"]),
        dedupe=st.sampled_from([None, None, b"x", b"y"]),
    )
    def send(
        self, count: int, priority: int, due: int | None, ttl: int | None, group: bytes | None, dedupe: bytes | None
    ) -> None:
        first = self.end
        self.append(count, priority, due, ttl, group, dedupe)
        new = [arrival for offset, arrival in self.log.items() if offset >= first]
        told = self.engine.index(new, self.now_ms)
        known = {duplicate.offset for duplicate in told}
        originals = [(arrival.offset, self.naive.send(arrival, is_known=arrival.offset in known)) for arrival in new]
        assert told == [(offset, one.offset, one.id) for offset, one in originals if one is not None]

    def append(
        self, count: int, priority: int, due: int | None, ttl: int | None, group: bytes | None, dedupe: bytes | None
    ) -> None:
        for _ in range(count):
            due_ms = None if due is None else self.now_ms + due * STEP_MS
            expires_ms = None if ttl is None else self.now_ms + ttl * STEP_MS
            self.arrive(LogMessage(self.end, self.now_ms, priority, due_ms, expires_ms, group, dedupe, f"id{self.end}"))

    @rule(stream=st.integers(1, 2), count=st.integers(1, 4), group=st.sampled_from([None, b"a", b"b"]))
    def carry_here(self, stream: int, count: int, group: bytes | None) -> None:
        """The next page from another queue."""
        page = max((place.page for place in self.naive.places if place.stream == stream), default=0) + 1
        self.send_page(stream, page, count, group)

    @rule(stream=st.integers(1, 2), count=st.integers(1, 4))
    def carry_again(self, stream: int, count: int) -> None:
        """The last page once more, whenever, and whatever is left of it."""
        known = [place for place in self.naive.places if place.stream == stream]
        if known:
            page = max(place.page for place in known)
            self.send_page(stream, page, min(count, sum(place.page == page for place in known)), None)

    def send_page(self, stream: int, page: int, count: int, group: bytes | None) -> None:
        first = self.end
        for at in range(count):
            place = PageSlot(stream, page, at)
            self.arrive(LogMessage(self.end, self.now_ms, 4, self.now_ms, group=group, id=f"id{self.end}", place=place))
        new = [self.log[offset] for offset in range(first, self.end)]
        told = self.engine.index(new, self.now_ms)
        again = [self.naive.send(arrival) for arrival in new]
        assert told == [(one.offset, one.offset, one.id) for one in again if one is not None]

    @rule(count=st.integers(1, 20))
    def send_plain(self, count: int) -> None:
        first = self.end
        for offset in range(first, first + count):
            self.arrive(LogMessage(offset, self.now_ms))
            self.naive.send(self.log[offset])
        self.engine.index_plain(first, self.end - 1, self.now_ms, self.now_ms)

    @rule(count=st.sampled_from([1, 3, CHUNK - 7, CHUNK + 1]), is_told=st.booleans())
    def leave_a_gap(self, count: int, is_told: bool) -> None:
        if is_told:
            self.engine.skip(self.end, self.end + count - 1)
        self.end += count

    # -- what is done with them

    def leased(self, most: int, visibility_ms: int, *, as_ranges: bool) -> list[Lease]:
        if not as_ranges or self.settings.is_fifo:
            return self.engine.receive(most, self.now_ms, visibility_ms)
        return [
            Lease(offset, each.attempt, each.deadline_ms, each.first_received_ms)
            for each in self.engine.receive_ranges(most, self.now_ms, visibility_ms)
            for offset in range(each.first, each.last + 1)
        ]

    @rule(most=st.integers(1, 12), visibility=steps, as_ranges=st.booleans())
    def receive(self, most: int, visibility: int, as_ranges: bool) -> None:
        visibility_ms = min(visibility * STEP_MS, MAX_VISIBILITY_MS)
        self.settle_retention()
        try:
            leases = self.leased(most, visibility_ms, as_ranges=as_ranges)
        except TooManyInFlight:
            leased = self.naive.count(IN_FLIGHT) - len(self.held())
            assert leased >= self.settings.max_in_flight
            assert self.naive.receivable()
            return
        assert len(leases) == self.naive.may_receive(most)
        messages = self.naive.received([lease.offset for lease in leases], visibility_ms)
        for lease, message in zip(leases, messages, strict=True):
            assert (lease.attempt, lease.deadline_ms) == (message.attempt, message.until_ms)
            assert lease.first_received_ms == message.first_received_ms
        self.naive.advance(self.now_ms)
        self.engine.due(self.now_ms)

    @rule(which=some, count=st.integers(1, 4))
    def hold(self, which: int, count: int) -> None:
        self.settle_retention()
        found = list(self.naive.messages.values())
        wanted = found[which % len(found) :][:count] if found else []
        held = self.engine.hold([(each.offset, each.arrival.group or b"") for each in wanted], self.now_ms)
        assert held == [message.offset for message in self.naive.hold(wanted)]

    def held(self) -> list[Message]:
        return [message for message in self.naive.messages.values() if message.is_held and message.state != DONE]

    @rule(which=some, is_moved=st.booleans())
    def settle_held(self, which: int, is_moved: bool) -> None:
        held = self.held()
        if held:
            message = held[which % len(held)]
            if is_moved:
                self.engine.moved(message.offset)
                message.state = DONE
            else:
                self.engine.release(message.offset, self.now_ms)
                self.naive.release(message)

    def settle_retention(self) -> None:
        """Retention may be late: what the engine has let go already is gone."""
        self.engine.due(self.now_ms)
        for message in self.naive.messages.values():
            is_in_question = message.state != DONE and self.naive.is_nearly_too_old(message)
            if is_in_question and self.engine.look(message.offset) is None:
                message.state = DONE

    def one_of(self, which: int, *, is_received: bool) -> Message | None:
        found = [message for message in self.naive.messages.values() if bool(message.attempt) == is_received]
        live = [message for message in found if message.state != DONE]
        return (live or found)[which % len(live or found)] if found else None

    @rule(which=some, is_stale=st.sampled_from([False, False, False, True]))
    def acknowledge(self, which: int, is_stale: bool) -> None:
        message = self.one_of(which, is_received=True)
        if message is not None:
            attempt = message.attempt - is_stale
            is_fine = self.naive.acknowledge(message.offset, attempt)
            (failure,) = self.engine.acknowledge([(message.offset, attempt)], self.now_ms)
            assert is_fine == (failure is None)

    @rule(which=some, count=st.integers(1, 6), is_stale=st.sampled_from([False, True]), is_any=st.booleans())
    def acknowledge_some(self, which: int, count: int, is_stale: bool, is_any: bool) -> None:
        """Some in a row, received or not, and one of them twice."""
        self.settle_retention()
        found = list(self.naive.messages.values())
        wanted = found[which % len(found) :][:count] if found else []
        leases = [(message.offset, message.attempt - is_stale) for message in wanted + wanted[:1]]
        expected = [self.naive.acknowledge(*lease, any_attempt=is_any) for lease in leases]
        failures = self.engine.acknowledge(leases, self.now_ms, any_attempt=is_any)
        assert [failure is None for failure in failures] == expected

    @rule(which=some, count=st.integers(1, 8), attempt=st.sampled_from([1, 1, 1, 2]))
    def acknowledge_range(self, which: int, count: int, attempt: int) -> None:
        """Some in a row, received or not."""
        self.settle_retention()
        found = sorted(self.naive.messages)
        first = found[which % len(found)] if found else 0
        wanted = range(first, first + count)
        if found and all(offset in self.naive.messages for offset in wanted):
            failed = {offset for offset in wanted if not self.naive.acknowledge(offset, attempt)}
            failures = self.engine.acknowledge_range(first, first + count - 1, attempt, self.now_ms)
            assert failures.keys() == failed

    @rule(which=some, visibility=steps, is_stale=st.sampled_from([False, False, False, True]))
    def extend(self, which: int, visibility: int, is_stale: bool) -> None:
        message = self.one_of(which, is_received=True)
        if message is None:
            return
        attempt, visibility_ms = message.attempt - is_stale, visibility * STEP_MS
        is_leased = self.naive.is_leased(message.offset, attempt)
        is_current = self.naive.is_current(message.offset, attempt)
        is_too_long = self.now_ms + visibility_ms - message.received_ms > MAX_VISIBILITY_MS
        try:
            self.engine.extend(message.offset, attempt, visibility_ms, self.now_ms)
        except NotInFlight:
            assert not is_current
        except LeaseTooLong:
            assert is_current
            assert is_too_long
        else:
            assert is_current
            assert not is_too_long
            if visibility_ms:
                message.state, message.until_ms = IN_FLIGHT, self.now_ms + visibility_ms
                message.passed_by.clear()
                self.naive.age(message)
            elif is_leased:
                self.naive.nack(message.offset, 0)

    @rule(which=some, delay=st.none() | steps, is_stale=st.sampled_from([False, False, False, True]))
    def nack(self, which: int, delay: int | None, is_stale: bool) -> None:
        message = self.one_of(which, is_received=True)
        if message is None:
            return
        attempt, delay_ms = message.attempt - is_stale, None if delay is None else delay * STEP_MS
        is_leased = self.naive.is_leased(message.offset, attempt)
        try:
            self.engine.nack(message.offset, attempt, self.now_ms, delay_ms)
        except NotInFlight:
            assert not is_leased
        else:
            assert is_leased
            self.naive.nack(message.offset, delay_ms)

    @rule()
    def bury_the_dead(self) -> None:
        for dead in self.engine.dead():
            message = self.naive.messages[dead.offset]
            assert message.state == DEAD
            assert dead.attempt == message.attempt
            self.engine.moved(dead.offset)
            message.state = DONE

    @rule(written=st.none() | some)
    def purge(self, written: int | None) -> None:
        """It is answered when it is committed; or the engine starts again before that."""
        self.engine.skip(self.end, self.end - 1)
        self.engine.purge()
        firsts = self.naive.firsts.copy()
        self.naive.purge()
        if written is None:
            self.commit()
        else:
            self.naive.purged |= firsts
            self.restart(written, 0, 0, None, None)

    @rule(passing=steps)
    def time_passes(self, passing: int) -> None:
        self.naive.advance(self.now_ms + passing * STEP_MS)
        self.settle_retention()

    # -- what is kept

    @rule()
    def take(self) -> None:
        self.pending += self.engine.take_changes()
        self.snapshots.append(self.naive.snapshot())

    @rule()
    def commit(self) -> None:
        self.take()
        log_start = self.engine.log_start
        assert log_start >= self.log_start
        self.store(self.pending)
        self.pending = []
        self.committed, self.snapshots = self.naive.snapshot(), []
        self.log_start = log_start
        self.log = {offset: arrival for offset, arrival in self.log.items() if offset >= log_start}
        self.there_are_few_keys()

    def store(self, entries: list[InternalRecord]) -> None:
        for key, value in entries:
            if value is None:
                self.kept.pop(key, None)
            else:
                self.kept[key] = value

    def there_are_few_keys(self) -> None:
        chunks = (self.end // CHUNK) - (self.engine.head // CHUNK) + 1
        kinds = [key[:1] for key in self.kept]
        held = sum(message.attempt > 0 and message.state != DONE for message in self.naive.messages.values())
        assert kinds.count(b"m") + kinds.count(b"l") <= held
        assert kinds.count(b"d") <= chunks
        assert kinds.count(b"i") <= chunks
        assert kinds.count(b"h") <= 1

    @rule(
        written=some,
        passing=steps,
        unseen=st.integers(0, 2),
        group=st.sampled_from([None, b"a"]),
        dedupe=st.sampled_from([None, b"x"]),
    )
    def restart(self, written: int, passing: int, unseen: int, group: bytes | None, dedupe: bytes | None) -> None:
        """At any place in what was to be kept; meanwhile time passes, and messages that the engine had not seen."""
        self.take()
        self.store(self.pending[: written % (len(self.pending) + 1)])
        self.pending = []
        first = self.end
        self.append(unseen, 4, None, None, group, None if self.naive.purged else dedupe)
        for offset in range(first, self.end):
            self.naive.send(self.log[offset])
        self.naive.advance(self.now_ms + passing * STEP_MS)
        for versions in (self.naive.messages, self.committed, *self.snapshots):
            for message in versions.values():
                message.release()
        self.engine = self.new_engine()
        self.engine.load([InternalRecord(key, value) for key, value in self.kept.items()])
        self.engine.drop_before(self.log_start)
        again = [arrival for offset, arrival in self.log.items() if offset >= self.engine.indexed_to]
        self.engine.index(again, self.now_ms)
        self.engine.due(self.now_ms)
        for offset, message in self.naive.messages.items():
            if offset not in self.committed or self.committed[offset].state != DONE:
                self.adopt(offset, message)
        self.take()
        self.store(self.pending)
        self.pending = []
        for message in self.naive.messages.values():
            message.passed_by.clear()
            message.position = self.end
        self.committed, self.snapshots = self.naive.snapshot(), []

    def adopt(self, offset: int, message: Message) -> None:
        """The message is in a state that was committed, or that it got into since."""
        look = self.engine.look(offset)
        seen = None if look is None else tuple(look)
        versions = [snapshot[offset] for snapshot in self.snapshots if offset in snapshot]
        versions.append(self.committed[offset] if offset in self.committed else self.naive.fresh(message.arrival))
        for version in versions:
            self.naive.age(version)
            is_seen = seen is None if version.state == DONE else seen == version.seen
            if is_seen or (seen is None and self.naive.is_nearly_too_old(version)):
                version.state = DONE if seen is None else version.state
                self.naive.messages[offset] = version
                return
        raise AssertionError(f"message {offset} is {seen}, and was never {[version.seen for version in versions]}")

    @rule(seed=st.integers(0, 1 << 32), count=st.integers(1, 40))
    def much_happens(self, seed: int, count: int) -> None:
        """As workers do it: mostly receiving and what follows from it, soon after one another."""
        rng = Random(seed)
        kinds, weights = zip(*self.usual().items(), strict=True)
        for kind in rng.choices(kinds, weights, k=count):
            kind(rng)
            self.it_is_the_same()

    # As often as all others together.
    more_happens = and_more = still_more = yet_more = much_more = ever_more = and_so_on = and_on = much_happens

    def usual(self) -> dict[Callable[[Random], None], int]:
        def time(rng: Random) -> int:
            return rng.choice([0, 1, 1, 10, 10, 20, 20, MINUTE, 2 * MINUTE, 5 * MINUTE - 1, 5 * MINUTE, 60 * MINUTE])

        def rarely(rng: Random) -> bool:
            return rng.random() < 0.15

        def send(rng: Random) -> None:
            due, ttl = (time(rng) if rng.random() < 0.25 else None for _ in range(2))
            priority, group = rng.choice([4, 4, 4, 0, 9]), rng.choice([None, b"a", b"b"])
            self.send(rng.randint(1, 4), priority, due, ttl, group, rng.choice([None, None, b"x", b"y"]))

        def restart(rng: Random) -> None:
            self.restart(
                rng.randrange(1000), time(rng), rng.randrange(3), rng.choice([None, b"a"]), rng.choice([None, b"x"])
            )

        return {
            send: 6,
            lambda rng: self.send_plain(rng.randint(1, 5)): 1,
            lambda rng: self.leave_a_gap(rng.choice([1, 3, CHUNK - 7, CHUNK + 1]), rng.random() < 0.5): 1,
            lambda rng: self.receive(rng.randint(1, 6), time(rng), rng.random() < 0.6): 8,
            lambda rng: self.acknowledge_range(rng.randrange(1000), rng.randint(1, 6), rng.choice([1, 1, 2])): 3,
            lambda rng: self.hold(rng.randrange(1000), rng.randint(1, 4)): 2,
            lambda rng: self.settle_held(rng.randrange(1000), rng.random() < 0.5): 2,
            lambda rng: self.carry_here(rng.randint(1, 2), rng.randint(1, 4), rng.choice([None, b"a", b"b"])): 1,
            lambda rng: self.carry_again(rng.randint(1, 2), rng.randint(1, 4)): 1,
            lambda rng: self.acknowledge(rng.randrange(1000), rarely(rng)): 5,
            lambda rng: self.extend(rng.randrange(1000), time(rng), rarely(rng)): 3,
            lambda rng: self.nack(rng.randrange(1000), rng.choice([None, time(rng)]), rarely(rng)): 4,
            lambda rng: self.acknowledge_some(
                rng.randrange(1000), rng.randint(1, 6), rarely(rng), rng.random() < 0.5
            ): 2,
            lambda _: self.bury_the_dead(): 1,
            lambda rng: self.purge(rng.choice([None, rng.randrange(1000)])) if rarely(rng) else None: 2,
            lambda rng: self.time_passes(time(rng)): 8,
            lambda _: self.take(): 2,
            lambda _: self.commit(): 2,
            restart: 2,
        }

    # -- what must hold

    @invariant()
    def it_is_the_same(self) -> None:
        if not hasattr(self, "engine"):
            return
        self.settle_retention()
        assert list(self.engine.live(0)) == self.naive.live()
        for offset in self.naive.live():
            assert self.engine.look(offset) == self.naive.messages[offset].seen
        counts = self.engine.counts()
        naive = self.naive
        assert (counts.available, counts.in_flight, counts.delayed) == (
            naive.count(AVAILABLE),
            naive.count(IN_FLIGHT),
            naive.count(HIDDEN),
        )
        assert {dead.offset for dead in self.engine.dead()} == {
            message.offset for message in naive.messages.values() if message.state == DEAD
        }

    @invariant()
    def it_says_when_something_is_due(self) -> None:
        if hasattr(self, "engine"):
            waiting = [
                message.until_ms
                for message in self.naive.messages.values()
                if message.state in (IN_FLIGHT, HIDDEN) and not message.is_held
            ]
            if waiting:
                assert self.engine.next_due_ms is not None
                assert self.engine.next_due_ms <= min(waiting)

    def teardown(self) -> None:
        """In the end everything is received that is not done, and there is nothing left."""
        if not hasattr(self, "engine"):
            return
        for message in self.held():
            self.engine.release(message.offset, self.now_ms)
            self.naive.release(message)
        for _ in range(200):
            if not self.naive.live():
                break
            self.naive.advance(self.now_ms + 13 * 60 * MINUTE * STEP_MS)
            self.settle_retention()
            self.bury_the_dead()
            leases = self.engine.receive(1000, self.now_ms, STEP_MS)
            self.naive.received([lease.offset for lease in leases], STEP_MS)
            for lease in leases:
                self.engine.acknowledge([(lease.offset, lease.attempt)], self.now_ms)
                self.naive.acknowledge(lease.offset, lease.attempt)
        assert not self.naive.live()
        assert self.engine.head == self.engine.indexed_to
        self.commit()


TestEngines = Engines.TestCase
TestEngines.settings = settings(max_examples=examples(200), stateful_step_count=15, deadline=None)
