"""Entries of the ledger, and what follows from them."""

import pytest

from headrace.pipelines.sink.ledger import (
    LedgerEntry,
    LedgerError,
    OpenTransaction,
    decide,
    from_bytes,
    has_decided,
    is_sink_id,
    ledger_transactional_id,
    settle,
    task_prefix,
    task_transactional_id,
    to_bytes,
)

ONE = OpenTransaction("pipeline/s/0/0/0", 7, 3)


def test_an_entry_reads_back() -> None:
    entry = LedgerEntry("q", 4, (ONE,), earlier=(("p", 9),))
    assert from_bytes(to_bytes(entry)) == entry
    assert b'"transactions":[["pipeline/s/0/0/0",7,3]]' in to_bytes(entry), "a person can read it"


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", to_bytes(LedgerEntry("q", 1, (), version=2))])
def test_what_cannot_be_read_is_refused(data: bytes) -> None:
    with pytest.raises(LedgerError):
        from_bytes(data)


def test_a_batch_is_decided_once() -> None:
    assert not has_decided(None, "q", 0)
    entry = decide(None, "q", 0, [ONE])
    assert has_decided(entry, "q", 0)
    assert not has_decided(entry, "q", 1)
    with pytest.raises(LedgerError, match="not settled"):
        decide(entry, "q", 1, [])
    entry = settle(entry)
    assert entry.transactions == ()
    with pytest.raises(LedgerError, match="decided already"):
        decide(entry, "q", 0, [])
    assert has_decided(decide(entry, "q", 5, []), "q", 3), "batches go up"


def test_going_back_to_an_old_checkpoint_repeats_nothing() -> None:
    entry = settle(decide(None, "first", 10, []))
    entry = settle(decide(entry, "second", 0, []))
    assert has_decided(entry, "first", 10)
    assert not has_decided(entry, "first", 11)
    entry = settle(decide(entry, "first", 11, []))
    assert entry.earlier == (("second", 0),)
    for number in range(30):
        entry = settle(decide(entry, f"query-{number}", 1, []))
    assert len(entry.earlier) == 16
    assert has_decided(entry, "query-20", 1)


def test_transactional_ids_are_bounded_and_told_apart() -> None:
    names = {task_transactional_id("s", epoch, 0, 0) for epoch in range(1000)}
    assert len(names) == 8
    assert task_transactional_id("s", 1, 0, 0) not in {
        task_transactional_id("s", 2, 0, 0),
        task_transactional_id("s", 1, 1, 0),
        task_transactional_id("s", 1, 0, 1),
    }
    assert all(name.startswith(task_prefix("s")) for name in names)
    assert not task_transactional_id("s.1", 0, 0, 0).startswith(task_prefix("s"))
    assert not ledger_transactional_id("s").startswith(task_prefix("s"))


@pytest.mark.parametrize(("text", "fits"), [("orders-v2.eu_1", True), ("", False), ("a/b", False), ("x" * 201, False)])
def test_sink_ids(text: str, fits: bool) -> None:
    assert is_sink_id(text) is fits
