"""The changes of a queue's state since a position: pages that lead to the state as it is, whatever happens between."""

from random import Random

import pytest

from headrace.coordinator.machine import InternalRecord
from headrace.model.queue_state import MOVED_TO, OWN_KEYS, StatePosition
from headrace.queues import state_changes
from headrace.queues.state_machine import QueueStateMachine


class Source:
    """A queue's state, and a reader that follows it."""

    def __init__(self) -> None:
        self.machine = QueueStateMachine()
        self.apply(self.machine.open("q", 3).records)
        self.now_ms = 0.0
        self.instances = 0
        self.entries: dict[bytes, bytes] = {}
        self.position = StatePosition()
        self.pages = self.resets = 0

    def apply(self, records: object) -> None:
        for record in records:  # type: ignore[attr-defined]
            self.machine.replay(record, -1)

    def write(self, **entries: str | None) -> None:
        changes = [InternalRecord(key.encode(), None if v is None else v.encode()) for key, v in entries.items()]
        self.apply(self.machine.write("q", 1, changes).records)

    def read_page(self) -> bool:
        """Whether it was the last one."""
        self.instances += 1
        page = self.machine.changes("q", self.position, f"i{self.instances}", self.now_ms)
        self.pages += 1
        if page.is_reset:
            self.resets += 1
            self.entries = {}
        for key, value in page.entries:
            if value is None:
                self.entries.pop(key, None)
            else:
                self.entries[key] = value
        self.position = page.position
        return page.is_last

    def read(self) -> dict[str, str]:
        while not self.read_page():
            pass
        return {key.decode(): value.decode() for key, value in self.entries.items()}


def test_a_reader_gets_what_changed_since_it_read() -> None:
    source = Source()
    source.write(a="1", b="2")
    assert source.read() == {"a": "1", "b": "2"}
    pages = source.pages
    source.write(a=None, b="3", c="4")
    source.write(c="5")
    page = source.machine.changes("q", source.position, "new", 0.0)
    assert (page.is_reset, page.is_last) == (False, True)
    assert dict(page.entries) == {b"a": None, b"b": b"3", b"c": b"5"}, "each entry once, as it is now"
    assert source.read() == {"b": "3", "c": "5"}
    assert source.read() == {"b": "3", "c": "5"}
    assert (source.resets, source.pages - pages) == (1, 2)


def test_pages_that_are_read_while_the_state_changes_lead_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state_changes, "PAGE_ENTRIES", 3)
    monkeypatch.setattr(state_changes, "REMOVED_MOST", 8)
    random, source, wanted = Random(1), Source(), {}
    for _ in range(2_000):
        key = f"k{random.randrange(40)}"
        if random.random() < 0.5:
            wanted[key] = f"{random.random()}"
            source.write(**{key: wanted[key]})
        elif key in wanted:
            del wanted[key]
            source.write(**{key: None})
        if random.random() < 0.3 and source.read_page():
            assert source.entries == {key.encode(): value.encode() for key, value in wanted.items()}
        if random.random() < 0.02:
            source.now_ms += 70_000  # Longer than changes are listed for a reader that does not ask.
            source.machine.changes("other", StatePosition(), "x", source.now_ms)
    assert source.read() == wanted
    assert source.resets > 2, "some removals were missed, and the reader began again"


def test_the_entries_of_the_host_stay_at_home_but_for_the_names_of_queues_that_messages_were_moved_to() -> None:
    source = Source()
    moved_to = (OWN_KEYS + MOVED_TO).decode() + "failed"
    source.write(**{"!carry:dead-letters": "1", "h": "2", moved_to: "1"})
    assert source.read() == {"h": "2", moved_to: "1"}


def test_a_new_leader_has_another_list() -> None:
    source = Source()
    source.write(a="1")
    source.read()
    former, source.machine = source.machine, QueueStateMachine()
    source.apply(former.open("q", 4).records)
    source.apply(source.machine.write("q", 2, [InternalRecord(b"b", b"2")]).records)
    assert source.read() == {"b": "2"}, "the reader drops what it has"


def test_a_queue_without_a_state_has_no_entries() -> None:
    page = QueueStateMachine().changes("none", StatePosition("i", 7), "new", 0.0)
    assert (page.epoch, page.is_reset, page.is_last, page.entries) == (-1, True, True, [])
