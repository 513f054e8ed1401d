"""Which partition a message goes to. A partitioner is any function of key and number of partitions.

`by_key` is the default and agrees with Java's producer, so a key is where every other client looks for it.
"""

import itertools
import random
from collections.abc import Callable

from headrace.client.keywords import checks_keywords
from headrace.model.murmur import partition_of

Partitioner = Callable[[bytes | None, int], int]


def by_key(key: bytes | None, partitions: int) -> int:
    """Choose the partition by the key's hash, as Java's producer does; without a key, any partition.

    ```python
    from headrace import by_key

    assert by_key(b"alice", 6) == by_key(b"alice", 6)
    ```

    Given to a `Client`, librdkafka's implementation of the same is used, which is faster and keeps messages without a
    key together in batches.
    """
    if key is None:
        return random.randrange(partitions)
    return partition_of(key, partitions)


@checks_keywords
class RoundRobin:
    """A partitioner that sends each message to the next partition and ignores keys.

    ```python
    from headrace import Client, RoundRobin

    with Client("localhost:9092", partitioner=RoundRobin()) as spread:
        spread.publish("orders", "tea")
    ```
    """

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def __call__(self, key: bytes | None, partitions: int) -> int:
        return next(self._numbers) % partitions


@checks_keywords
class Sticky:
    """A partitioner that sends `run` messages to one partition, then `run` to another, and ignores keys.

    Batches are full, and over time every partition gets the same share.

    ```python
    from headrace import Client, Sticky

    with Client("localhost:9092", partitioner=Sticky(run=500)) as spread:
        spread.publish("orders", "tea")
    ```
    """

    def __init__(self, run: int = 1000, choose: Callable[[int], int] = random.randrange) -> None:
        if run < 1:
            raise ValueError("run must be at least 1")
        self._run = run
        self._choose = choose
        self._left = 0
        self._current = 0

    def __call__(self, key: bytes | None, partitions: int) -> int:
        if not self._left or self._current >= partitions:
            self._left = self._run
            # Any but the one before, if there is another.
            step = 1 + self._choose(partitions - 1) if partitions > 1 else 0
            self._current = (self._current + step) % partitions
        self._left -= 1
        return self._current
