"""Writing unique values while a broker is killed, and checking afterwards that each acknowledged one is there, once."""

import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from tests.interop import batches, raw_client
from tests.interop.subject import Subject

Error = raw_client.Error
_RETRIABLE = (
    Error.not_leader_or_follower,
    Error.kafka_storage_error,
    Error.unknown_topic_or_partition,
    Error.request_timed_out,
)


@dataclass
class History:
    """What was sent to one partition: values with the offset that was acknowledged, and those whose fate is unknown."""

    acked: dict[int, bytes] = field(default_factory=dict)
    unknown: set[bytes] = field(default_factory=set)


class Writer(threading.Thread):
    """Sends unique values one by one to a partition, over a new connection whenever the old one breaks.

    With `idempotent` it sends a value again until it is acknowledged, as a client does; each must be there once then.
    """

    def __init__(self, broker: Subject, topic: str, *, idempotent: bool, size_bytes: int = 200) -> None:
        super().__init__(name=f"writer-{topic}")
        self._broker = broker
        self._topic = topic
        self._idempotent = idempotent
        self._padding = b"." * size_bytes
        self._done = threading.Event()
        self._name = uuid.uuid4().hex[:8].encode()
        self.history = History()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self._write()
        except BaseException as error:
            self.error = error

    def finish(self) -> History:
        self._done.set()
        self.join()
        if self.error is not None:
            raise self.error
        return self.history

    def _write(self) -> None:
        producer_id, number = -1, 0
        while not self._done.is_set():
            try:
                with raw_client.Connection(self._broker.bootstrap, timeout_s=60) as connection:
                    if self._idempotent and producer_id < 0:
                        producer_id = connection.call(
                            raw_client.INIT_PRODUCER_ID, 4, producer_id=-1, producer_epoch=-1
                        ).producer_id
                        continue
                    while not self._done.is_set():
                        code = self._send(connection, producer_id, number)
                        # One that took too long may have been stored, as with a connection that broke.
                        if code == Error.none or (code == Error.request_timed_out and not self._idempotent):
                            number += 1
            except (OSError, raw_client.Closed):
                if not self._idempotent:
                    number += 1
                time.sleep(0.01)

    def _send(self, connection: raw_client.Connection, producer_id: int, number: int) -> Error:
        value = b"%s-%d%s" % (self._name, number, self._padding)
        fields: dict[str, Any] = {}
        if self._idempotent:
            fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": number}
        self.history.unknown.add(value)
        answer = raw_client.produce(connection, self._topic, batches.batch([value], **fields))
        code: Error = answer.error_code
        if code == Error.none:
            assert answer.base_offset not in self.history.acked, f"offset {answer.base_offset} was given out twice"
            self.history.acked[answer.base_offset] = value
            self.history.unknown.discard(value)
        else:
            assert code in _RETRIABLE, answer
        return code


def read_partition(bootstrap: str, topic: str) -> dict[int, bytes | None]:
    """Offset -> value of everything in partition 0."""
    found: dict[int, bytes | None] = {}
    with raw_client.Connection(bootstrap, timeout_s=60) as connection:
        raw_client.wait_topic(connection, topic, 1)
        offset, end = (
            raw_client.offset_at(connection, topic, -2).offset,
            raw_client.offset_at(connection, topic, -1).offset,
        )
        while offset < end:
            part = raw_client.fetch(connection, topic, offset, partition_max_bytes=8 << 20)
            assert part.error_code == Error.none, part.error_code
            got = batches.parse(part.records)
            assert got, f"nothing at {offset}, though the log ends at {end}"
            for one in got:
                for record in one.records:
                    assert record.offset not in found, f"offset {record.offset} came twice"
                    found[record.offset] = record.value
                offset = one.base_offset + one.last_offset_delta + 1
    return found


def check(history: History, found: dict[int, bytes | None]) -> None:
    """Every acknowledged value is at its offset, no value is there twice, and nothing is there that nobody sent."""
    lost = {offset: value for offset, value in history.acked.items() if found.get(offset) != value}
    assert not lost, (
        f"{len(lost)} of {len(history.acked)} acknowledged values are not where they were: {sorted(lost)[:5]}"
    )
    values = list(found.values())
    assert len(values) == len(set(values)), "a value is there twice"
    assert set(values) <= set(history.acked.values()) | history.unknown, "a value is there that nobody sent"
