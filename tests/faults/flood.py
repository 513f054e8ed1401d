"""Many producers that offer more than a broker can take: light ones, hundreds in one process.

    python -m tests.faults.flood ACKED.bin '{"topic": …, "leaders": […], …}'     (see `FloodPlan`)

Each producer has a connection of its own to the leader of its partition, a rate at which it has something to send, and
a bound on what it has in flight, as real producers have. What it cannot send waits. Every batch carries a stamp of its
own; those that were acknowledged are written to a file with the offsets that the broker has given them.
"""

import asyncio
import json
import sys
import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from struct import Struct
from typing import Any, cast

import uvloop
from crc32c import crc32c

from tests.faults.json_process import JsonProcess
from tests.interop import batches, raw_client

_TICK_S = 0.05
_DRAIN_S = 60.0
_FRAME_HEAD = Struct(">ihhi")
_ANSWER_HEAD = Struct(">ii")
_PARTITION_ANSWER = Struct(">hq")
_STAMP = Struct(">II")
_U32 = Struct(">I")
_CRC_AT = 17
_CRC_FROM = 21
_MARK = b"\xfe\xed\xfa\xce\xfe\xed\xfa\xce"


@dataclass(frozen=True)
class FloodPlan:
    topic: str
    leaders: Sequence[str]
    """The address of each partition's leader."""
    producers: int
    seconds: float
    requests_per_s: float
    """How many each producer has to send."""
    value_bytes: int = 1000
    records: int = 1
    in_flight: int = 5
    acks: int = -1


@dataclass
class FloodResult:
    offered: int = 0
    sent: int = 0
    acked: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    lost_connections: int = 0
    throttled: int = 0
    """Answers with a throttle time."""
    seconds: float = 0.0
    p50_s: float = 0.0
    p99_s: float = 0.0
    max_s: float = 0.0


class Template:
    """A Produce request, encoded once; stamp, checksum and correlation id are written into it for each use."""

    def __init__(self, plan: FloodPlan, partition: int) -> None:
        value = _MARK + b"x" * (plan.value_bytes - len(_MARK))
        batch = batches.batch([value] * plan.records)
        body = raw_client.produce_body(plan.topic, batch, partition=partition, acks=plan.acks)
        frame = raw_client.encode(raw_client.PRODUCE, 9, {**body, "timeout": 120_000}, correlation_id=0)
        self._frame = bytearray(len(frame).to_bytes(4) + frame)
        self._batch_at = self._frame.index(batch)
        self._batch_end = self._batch_at + len(batch)
        self._stamp_at = self._frame.index(_MARK)

    def request(self, producer: int, number: int) -> bytes:
        frame = self._frame
        _U32.pack_into(frame, 8, number)
        _STAMP.pack_into(frame, self._stamp_at, producer, number)
        with memoryview(frame) as view, view[self._batch_at + _CRC_FROM : self._batch_end] as covered:
            _U32.pack_into(frame, self._batch_at + _CRC_AT, crc32c(covered))
        return bytes(frame)


class FloodProducer(asyncio.Protocol):
    def __init__(self, flood: "Flood", number: int, partition: int, template: Template) -> None:
        self._flood = flood
        self._number = number
        self._partition = partition
        self._template = template
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._sent_at: dict[int, float] = {}
        self._count = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._sent_at or not self._flood.is_over:
            self._flood.result.lost_connections += 1

    @property
    def in_flight(self) -> int:
        return len(self._sent_at)

    def send(self, due: int) -> None:
        """Send what is due, as far as the bound on requests in flight allows."""
        plan, transport = self._flood.plan, self._transport
        if transport is None:
            return
        while self._count < due and len(self._sent_at) < plan.in_flight:
            self._count += 1
            self._sent_at[self._count] = time.monotonic()
            self._flood.result.sent += 1
            transport.write(self._template.request(self._number, self._count))

    def data_received(self, data: bytes) -> None:
        data = self._received + data
        at = 0
        while len(data) - at >= 4 and len(data) - at - 4 >= (size := int.from_bytes(data[at : at + 4])):
            self._answered(data[at : at + 4 + size])
            at += 4 + size
        self._received = data[at:]
        self.send(self._flood.due())

    def _answered(self, frame: bytes) -> None:
        _, number = _ANSWER_HEAD.unpack_from(frame)
        error, offset = _PARTITION_ANSWER.unpack_from(frame, self._flood.answer_at)
        self._flood.answered(self._partition, self._number, number, error, offset, self._sent_at.pop(number))
        if frame[-5:-1] != b"\0\0\0\0":
            self._flood.result.throttled += 1

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class Flood:
    def __init__(self, plan: FloodPlan) -> None:
        self.plan = plan
        self.result = FloodResult()
        self.is_over = False
        # Length, correlation id, tags; topics, name, partitions, index.
        self.answer_at = 4 + 4 + 1 + 1 + 1 + len(plan.topic) + 1 + 4
        self._began_s = 0.0
        self._acked = array("q")
        self._times = array("d")

    def due(self) -> int:
        """How many requests each producer should have sent by now."""
        return 0 if self.is_over else int((time.monotonic() - self._began_s) * self.plan.requests_per_s) + 1

    def answered(self, partition: int, producer: int, number: int, error: int, offset: int, sent_s: float) -> None:
        if error:
            name = raw_client.Error(error).name
            self.result.errors[name] = self.result.errors.get(name, 0) + 1
            return
        self.result.acked += 1
        self._times.append(time.monotonic() - sent_s)
        self._acked.extend((partition, offset, producer << 32 | number))

    async def run(self) -> bytes:
        """Flood for the planned time, then wait for the answers; the acknowledged batches (see `acked_batches`)."""
        plan, loop = self.plan, asyncio.get_running_loop()
        templates = [Template(plan, partition) for partition in range(len(plan.leaders))]
        producers = []
        for number in range(plan.producers):
            partition = number % len(plan.leaders)
            host, port = plan.leaders[partition].rsplit(":", 1)
            made = FloodProducer(self, number, partition, templates[partition])
            await loop.create_connection(lambda made=made: made, host, int(port))  # type: ignore[misc]
            producers.append(made)
        self._began_s = time.monotonic()
        while time.monotonic() - self._began_s < plan.seconds:
            due = self.due()
            for each in producers:
                each.send(due)
            await asyncio.sleep(_TICK_S)
        result = self.result
        result.offered = self.due() * plan.producers
        self.is_over = True
        result.seconds = time.monotonic() - self._began_s
        end_s = time.monotonic() + _DRAIN_S
        while any(each.in_flight for each in producers) and time.monotonic() < end_s:  # noqa: ASYNC110 - they have no event
            await asyncio.sleep(_TICK_S)
        for each in producers:
            each.close()
        times = sorted(self._times)
        if times:
            result.p50_s, result.p99_s, result.max_s = times[len(times) // 2], times[len(times) * 99 // 100], times[-1]
        return self._acked.tobytes()


def acked_batches(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """The acknowledged batches of a flood: partition, base offset, and the stamp in the first record's value."""
    found = array("q")
    found.frombytes(path.read_bytes())
    for at in range(0, len(found), 3):
        stamp = found[at + 2]
        yield found[at], found[at + 1], _STAMP.pack(stamp >> 32, stamp & 0xFFFFFFFF)


class FloodProcess(JsonProcess):
    """A flood in a process of its own."""

    def __init__(self, plan: FloodPlan, folder: Path, name: str = "flood") -> None:
        self.plan = plan
        self.acked_path = folder / f"{name}.acked"
        super().__init__(__name__, str(self.acked_path), json.dumps(asdict(plan)))

    def wait(self) -> FloodResult:
        """The result, when it has ended."""
        return FloodResult(**self.result(self.plan.seconds + _DRAIN_S + 120))


def main() -> None:
    path, plan = Path(sys.argv[1]), json.loads(sys.argv[2])
    flood = Flood(FloodPlan(**plan))
    path.write_bytes(uvloop.run(flood.run()))
    shown: dict[str, Any] = asdict(flood.result)
    print(json.dumps(shown))


if __name__ == "__main__":
    main()
