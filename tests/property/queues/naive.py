"""A queue made of a dictionary: what the lease engine must do, message by message, without any cleverness.

Every time that a test uses is a multiple of the engine's step, so that what is due is due in both at once. Only
retention is allowed to be late by its grain.
"""

from copy import copy
from dataclasses import dataclass, field

from headrace.config.queue import QueueSettings
from headrace.queues.ages import grain_ms
from headrace.queues.arrivals import Arrival
from headrace.queues.dedupe import WINDOW_MS
from headrace.queues.late import turn_ms
from headrace.queues.pages import Place

AVAILABLE, IN_FLIGHT, HIDDEN, DEAD, DONE = "available", "in flight", "delayed", "dead", "done"


@dataclass
class Message:
    arrival: Arrival
    state: str = AVAILABLE
    until_ms: int = 0
    attempt: int = 0
    first_received_ms: int | None = None
    received_ms: int = 0
    is_over: bool = False
    """Its TTL ended while it was in flight."""
    is_held: bool = False
    """In flight to another queue, and in no receiver's hands."""

    def let_go(self) -> None:
        """Nobody moves it."""
        if self.is_held and self.state == IN_FLIGHT:
            self.state = AVAILABLE
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
    firsts: dict[bytes, Arrival] = field(default_factory=dict)
    places: dict[Place, int] = field(default_factory=dict)

    # -- what may happen

    def send(self, arrival: Arrival) -> Arrival | None:
        """None, or what it is a duplicate of."""
        if arrival.dedupe is not None:
            scope = arrival.group if self.settings.dedupe_scope == "messageGroup" else None
            known = repr((arrival.dedupe, scope)).encode()
            first = self.firsts.get(known)
            if first is not None and arrival.sent_ms - first.sent_ms < WINDOW_MS:
                return first
            self.firsts[known] = arrival
        if arrival.place is not None and self.places.setdefault(arrival.place, arrival.offset) != arrival.offset:
            return arrival
        self.messages[arrival.offset] = self.fresh(arrival)
        self.advance(self.now_ms)
        return None

    def fresh(self, arrival: Arrival) -> Message:
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
        if arrival.expires_ms is not None and arrival.expires_ms <= now_ms and message.state != DONE:
            message.is_over = True
        if message.is_over and message.state != IN_FLIGHT:
            message.state = DONE
        limit = self.settings.max_receives if self.settings.dead_letter else 0
        if message.state in (AVAILABLE, HIDDEN) and limit and message.attempt >= limit:
            message.state = DEAD
        if self.too_old_ms(arrival) + self.lateness_ms(arrival) <= now_ms:
            message.state = DONE

    def due_ms(self, arrival: Arrival) -> int:
        return arrival.due_ms if arrival.due_ms is not None else arrival.sent_ms + self.settings.delay_ms

    def too_old_ms(self, arrival: Arrival) -> int:
        return max(arrival.sent_ms, self.due_ms(arrival)) + self.settings.retention_ms

    def lateness_ms(self, arrival: Arrival) -> int:
        """By how much retention may be late."""
        if self.due_ms(arrival) > arrival.sent_ms:
            return turn_ms(self.settings.retention_ms)
        return grain_ms(self.settings.retention_ms, self.settings.priority_ageing_ms)

    def is_nearly_too_old(self, message: Message) -> bool:
        """Whether retention may have taken it already."""
        return self.too_old_ms(message.arrival) <= self.now_ms

    def receive(self, most: int, visibility_ms: int) -> list[Message]:
        held = sum(message.is_held for message in self.messages.values() if message.state == IN_FLIGHT)
        wanted = min(most, self.settings.max_in_flight - self.count(IN_FLIGHT) + held)
        found = self.next_of_groups(wanted) if self.settings.is_fifo else self.next(wanted)
        for message in found:
            self.lease(message, visibility_ms)
        return found

    def lease(self, message: Message, visibility_ms: int) -> None:
        message.state, message.until_ms = IN_FLIGHT, self.now_ms + visibility_ms
        message.attempt += 1
        message.received_ms = self.now_ms
        if message.first_received_ms is None:
            message.first_received_ms = self.now_ms

    def hold(self, wanted: list[Message]) -> list[Message]:
        free = [message for message in wanted if message.state == AVAILABLE]
        if self.settings.is_fifo:
            ready = {message.arrival.group or b"" for group in self.ready_groups() for message in group}
            free = [message for message in free if (message.arrival.group or b"") in ready]
        for message in free:
            message.state, message.is_held = IN_FLIGHT, True
        return free

    def next(self, wanted: int) -> list[Message]:
        available = [message for message in self.messages.values() if message.state == AVAILABLE]
        return sorted(available, key=lambda message: (-message.arrival.priority, message.offset))[: max(0, wanted)]

    def ready_groups(self) -> list[list[Message]]:
        groups: dict[bytes, list[Message]] = {}
        for message in self.messages.values():
            if message.state not in (DONE, DEAD):
                groups.setdefault(message.arrival.group or b"", []).append(message)
        free = [group for group in groups.values() if all(message.state != IN_FLIGHT for message in group)]
        return [group for group in free if group[0].state == AVAILABLE]

    def next_of_groups(self, wanted: int) -> list[Message]:
        found: list[Message] = []
        for group in sorted(self.ready_groups(), key=lambda group: (-group[0].arrival.priority, group[0].offset)):
            for message in group:
                if message.state != AVAILABLE or len(found) >= wanted:
                    break
                found.append(message)
        return found

    def acknowledge(self, offset: int, attempt: int, *, any_attempt: bool = False) -> bool:
        message = self.messages[offset]
        if message.state == DONE:
            return True
        if message.is_held or (not any_attempt and (message.attempt != attempt or not attempt)):
            return False
        message.state = DONE
        return True

    def is_leased(self, offset: int, attempt: int) -> bool:
        message = self.messages[offset]
        return message.state == IN_FLIGHT and message.attempt == attempt and not message.is_held

    def backoff_ms(self, message: Message) -> int:
        settings = self.settings
        plain = settings.retry_backoff_ms * settings.retry_backoff_factor ** (message.attempt - 1)
        return int(min(plain, settings.retry_backoff_max_ms))

    def give_back(self, offset: int, delay_ms: int | None) -> None:
        message = self.messages[offset]
        if delay_ms is None:
            delay_ms = self.backoff_ms(message)
        message.state, message.until_ms = HIDDEN, self.now_ms + delay_ms
        self.age(message)

    def purge(self) -> None:
        for message in self.messages.values():
            message.state = DONE

    # -- what is there

    def count(self, state: str) -> int:
        return sum(message.state == state for message in self.messages.values())

    def live(self) -> list[int]:
        return [offset for offset, message in self.messages.items() if message.state != DONE]

    def snapshot(self) -> dict[int, Message]:
        return {offset: copy(message) for offset, message in self.messages.items()}
