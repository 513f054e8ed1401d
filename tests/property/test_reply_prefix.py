"""The reply queues of one user are never covered by the prefix of another, whatever their names are."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from headrace.model.reply_headers import reply_prefix

_NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12) | st.text("a.b_-2e", min_size=1)


@given(_NAMES, _NAMES)
@example("a", "a.b")
@example("a.b", "a_2eb")
@example("a_", "a__")
@example("a", "a_")
def test_no_prefix_covers_another_user(one: str, other: str) -> None:
    assert re.fullmatch(r"replies\.[a-zA-Z0-9_-]+\.", reply_prefix(one))
    assert reply_prefix(other).startswith(reply_prefix(one)) is (one == other)


def test_plain_names_stay_readable() -> None:
    assert [reply_prefix(name) for name in ("alice", "short-lived", "a.b", "a_b", "ä")] == [
        "replies.alice.",
        "replies.short-lived.",
        "replies.a_2eb.",
        "replies.a__b.",
        "replies._c3_a4.",
    ]
