"""A queue made of a dictionary: what the lease engine must do, message by message, without any cleverness.

Every time that a test uses is a multiple of the engine's step, so that what is due is due in both at once. Only
retention is allowed to be late by its grain. Which of the messages that may be received comes first is the engine's
choice; `NaiveQueue.received` says whether it is a fair one.
"""

from dataclasses import dataclass, field, replace

from headrace.config.queue import QueueSettings
from headrace.queues.engine.chunk_index import LogMessage
from headrace.queues.engine.dedupe import WINDOW_MS
from headrace.queues.engine.delayed_retention import turn_ms
from headrace.queues.engine.moved_pages import PageSlot
from headrace.queues.engine.send_times import grain_ms

AVAILABLE, IN_FLIGHT, HIDDEN, DEAD, DONE = "available", "in flight", "delayed", "dead", "done"


@dataclass
class Message:
    arrival: LogMessage
    state: str = AVAILABLE
    until_ms: int = 0
    attempt: int = 0
    first_received_ms: int | None = None
    received_ms: int = 0
    is_over: bool = False
    """Its TTL ended while it was in flight."""
    is_held: bool = False
    """In flight to another queue, and in no receiver's hands."""
    position: int = -1
    """The end of the queue when it came back the last time."""
    passed_by: set[int] = field(default_factory=set)
    """The messages that were received while this one could have been."""

    def release(self) -> None:
        """Nobody moves it."""
        if self.is_held and self.state == IN_FLIGHT:
            self.state = AVAILABLE
            self.passed_by.clear()
        self.is_held = False

    @property
    def offset(self) -> int:
        return self.arrival.offset

    @property
    def seen(self) -> tuple[str, int, int | None, int | None]:
        """What `Engine.look` tells."""
        is_timed = self.attempt and self.state in (IN_FLIGHT, HIDDEN) and not self.is_held
        until_ms = self.until_ms if is_timed else None
        return self.state, self.attempt, until_ms, self.first_received_ms


@dataclass
class NaiveQueue:
    settings: QueueSettings
    now_ms: int
    messages: dict[int, Message] = field(default_factory=dict)
    """Those that are no duplicates, done or not."""
    firsts: dict[bytes, LogMessage] = field(default_factory=dict)
    purged: dict[bytes, LogMessage] = field(default_factory=dict)
    """Of ids that a purge forgot which may not have been committed: after a restart they are known again, or not."""
    places: dict[PageSlot, int] = field(default_factory=dict)

    # -- what may happen

    def send(self, arrival: LogMessage, *, is_known: bool = False) -> LogMessage | None:
        """None, or what it is a duplicate of. `is_known`: as the engine says, where either is right."""
        if arrival.dedupe is not None:
            scope = arrival.group if self.settings.dedupe_scope == "messageGroup" else None
            known = repr((arrival.dedupe, scope)).encode()
            purged = self.purged.pop(known, None)
            if purged is not None and is_known:
                self.firsts.setdefault(known, purged)
            first = self.firsts.get(known)
            if first is not None and arrival.sent_ms - first.sent_ms < WINDOW_MS:
                return first
            self.firsts[known] = arrival
        if arrival.place is not None and self.places.setdefault(arrival.place, arrival.offset) != arrival.offset:
            return arrival
        self.messages[arrival.offset] = self.fresh(arrival)
        self.advance(self.now_ms)
        return None

    def fresh(self, arrival: LogMessage) -> Message:
        due_ms = self.due_ms(arrival)
        return Message(arrival, HIDDEN if due_ms > arrival.sent_ms else AVAILABLE, due_ms)

    def advance(self, now_ms: int) -> None:
        self.now_ms = now_ms
        for message in self.messages.values():
            if message.state != DONE:
                self.age(message)

    def age(self, message: Message) -> None:
        now_ms, arrival = self.now_ms, message.arrival
        if message.state == IN_FLIGHT and message.until_ms <= now_ms and not message.is_held:
            message.state = HIDDEN
            message.until_ms += self.backoff_ms(message)
        if message.state == HIDDEN and message.until_ms <= now_ms:
            message.state = AVAILABLE
            message.position = max(self.messages) + 1
        if arrival.expires_ms is not None and arrival.expires_ms <= now_ms and message.state != DONE:
            message.is_over = True
        if message.is_over and message.state != IN_FLIGHT:
            message.state = DONE
        limit = self.settings.max_receives if self.settings.dead_letter else 0
        if message.state in (AVAILABLE, HIDDEN) and limit and message.attempt >= limit:
            message.state = DEAD
        if self.too_old_ms(arrival) + self.lateness_ms(arrival) <= now_ms:
            message.state = DONE

    def due_ms(self, arrival: LogMessage) -> int:
        return arrival.due_ms if arrival.due_ms is not None else arrival.sent_ms + self.settings.delay_ms

    def too_old_ms(self, arrival: LogMessage) -> int:
        return max(arrival.sent_ms, self.due_ms(arrival)) + self.settings.retention_ms

    def lateness_ms(self, arrival: LogMessage) -> int:
        """By how much retention may be late."""
        if self.due_ms(arrival) > arrival.sent_ms:
            return turn_ms(self.settings.retention_ms)
        return grain_ms(self.settings.retention_ms, self.settings.priority_ageing_ms)

    def is_nearly_too_old(self, message: Message) -> bool:
        """Whether retention may have taken it already."""
        return self.too_old_ms(message.arrival) <= self.now_ms

    def may_receive(self, most: int) -> int:
        """How many messages a receive gets."""
        held = sum(message.is_held for message in self.messages.values() if message.state == IN_FLIGHT)
        room = self.settings.max_in_flight - self.count(IN_FLIGHT) + held
        return max(0, min(most, room, len(self.receivable())))

    def received(self, offsets: list[int], visibility_ms: int) -> list[Message]:
        """A receive got these messages. It was free to, and nobody else was treated unfairly."""
        receivable = {message.offset: message for message in self.receivable()}
        levels: dict[bytes | int, int] = {}
        """Of each group that something was received of: the priority of the first."""
        for offset in offsets:
            message = receivable[offset]
            groups: dict[bytes | int, list[Message]] = {}
            for other in receivable.values():
                groups.setdefault(self.group_of(other), []).append(other)
            own = groups.pop(self.group_of(message))
            assert own[0] is message, "the order of the group is not kept"
            level = levels.setdefault(self.group_of(message), message.arrival.priority)
            for others in groups.values():
                self.check_fair(others[0], message, level)
            del receivable[offset]
        for offset in offsets:
            self.lease(self.messages[offset], visibility_ms)
        return [self.messages[offset] for offset in offsets]

    def check_fair(self, other: Message, message: Message, level: int) -> None:
        """`message` is received, by this priority, and `other` could have been."""
        assert other.arrival.priority <= level
        if other.arrival.priority < level:
            return
        assert message.offset not in other.passed_by, f"{message.offset} came before {other.offset} for the second time"
        other.passed_by.add(message.offset)
        if not self.settings.is_fifo:
            if not other.attempt and not message.attempt:
                assert message.offset < other.offset
            if other.attempt and not message.attempt:
                assert message.offset < other.position, f"{message.offset} was sent after {other.offset} came back"

    def group_of(self, message: Message) -> bytes | int:
        return (message.arrival.group or b"") if self.settings.is_fifo else message.offset

    def receivable(self) -> list[Message]:
        """All that may be received now."""
        if not self.settings.is_fifo:
            return [message for message in self.messages.values() if message.state == AVAILABLE]
        found = []
        blocked: set[bytes | int] = set()
        for message in self.messages.values():
            if message.state in (IN_FLIGHT, HIDDEN):
                blocked.add(self.group_of(message))
            elif message.state == AVAILABLE and self.group_of(message) not in blocked:
                found.append(message)
        return found

    def lease(self, message: Message, visibility_ms: int) -> None:
        message.state, message.until_ms = IN_FLIGHT, self.now_ms + visibility_ms
        message.attempt += 1
        message.passed_by.clear()
        message.received_ms = self.now_ms
        if message.first_received_ms is None:
            message.first_received_ms = self.now_ms

    def release(self, message: Message) -> None:
        message.release()
        message.position = max(self.messages) + 1
        self.age(message)

    def hold(self, wanted: list[Message]) -> list[Message]:
        receivable = self.receivable()
        free = [message for message in wanted if message in receivable]
        for message in free:
            message.state, message.is_held = IN_FLIGHT, True
        return free

    def acknowledge(self, offset: int, attempt: int, *, any_attempt: bool = False) -> bool:
        message = self.messages[offset]
        if message.state == DONE:
            return True
        if message.is_held or (not any_attempt and (message.attempt != attempt or not attempt)):
            return False
        if self.settings.is_fifo and not any_attempt and message.state != IN_FLIGHT:
            return False
        message.state = DONE
        return True

    def is_current(self, offset: int, attempt: int) -> bool:
        """Whether nobody received it again since."""
        message = self.messages[offset]
        return message.attempt == attempt > 0 and message.state not in (DONE, DEAD) and not message.is_held

    def is_leased(self, offset: int, attempt: int) -> bool:
        message = self.messages[offset]
        return message.state == IN_FLIGHT and message.attempt == attempt and not message.is_held

    def backoff_ms(self, message: Message) -> int:
        settings = self.settings
        plain = settings.retry_backoff_ms * settings.retry_backoff_factor ** (message.attempt - 1)
        return int(min(plain, settings.retry_backoff_max_ms))

    def nack(self, offset: int, delay_ms: int | None) -> None:
        message = self.messages[offset]
        if delay_ms is None:
            delay_ms = self.backoff_ms(message)
        message.state, message.until_ms = HIDDEN, self.now_ms + delay_ms
        self.age(message)

    def purge(self) -> None:
        for message in self.messages.values():
            message.state = DONE
        self.firsts.clear()

    # -- what is there

    def count(self, state: str) -> int:
        return sum(message.state == state for message in self.messages.values())

    def live(self) -> list[int]:
        return [offset for offset, message in self.messages.items() if message.state != DONE]

    def snapshot(self) -> dict[int, Message]:
        return {offset: replace(message, passed_by=set()) for offset, message in self.messages.items()}
