"""Watching a broker while something bad is done to it: its memory, and a client that must not notice."""

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.interop import batches, raw_client
from tests.interop.subject import Subject

MIB = 1 << 20


def memory_bytes(pid: int, row: str = "VmRSS") -> int:
    """Resident memory now, or with `VmHWM` the most there ever was."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == row:
            return int(rest.split()[0]) * 1024
    raise AssertionError(f"{row} is not in /proc/{pid}/status")


def reset_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


@contextmanager
def memory_grows_at_most(broker: Subject, growth_bytes: int) -> Iterator[None]:
    """The broker's peak memory while the block runs stays within `growth_bytes` of what it was before."""
    pid = broker.pid
    reset_peak(pid)
    before = memory_bytes(pid)
    yield
    grown = memory_bytes(pid, "VmHWM") - before
    assert grown <= growth_bytes, f"grew by {grown / MIB:.0f} MiB from {before / MIB:.0f} MiB"


class Bystander(threading.Thread):
    """A client on one connection that writes and reads all the time and wants nothing to do with the others."""

    def __init__(self, broker: Subject) -> None:
        super().__init__(name="bystander")
        self._address = broker.bootstrap
        self._topic = f"bystander-{uuid.uuid4().hex[:6]}"
        self._finished = threading.Event()
        self.turns = 0
        self.slowest_s = 0.0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            raw_client.create_topic(self._address, self._topic)
            with raw_client.Connection(self._address, timeout_s=60) as connection:
                while not self._finished.wait(0.005):
                    started = time.monotonic()
                    value = b"%d" % self.turns
                    sent = raw_client.produce(connection, self._topic, batches.batch([value]))
                    assert (sent.error_code, sent.base_offset) == (raw_client.Error.none, self.turns)
                    found = raw_client.fetch(connection, self._topic, self.turns, max_wait=30_000, min_bytes=1)
                    assert batches.values(found.records) == [value]
                    self.turns += 1
                    self.slowest_s = max(self.slowest_s, time.monotonic() - started)
        except BaseException as error:
            self.error = error

    def finish(self) -> None:
        self._finished.set()
        self.join()


@contextmanager
def undisturbed(broker: Subject, slowest_s: float = 20.0) -> Iterator[Bystander]:
    """A bystander works while the block runs, without an error and without ever waiting long.

    Long is far longer than a broker takes that has other things to do, for the machine may have them, too.
    """
    one = Bystander(broker)
    one.start()
    end = time.monotonic() + 60
    while one.turns == 0 and one.error is None and time.monotonic() < end:
        time.sleep(0.01)
    before = one.turns
    try:
        yield one
        end = time.monotonic() + 60
        while one.turns < before + 3 and one.error is None and time.monotonic() < end:
            time.sleep(0.01)
    finally:
        one.finish()
    if one.error is not None:
        raise one.error
    assert one.turns >= before + 3, "the bystander got nothing done"
    assert one.slowest_s < slowest_s, f"the bystander waited {one.slowest_s:.1f} s"
