"""What a message's headers say of where it was before."""

import pytest

from headrace.model.queued import ATTEMPT, is_dead_letter, read_origin, receives_before

DEAD = '{"queue": "jobs", "page": ["dead", 1, 0]}'
MOVED = '{"queue": "jobs-dead", "page": ["move", 1, 0]}'


@pytest.mark.parametrize(
    ("origin", "value", "receives"),
    [
        (DEAD, b"3", 3),
        (MOVED, b"3", 0),
        (None, b"3", 0),
        ("nonsense", b"3", 0),
        ("[" * 100_000, b"3", 0),
        ('{"page": []}', b"3", 0),
        (DEAD, None, 0),
        (DEAD, b"", 0),
        (DEAD, b"-3", 0),
        (DEAD, b"9" * 5000, 0),
        (DEAD, "٣".encode(), 0),
    ],
)
def test_receives_before(origin: str | None, value: bytes | None, receives: int) -> None:
    found = read_origin(origin)
    assert receives_before((("other", b"1"), (ATTEMPT, value)), found) == receives
    assert receives_before((), found) == 0
    assert is_dead_letter(found) == (origin == DEAD)
