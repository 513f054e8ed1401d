"""Each anomaly is found where it was planted, and in the same history without it nothing is."""

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.model.ids import PartitionIndex, TopicName, TopicPartition
from headrace.testing.checkers import ACKS_AGAIN, CHECKS, HEALED, NO_ACKS, POWER_CUT, check, report
from headrace.testing.histories import History, Position, Read, Recorder, read_lines

T0 = TopicPartition(TopicName("t"), PartitionIndex(0))
COPIES = TopicPartition(TopicName("copies"), PartitionIndex(0))


class Story:
    """A history told line by line, a second apart; every client has a recorder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._clients: dict[str, Recorder] = {}
        self.now = 0.0

    def __getitem__(self, by: str) -> Recorder:
        if by not in self._clients:
            self._clients[by] = Recorder(self._folder / f"{by}.jsonl", by, now=self._tick)
        return self._clients[by]

    def _tick(self) -> float:
        self.now += 1
        return self.now

    def sent(self, by: str, value: str, offset: int, *, partition: int = 0, txn: int | None = None) -> None:
        client = self[by]
        client.ok(client.send("t", value, txn=txn), partition=partition, offset=offset)

    def read(self, by: str, *offsets_and_values: tuple[int, str], partition: int = 0, committed: bool = True) -> None:
        reads = [Read(T0.topic, PartitionIndex(partition), offset, value) for offset, value in offsets_and_values]
        self[by].poll(reads, committed=committed)

    def txn(self, by: str, *values: str, first_offset: int, commit: bool) -> None:
        client = self[by]
        number = client.begin("x")
        for index, value in enumerate(values):
            self.sent(by, value, first_offset + index, txn=number)
        client.ok(client.finish(number, commit=commit))

    def found(self) -> set[int]:
        for client in self._clients.values():
            client.close()
        self._clients.clear()
        anomalies = check(History.read(self._folder))
        assert bool(anomalies) == (report(anomalies) != "no anomaly")
        return {one.number for one in anomalies}


Plant = Callable[[Story], None]


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(tmp_path)


# Each tells its story with the bug or without it.


def lost_write(story: Story, *, bug: bool) -> None:
    for offset in range(3):
        story.sent("p", f"v{offset}", offset)
    story.read("c", *((offset, f"v{offset}") for offset in range(3) if not (bug and offset == 1)))


def vanished(story: Story, *, bug: bool) -> None:
    """It was never acknowledged, but somebody has read it."""
    story["p"].send("t", "v0")
    story.sent("p", "v1", 1)
    story.read("c", (0, "v0"))
    story["nemesis"].note(HEALED)
    story.read("last", *([] if bug else [(0, "v0")]), (1, "v1"))


def unseen(story: Story, *, bug: bool) -> None:
    story.sent("p", "v0", 0)
    story.sent("p", "v1", 1)
    story["nemesis"].note(HEALED)
    story.read("last", (0, "v0"), *([] if bug else [(1, "v1")]))


def unhandled(story: Story, *, bug: bool) -> None:
    story.sent("p", "v0", 0)
    story.sent("p", "v1", 1)
    for offset in range(1 if bug else 2):
        copier = story["copier"]
        copier.ok(copier.send("copies", f"c{offset}", of=f"v{offset}"), partition=0, offset=offset)
    story["nemesis"].note(HEALED)
    story.read("last", (0, "v0"), (1, "v1"))
    story["last"].poll([Read(*COPIES, offset, f"c{offset}") for offset in range(1 if bug else 2)])


def aborted_read(story: Story, *, bug: bool) -> None:
    story.txn("p", "v0", first_offset=0, commit=False)
    story.read("c", (0, "v0"), committed=bug)


def never_committed(story: Story, *, bug: bool) -> None:
    """Its producer was killed before it asked for the commit; or just after."""
    producer = story["p"]
    number = producer.begin("x")
    story.sent("p", "v0", 0, txn=number)
    if not bug:
        producer.finish(number, commit=True)
    story.read("c", (0, "v0"))


def refused(story: Story, *, bug: bool) -> None:
    sent = story["p"].send("t", "v0")
    (story["p"].failed if bug else story["p"].unknown)(sent, "not enough replicas")
    story.read("c", (0, "v0"))


def duplicate(story: Story, *, bug: bool) -> None:
    story.sent("p", "v0", 0)
    story.read("c", (0, "v0"), *([(1, "v0")] if bug else []))


def handled_twice(story: Story, *, bug: bool) -> None:
    story.sent("p", "v0", 0)
    copier = story["copier"]
    for offset in range(2 if bug else 1):
        copier.ok(copier.send("copies", f"c{offset}", of="v0"), partition=0, offset=offset)
        copier.poll([Read(*COPIES, offset, f"c{offset}")])


def inconsistent_offset(story: Story, *, bug: bool) -> None:
    story["p"].send("t", "v0")
    story["q"].send("t", "w0")
    story.read("c", (0, "v0"))
    story.read("d", (0, "w0") if bug else (1, "w0"))


def poll_skip(story: Story, *, bug: bool) -> None:
    for offset in range(3):
        story.sent("p", f"v{offset}", offset)
    story.read("c", (0, "v0"), (1, "v1"), (2, "v2"))
    story.read("d", (0, "v0"))
    story.read("d", *([] if bug else [(1, "v1")]), (2, "v2"))


def skip_at_the_start(story: Story, *, bug: bool) -> None:
    story.sent("p", "v0", 0)
    story.sent("p", "v1", 1)
    story.read("c", (0, "v0"), (1, "v1"))
    story["d"].assign([Position(*T0, 0 if bug else 1)])
    story.read("d", (1, "v1"))


def backward_poll(story: Story, *, bug: bool) -> None:
    story.sent("p", "v0", 0)
    story.sent("p", "v1", 1)
    story.read("c", (0, "v0"), (1, "v1"))
    if not bug:
        story["c"].assign([Position(*T0)])
    story.read("c", (1, "v1"))


def reordered_send(story: Story, *, bug: bool) -> None:
    producer = story["p"]
    first, second = producer.send("t", "v0"), producer.send("t", "v1")
    producer.ok(first, partition=0, offset=1 if bug else 0)
    producer.ok(second, partition=0, offset=0 if bug else 1)


def torn_transaction(story: Story, *, bug: bool) -> None:
    producer = story["p"]
    number = producer.begin("x")
    story.sent("p", "v0", 0, txn=number)
    story.sent("p", "v1", 0, txn=number, partition=1)
    producer.unknown(producer.finish(number, commit=True), "timed out")
    story.sent("q", "w", 2, partition=1)
    story.read("c", (0, "v0"))
    story.read("c", *([] if bug else [(0, "v1")]), (2, "w"), partition=1)


def fsync_loss(story: Story, *, bug: bool) -> None:
    story.sent("p", "v0", 0)
    story["nemesis"].note(POWER_CUT, "all")
    story.sent("p", "v1", 0 if bug else 1)
    story["nemesis"].note(HEALED)
    story.read("last", *([(0, "v1")] if bug else [(0, "v0"), (1, "v1")]))


def unclean_election(story: Story, *, bug: bool) -> None:
    watcher = story["watcher"]
    watcher.state(T0, leader=1, leader_epoch=0, isr=[1, 2], partition_epoch=0)
    watcher.state(T0, leader=3 if bug else 2, leader_epoch=1, isr=[3 if bug else 2], partition_epoch=1)


def two_leaders_of_one_epoch(story: Story, *, bug: bool) -> None:
    watcher = story["watcher"]
    watcher.state(T0, leader=1, leader_epoch=0, isr=[1, 2], partition_epoch=0)
    watcher.state(T0, leader=2, leader_epoch=0 if bug else 1, isr=[2], partition_epoch=1)


def stale_ack(story: Story, *, bug: bool) -> None:
    story["q"].send("t", "w0")
    story.sent("p", "v0", 0 if bug else 1)
    story["c"].poll([Read(*T0, 0, "w0", 4), *([] if bug else [Read(*T0, 1, "v0", 4)])])


def epochs_go_down(story: Story, *, bug: bool) -> None:
    story.sent("p", "v0", 0)
    story.sent("p", "v1", 1)
    story["c"].poll([Read(*T0, 0, "v0", 5), Read(*T0, 1, "v1", 4 if bug else 5)])


def zombie_producer(story: Story, *, bug: bool) -> None:
    for by in ("old", "new"):
        story[by].ok(story[by].init("x"))
    number = story["old"].begin("x")
    sent = story["old"].send("t", "v0", txn=number)
    if bug:
        story["old"].ok(sent, partition=0, offset=0)
    else:
        story["old"].failed(sent, "fenced")


def silent_corruption(story: Story, *, bug: bool) -> None:
    story["p"].send("t", "v0")
    story.read("c", (0, "v\ufffd" if bug else "v0"))


def committed_offset_goes_back(story: Story, *, bug: bool) -> None:
    member = story["member"]
    for offset in (5, 9):
        member.ok(member.commit("g", [Position(*T0, offset)]))
    asked_at = story.now
    story["other"].committed(asked_at, "g", [Position(*T0, 5 if bug else 9)])


def transactional_offset_goes_back(story: Story, *, bug: bool) -> None:
    member = story["member"]
    number = member.begin("x")
    member.ok(member.commit("g", [Position(*T0, 9)], txn=number))
    member.ok(member.finish(number, commit=bug))
    story["other"].committed(story.now, "g", [Position(*T0, 5)])


def two_owners(story: Story, *, bug: bool) -> None:
    story["a"].assign([Position(*T0)], group="g", generation=3)
    story["b"].assign([Position(*T0)], group="g", generation=3 if bug else 4)


def zombie_commit(story: Story, *, bug: bool) -> None:
    story["a"].assign([Position(*T0)], group="g")
    story["b"].assign([Position(*T0)], group="g")
    if not bug:
        story["a"].assign([Position(*T0)], group="g")
    story["a"].ok(story["a"].commit("g", [Position(*T0, 7)]))


def ack_without_sync(story: Story, *, bug: bool) -> None:
    story["nemesis"].note(NO_ACKS)
    sent = story["p"].send("t", "v0")
    if not bug:
        story["nemesis"].note(ACKS_AGAIN)
    story["p"].ok(sent, partition=0, offset=0)


@pytest.mark.parametrize(
    ("number", "tell"),
    [
        (1, lost_write),
        (1, vanished),
        (2, unseen),
        (2, unhandled),
        (3, aborted_read),
        (3, never_committed),
        (3, refused),
        (4, duplicate),
        (4, handled_twice),
        (5, inconsistent_offset),
        (6, poll_skip),
        (6, skip_at_the_start),
        (6, backward_poll),
        (7, reordered_send),
        (8, torn_transaction),
        (9, fsync_loss),
        (10, unclean_election),
        (10, two_leaders_of_one_epoch),
        (11, stale_ack),
        (11, epochs_go_down),
        (12, zombie_producer),
        (13, silent_corruption),
        (15, committed_offset_goes_back),
        (15, transactional_offset_goes_back),
        (15, two_owners),
        (15, zombie_commit),
        (17, ack_without_sync),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_it_is_found_where_it_is_and_nowhere_else(number: int, tell: Callable[..., None], tmp_path: Path) -> None:
    for bug in (False, True):
        folder = tmp_path / str(bug)
        folder.mkdir()
        story = Story(folder)
        tell(story, bug=bug)
        assert (number in story.found()) == bug
        if not bug:
            assert story.found() == set()


def test_every_check_has_a_planted_bug() -> None:
    mark = next(one for one in test_it_is_found_where_it_is_and_nowhere_else.pytestmark if one.name == "parametrize")
    assert {number for number, _ in mark.args[1]} == set(CHECKS)


def test_what_was_deleted_is_not_lost(story: Story) -> None:
    for offset in range(4):
        story.sent("p", f"v{offset}", offset)
    story["admin"].delete("t", 0, 2)
    story["nemesis"].note(HEALED)
    story["last"].assign([Position(*T0, 0)])
    story.read("last", (2, "v2"), (3, "v3"))
    assert story.found() == set()


def test_a_transaction_that_was_not_committed_promises_nothing(story: Story) -> None:
    story.txn("p", "v0", "v1", first_offset=0, commit=False)
    story.txn("p", "v2", first_offset=3, commit=True)
    story["nemesis"].note(HEALED)
    story.read("last", (3, "v2"))
    assert story.found() == set()


def test_a_line_is_there_as_soon_as_it_is_written_and_half_a_line_is_none(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    record = Recorder(path, "p")
    record.send("t", "v0")
    assert [line.by for line in read_lines(path)] == ["p"]
    with path.open("ab") as file:
        file.write(b'{"do":"end","at":1.0,"by')
    history = History.read(path)
    assert [history.fate_of(send) for send in history.sends] == ["unknown"]
    record.close()
