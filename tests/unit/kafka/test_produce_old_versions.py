"""Produce versions 0-2 are refused in their own layout, and lies in them are refused before they cost anything."""

from struct import pack

import pytest

from headrace.kafka.handlers.produce import refuse_old_versions
from headrace.model.errors import ProtocolError

HEAD = pack(">hhih", 0, 2, 7, -1) + pack(">hi", 1, 1000)
TOPIC = pack(">h", 1) + b"t"


def test_each_partition_is_told() -> None:
    frame = HEAD + pack(">i", 1) + TOPIC + pack(">i", 2) + pack(">ii", 0, 3) + b"abc" + pack(">ii", 1, 0)
    answer = refuse_old_versions(frame, 2)
    assert answer == pack(">i", 1) + TOPIC + pack(">i", 2) + b"".join(
        pack(">ihqq", index, 35, -1, -1) for index in (0, 1)
    ) + pack(">i", 0)


@pytest.mark.parametrize(
    "body",
    [
        pack(">i", 1) + pack(">h", -1) + pack(">i", 0),
        # A name whose length leads back to itself: as many rounds as the frame has bytes, each with its own.
        pack(">i", 1000) + pack(">i", 0) + pack(">h", -6) * 1000,
        pack(">i", 1) + TOPIC + pack(">i", 1) + pack(">ii", 0, -2),
        pack(">i", 1) + TOPIC + pack(">i", 1) + pack(">ii", 0, 100),
        pack(">i", 150_000) + (pack(">h", 0) + pack(">i", 0)) * 150_000,
        pack(">i", 1) + TOPIC + pack(">i", 150_000) + pack(">ii", 0, 0) * 150_000,
        b"",
    ],
)
def test_lies_are_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        refuse_old_versions(HEAD + body, 2)
