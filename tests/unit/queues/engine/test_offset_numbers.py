from random import Random

import pytest

from headrace.queues.engine.offset_numbers import OffsetNumbers
from headrace.queues.engine.stored import CHUNK

SIZES = {
    "small": (0xFFFE,),
    "few large": (0xFFFE,) * 100 + (1 << 40,),
    "large": (1 << 20, 1 << 31),
    "larger than four bytes": (1 << 40,),
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_numbers_are_as_they_were_set_last(sizes: tuple[int, ...]) -> None:
    rng, numbers, expected = Random(1), OffsetNumbers(), dict[int, int]()
    for _ in range(2 * CHUNK):
        offset = rng.randrange(3 * CHUNK)
        numbers[offset] = expected[offset] = rng.choice([0, 0xFFFE, 0xFFFF, 0x10000, rng.randrange(rng.choice(sizes))])
    assert [numbers[offset] for offset in range(4 * CHUNK)] == [expected.get(at, 0) for at in range(4 * CHUNK)]


def test_whole_chunks_before_an_offset_are_forgotten() -> None:
    numbers = OffsetNumbers()
    for offset in range(0, 3 * CHUNK, 100):
        numbers[offset] = 1 << 20
    numbers.forget_before(2 * CHUNK - 1)
    assert [numbers[offset] for offset in (0, 4000, 4100, 2 * CHUNK + 8)] == [0, 0, 1 << 20, 1 << 20]
