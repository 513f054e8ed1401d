"""Clients that ask a broker something again and again, each on a connection of its own, and note how long it took."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tests.faults.watch import memory_bytes
from tests.interop import batches, raw_client
from tests.interop.classic_members import Member
from tests.waiting import until

Ask = Callable[[], None]
_CLASSIC_VERSION = 5


class LatencyProbe(threading.Thread):
    def __init__(self, name: str, ask: Ask, *connections: raw_client.Connection, every_s: float = 0.1) -> None:
        """The connections are closed at the end."""
        super().__init__(name=name, daemon=True)
        self._connections = connections
        self._ask = ask
        self._every_s = every_s
        self._finished = threading.Event()
        self.times_s: list[float] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._finished.wait(self._every_s):
                began_s = time.monotonic()
                self._ask()
                self.times_s.append(time.monotonic() - began_s)
        except BaseException as error:
            self.error = error

    def finish(self) -> None:
        self._finished.set()
        self.join(120)
        for connection in self._connections:
            connection.close()

    def percentile_s(self, percent: float) -> float:
        times = sorted(self.times_s)
        return times[min(len(times) - 1, int(len(times) * percent / 100))]


@contextmanager
def probing(probes: Sequence[LatencyProbe]) -> Iterator[None]:
    """The probes ask while the block runs; an error of one is raised at its end."""
    for probe in probes:
        probe.start()
    try:
        yield
    finally:
        for probe in probes:
            probe.finish()
    for probe in probes:
        if probe.error is not None:
            raise probe.error
        assert probe.times_s, f"{probe.name} got no answer"


def _coordinator(bootstrap: str, group: str) -> str:
    """The address of a group's coordinator, once there is one."""
    with raw_client.Connection(bootstrap) as connection:

        def look() -> str:
            answer = connection.call(raw_client.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[group])
            found = answer.coordinators[0]
            return f"{found.host}:{found.port}" if found.error_code is raw_client.Error.none else ""

        return until(look, f"a coordinator of {group}")


def heartbeats(bootstrap: str, group: str) -> LatencyProbe:
    """The heartbeats of the only member of a group, which must stay in it."""
    member = Member(_coordinator(bootstrap, group), group, _CLASSIC_VERSION)
    raw_client.until_coordinated(member.connection, name=group)
    assert member.join().error_code is raw_client.Error.none
    assert member.sync().error_code is raw_client.Error.none

    def ask() -> None:
        assert member.heartbeat() is raw_client.Error.none

    return LatencyProbe("Heartbeat", ask, member.connection)


def commits(bootstrap: str, group: str, topic: str) -> LatencyProbe:
    """Offset commits of a consumer that is not in a group."""
    member = Member(_coordinator(bootstrap, group), group, _CLASSIC_VERSION)
    raw_client.until_coordinated(member.connection, name=group)
    offsets = iter(range(1 << 30))

    def ask() -> None:
        assert member.commit(topic, next(offsets)) is raw_client.Error.none

    return LatencyProbe("OffsetCommit", ask, member.connection)


def metadata(bootstrap: str) -> LatencyProbe:
    connection = raw_client.Connection(bootstrap)

    def ask() -> None:
        assert connection.call(raw_client.METADATA, 9, topics=None).topics

    return LatencyProbe("Metadata", ask, connection)


def produces(bootstrap: str, topic: str, every_s: float = 0.1) -> LatencyProbe:
    """Another producer, that has little to send."""
    connection = raw_client.Connection(bootstrap, timeout_s=120)

    def ask() -> None:
        produced = raw_client.produce(connection, topic, batches.batch([b"probe"]))
        assert produced.error_code is raw_client.Error.none, produced

    return LatencyProbe("Produce", ask, connection, every_s=every_s)


class MemoryWatch(LatencyProbe):
    """The largest resident memory of some processes."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self.most_bytes = 0
        super().__init__("memory", self._look, every_s=0.25)

    def _look(self) -> None:
        self.most_bytes = max(self.most_bytes, *map(memory_bytes, self._pids))


def tail(bootstrap: str, topic: str, every_s: float = 0.02) -> LatencyProbe:
    """The time from producing a message to consuming it, of a consumer that waits at the end of the topic."""
    producer, consumer = raw_client.Connection(bootstrap), raw_client.Connection(bootstrap)
    offsets = iter(range(raw_client.offset_at(producer, topic, -1).offset, 1 << 40))

    def ask() -> None:
        offset = next(offsets)
        body = raw_client.fetch_body(topic, offset, max_wait=60_000, min_bytes=1)
        pending = consumer.send(raw_client.FETCH, 12, body)
        produced = raw_client.produce(producer, topic, batches.batch([b"%d" % offset]))
        assert (produced.error_code, produced.base_offset) == (raw_client.Error.none, offset)
        found = consumer.receive(pending).responses[0].partitions[0]
        assert batches.values(found.records) == [b"%d" % offset]

    return LatencyProbe("tail", ask, producer, consumer, every_s=every_s)
