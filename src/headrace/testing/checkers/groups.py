"""Checks of consumer groups: 15."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from operator import itemgetter

from headrace.model.ids import TopicPartition
from headrace.testing.checkers.facts import Facts
from headrace.testing.histories import Assign, Commit


def find_group_faults(facts: Facts) -> Iterator[str]:
    """Committed offsets never decrease, and a partition has one owner at a time."""
    yield from _offsets_that_went_back(facts)
    yield from _shared_partitions(facts)
    yield from _zombie_commits(facts)


def _in_force(facts: Facts) -> Iterator[tuple[float, Commit]]:
    """The commits that certainly succeeded, each with its time."""
    finished = {
        (finish.by, finish.txn): end.at
        for finish, end in facts.history.ended_ok(facts.history.finishes)
        if finish.commit
    }
    for commit in facts.history.commits:
        if commit.txn is not None:
            at = finished.get((commit.by, commit.txn))
        else:
            end = facts.history.end_of(commit)
            at = end.at if end is not None and end.fate == "ok" else None
        if at is not None:
            yield at, commit


def _offsets_that_went_back(facts: Facts) -> Iterator[str]:
    done: dict[tuple[str, TopicPartition], list[tuple[float, int]]] = defaultdict(list)
    for at, commit in _in_force(facts):
        for position in commit.offsets:
            done[commit.group, position.topic_partition].append((at, position.offset))
    for commits in done.values():
        commits.sort()
    for look in facts.history.committed:
        for position in look.offsets:
            before = done[look.group, position.topic_partition]
            known = [offset for _, offset in before[: bisect_right(before, look.began, key=itemgetter(0))]]
            if known and position.offset < max(known):
                yield (
                    f"{look.group} had committed {max(known)} of {position.topic_partition}; "
                    f"{look.by} got {position.offset}"
                )


def _shared_partitions(facts: Facts) -> Iterator[str]:
    owners: dict[tuple[str, int, TopicPartition], str] = {}
    for line in facts.history.reading:
        if isinstance(line, Assign) and line.group is not None and line.generation is not None:
            for position in line.partitions:
                owner = owners.setdefault((line.group, line.generation, position.topic_partition), line.by)
                if owner != line.by:
                    yield (
                        f"{owner} and {line.by} both have {position.topic_partition} "
                        f"in generation {line.generation} of {line.group}"
                    )


def _zombie_commits(facts: Facts) -> Iterator[str]:
    """A member cannot commit a partition that was reassigned to another one, unless it got it back."""
    owned: dict[tuple[str, TopicPartition], list[tuple[float, str]]] = defaultdict(list)
    for line in facts.history.reading:
        if isinstance(line, Assign) and line.group is not None:
            for position in line.partitions:
                owned[line.group, position.topic_partition].append((line.at, line.by))
    for commit, _ in facts.history.ended_ok(facts.history.commits):
        for position in commit.offsets:
            where = position.topic_partition
            before = [by for at, by in owned[commit.group, where] if at < commit.at]
            if commit.by in before and before[-1] != commit.by:
                yield f"{commit.by} committed {where} of {commit.group}, which {before[-1]} had by then"
