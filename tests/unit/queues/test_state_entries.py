import os

from headrace.queues.state_entries import StateEntries


def test_large_values_are_read_as_they_were_set_and_take_less_memory() -> None:
    entries = StateEntries()
    values = {
        b"names": b"".join(b"customer-%d" % (number * 7919 % 10_000) for number in range(4096)),
        b"times": os.urandom(16_384),
        b"small": b"x" * 100,
    }
    entries.update(values)
    assert dict(entries) == values
    assert entries.stored_bytes(b"names") < len(values[b"names"]) / 2
    assert entries.stored_bytes(b"times") == len(values[b"times"])
    entries[b"names"] = b"none"
    assert entries.pop(b"names") == b"none"
    assert list(entries) == [b"times", b"small"]
