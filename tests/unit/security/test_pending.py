from headrace.security.pending import PendingConnections


def test_the_oldest_of_an_address_makes_room() -> None:
    pending: PendingConnections[str] = PendingConnections(10, 2)
    assert pending.add("a1", "a") is None
    assert pending.add("b1", "b") is None
    assert pending.add("a2", "a") is None
    assert pending.add("a3", "a") == "a1"
    assert pending.add("a4", "a") == "a2"
    assert len(pending) == 3


def test_the_oldest_of_all_makes_room() -> None:
    pending: PendingConnections[str] = PendingConnections(3, 2)
    for name in ("a1", "b1", "c1"):
        assert pending.add(name, name[0]) is None
    assert pending.add("d1", "d") == "a1"
    pending.discard("b1")
    assert pending.add("e1", "e") is None
    assert pending.add("f1", "f") == "c1"


def test_what_is_removed_leaves_nothing_behind() -> None:
    pending: PendingConnections[str] = PendingConnections(3, 2)
    for _ in range(10):
        pending.add("a1", "a")
        pending.discard("a1")
        pending.discard("a1")
    assert len(pending) == 0
    assert pending.add("a2", "a") is None
