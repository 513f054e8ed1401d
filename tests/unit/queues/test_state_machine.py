"""The state of queues: one writer at a time, whatever is on its way, and the same after a restart at any record."""

from typing import Any

import pytest

from headrace.coordinator.machine import InternalRecord, Outcome
from headrace.model.errors import CorruptBatch, StaleQueueLeader
from headrace.queues import state_machine
from headrace.queues.state_machine import QueueStateMachine


class Shard:
    """A machine and its log."""

    def __init__(self) -> None:
        self.machine = QueueStateMachine()
        self.log: list[InternalRecord] = []

    def run(self, outcome: Outcome[InternalRecord, Any]) -> object:
        for entry in outcome.records:
            self.log.append(entry)
            self.machine.replay(entry, -1)
        return outcome.answer

    def open(self, queue: str, epoch: int) -> int:
        term = self.run(self.machine.open(queue, epoch))
        assert isinstance(term, int)
        return term

    def write(self, queue: str, term: int, **entries: str | None) -> None:
        self.run(
            self.machine.write(
                queue,
                term,
                [
                    InternalRecord(key.encode(), None if text is None else text.encode())
                    for key, text in entries.items()
                ],
            )
        )

    def all(self, queue: str, term: int) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        at: int | None = 0
        while at is not None:
            page = self.machine.read(queue, term, at)
            found.update(page.entries)
            at = page.next_at
        return found

    def restarted(self, *, compacted: bool = False) -> "Shard":
        again = Shard()
        last = {entry.key: at for at, entry in enumerate(self.log)}
        again.log = [entry for at, entry in enumerate(self.log) if not compacted or last[entry.key] == at]
        for entry in again.log:
            again.machine.replay(entry, -1)
        return again


@pytest.mark.parametrize("compacted", [False, True])
def test_entries_are_there_for_the_next_leader(compacted: bool) -> None:
    shard = Shard()
    term = shard.open("q", 3)
    shard.write("q", term, a="1", b="2")
    shard.write("q", term, a="3", b=None)
    shard = shard.restarted(compacted=compacted)
    assert shard.all("q", shard.open("q", 4)) == {b"a": b"3"}


def test_a_former_leader_writes_nothing_any_more() -> None:
    shard = Shard()
    old = shard.open("q", 3)
    new = shard.open("q", 4)
    with pytest.raises(StaleQueueLeader):
        shard.write("q", old, a="1")
    with pytest.raises(StaleQueueLeader):
        shard.open("q", 3)
    with pytest.raises(StaleQueueLeader):
        shard.restarted().write("q", old, a="1")
    shard.write("q", new, a="2")
    assert shard.all("q", new) == {b"a": b"2"}


def test_a_late_write_of_the_same_leader_is_refused_after_it_has_opened_anew() -> None:
    shard = Shard()
    first = shard.open("q", 3)
    second = shard.open("q", 3)
    with pytest.raises(StaleQueueLeader):
        shard.write("q", first, a="1")
    with pytest.raises(StaleQueueLeader):
        shard.all("q", first)
    shard.write("q", second, a="2")


def test_queues_do_not_see_each_other() -> None:
    shard = Shard()
    one, other = shard.open("q", 1), shard.open("r", 1)
    shard.write("q", one, a="1")
    shard.write("r", other, a="2")
    assert shard.all("q", one) == {b"a": b"1"}
    assert shard.all("r", other) == {b"a": b"2"}


@pytest.mark.parametrize("compacted", [False, True])
def test_a_forgotten_queue_leaves_nothing_and_nobody_writes_to_it(compacted: bool) -> None:
    shard = Shard()
    term = shard.open("q", 3)
    shard.write("q", term, a="1")
    shard.run(shard.machine.forget("q"))
    shard = shard.restarted(compacted=compacted)
    assert list(shard.machine.queues) == []
    with pytest.raises(StaleQueueLeader):
        shard.write("q", term, a="2")
    assert shard.machine.forget("q").records == ()


def test_a_large_state_is_read_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_machine, "PAGE_BYTES", 40)
    shard = Shard()
    term = shard.open("q", 3)
    wanted = {f"k{number}": "x" * number for number in range(30)}
    shard.write("q", term, **wanted)
    assert len(shard.machine.read("q", term, 0).entries) < 10
    assert shard.all("q", term) == {key.encode(): text.encode() for key, text in wanted.items()}


@pytest.mark.parametrize("key", [b"", b"\x91\xa5other", b"\x00" * 9])
def test_a_record_of_another_version_is_refused(key: bytes) -> None:
    with pytest.raises(CorruptBatch, match="of a newer version of Headrace"):
        QueueStateMachine().replay(InternalRecord(key, b"x"), -1)
