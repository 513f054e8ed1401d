"""What ACLs cost: the broker's CPU time per request with authorization on and off, switched while it runs.

    acls.py [--blocks 120] [--slice 0.03]

See `harness/live_comparison.py` for the method. The smallest requests, so that a check is as large a part of each as it
can be: Produce of single messages of 100 B, 32 in flight, and Fetch of one batch from each of four partitions. There
are 1,000 rules of other users, and two prefixed ones of this user, who logs in with SCRAM.
"""

import argparse
import tempfile
from pathlib import Path
from struct import Struct

from confluent_kafka.admin import AdminClient, NewTopic, ScramCredentialInfo, ScramMechanism
from confluent_kafka.admin import UserScramCredentialUpsertion as Upsertion

from harness import wire
from harness.live_comparison import HEADER, compared
from harness.process import free_port
from harness.secure_wire import Connector, Security
from harness.security import create_acls, switch
from headrace.testing.process import BrokerProcess

TOPIC = "bench-acls"
PARTITIONS = 4
DEPTH = 32
USER, PASSWORD = "bench", "a password for bench"
_LENGTH = Struct(">i")


class Load:
    """One connection to a broker, and what is measured by it."""

    def __init__(self, broker: BrokerProcess, sasl_port: int) -> None:
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        credential = Upsertion(USER, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), PASSWORD.encode())
        self._admin.alter_user_scram_credentials([credential])[USER].result(30)
        new = NewTopic(TOPIC, PARTITIONS, 1, config={"flush.policy": "os"})
        self._admin.create_topics([new])[TOPIC].result(30)
        self._is_on = False
        self.switch(True)
        create_acls(self._admin)
        self._sock = Connector(Security(None, USER, PASSWORD)).connect(sasl_port)
        batch = wire.record_batch(100, 1, 1_700_000_000_000)
        frames = [wire.produce_request(TOPIC, n % PARTITIONS, batch, acks=-1, correlation_id=n) for n in range(DEPTH)]
        self._produce = b"".join(frames)
        fetch = wire.FetchRequest(TOPIC, list(range(PARTITIONS)), partition_max_bytes=1, max_wait_ms=0)
        self._fetch = bytes(fetch.frame) * DEPTH

    def switch(self, on: bool) -> None:
        if on is not self._is_on:
            switch(self._admin, on=on)
            self._is_on = on

    def produce(self) -> int:
        return self._ask(self._produce)

    def consume(self) -> int:
        return self._ask(self._fetch)

    def _ask(self, block: bytes) -> int:
        """Send a block of `DEPTH` requests, and receive their answers."""
        self._sock.sendall(block)
        left, data = DEPTH, bytearray()
        while left:
            part = self._sock.recv(1 << 20)
            if not part:
                raise ConnectionError("the broker closed the connection")
            data += part
            at = 0
            while len(data) - at >= 4 and len(data) - at >= 4 + (size := _LENGTH.unpack_from(data, at)[0]):
                at += 4 + size
                left -= 1
            del data[:at]
        return DEPTH


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=120)
    parser.add_argument("--slice", type=float, default=0.03)
    options = parser.parse_args()
    plain, sasl = free_port(), free_port()
    settings = {
        "http.listen": "off",
        "listeners": f"plain://127.0.0.1:{plain},sasl_plain://127.0.0.1:{sasl}",
        "super.users": "User:ANONYMOUS",
    }
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        broker = BrokerProcess(Path(folder) / "data", port=plain, settings=settings)
        try:
            load = Load(broker.start(), sasl)
            print(HEADER, flush=True)
            for kind, ask in (("produce", load.produce), ("fetch", load.consume)):
                found = compared(broker.pid, ask, load.switch, blocks=options.blocks, slice_s=options.slice)
                print(f"| {kind} | {' | '.join(found.cells())} |", flush=True)
        finally:
            broker.close()


if __name__ == "__main__":
    main()
