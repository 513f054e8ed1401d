"""Committed offsets against a plain list of everything that was written: the last one that counts is what is found."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.groups.offsets import OffsetStore
from headrace.groups.records import OffsetKey, OffsetValue

KEYS = [OffsetKey(group, "t", partition) for group in ("a", "b") for partition in (0, 1)]

steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from(KEYS), st.sampled_from([-1, -1, 7, 8])),
        st.tuples(st.just("forget"), st.sampled_from(KEYS), st.just(-1)),
        st.tuples(st.just("commit"), st.none(), st.sampled_from([7, 8])),
        st.tuples(st.just("abort"), st.none(), st.sampled_from([7, 8])),
    ),
    max_size=40,
)


@given(steps)
def test_the_last_write_that_counts_is_found(steps: list[tuple[str, OffsetKey | None, int]]) -> None:
    store = OffsetStore()
    writes: list[tuple[OffsetKey, int | None, int]] = []
    """Key, offset or None for a tombstone, producer: -1 for what counts, -2 for what never will."""
    for number, (what, key, producer) in enumerate(steps):
        if what == "write" and key is not None:
            store.replay(key, OffsetValue(number, -1, "", 0), producer)
            writes.append((key, number, producer))
        elif what == "forget" and key is not None:
            store.replay(key, None, -1)
            # What open transactions wrote for it is forgotten, too.
            writes = [(k, offset, -2 if k == key and p >= 0 else p) for k, offset, p in writes] + [(key, None, -1)]
        else:
            store.replay_end(producer, committed=what == "commit")
            writes = [(k, o, (-1 if what == "commit" else -2) if p == producer else p) for k, o, p in writes]
        for wanted in KEYS:
            last = next((o for k, o, p in reversed(writes) if k == wanted and p == -1), None)
            found = store.get(wanted.group, wanted.topic, wanted.partition)
            assert (None if found is None else found.offset) == last
            is_open = any(k == wanted and p >= 0 for k, _, p in writes)
            assert store.is_unstable(wanted.group, wanted.topic, wanted.partition) == is_open
            assert (wanted in store.keys_of(wanted.group)) == (last is not None or is_open)
