"""What client quotas cost: the broker's CPU time per request with quotas set and removed while it runs.

    quotas.py [--blocks 120] [--slice 0.03] [--only single …] [--quotas bytes …]

See `harness/live_comparison.py` for the method. `others` are quotas that do not apply to the client, `bytes` is a quota
of its own for bytes, `time` one for bytes and for request time; none of them is reached. `off` is a broker without
quotas. The requests are those of `metrics.py`: `alone` is one Produce of 100 B, `single` 32 of them in flight,
`produce` batches of 64 messages of 1 KiB, `fetch` one batch of each of four partitions, 32 in flight, `consume` up to
1 MiB.
"""

import argparse
import tempfile
from functools import partial
from pathlib import Path

from harness.client_connection import ClientConnection
from harness.live_comparison import HEADER, compared
from headrace.model.quotas import QuotaEntity, QuotaKind
from headrace.testing.process import BrokerProcess
from headrace.wire import Cluster
from metrics import create_topic, request_blocks

_HIGH = {QuotaKind.PRODUCE.value: 1e12, QuotaKind.FETCH.value: 1e12}
_EVERYONE: QuotaEntity = (("user", None),)
QUOTAS: dict[str, tuple[QuotaEntity, dict[str, float]]] = {
    "others": ((("user", "bob"),), _HIGH),
    "bytes": (_EVERYONE, _HIGH),
    "time": (_EVERYONE, {**_HIGH, QuotaKind.REQUEST.value: 1e6}),
}


class QuotaSwitch:
    """Sets and removes quotas."""

    def __init__(self, cluster: Cluster, entity: QuotaEntity, limits: dict[str, float]) -> None:
        self._cluster = cluster
        self._entity = entity
        self._limits = limits
        self._is_on = False

    def __call__(self, on: bool) -> None:
        if on is not self._is_on:
            self._cluster.alter_quotas(self._entity, self._limits if on else dict.fromkeys(self._limits))
            self._is_on = on


def measure(broker: BrokerProcess, options: argparse.Namespace) -> None:
    create_topic(broker.bootstrap)
    connection = ClientConnection(int(broker.bootstrap.rpartition(":")[2]))
    print(HEADER, flush=True)

    def ask(block: bytes, count: int) -> int:
        connection.ask(block, count)
        return count

    with Cluster(broker.bootstrap) as cluster:
        for kind, (block, count) in request_blocks().items():
            if options.only and kind not in options.only:
                continue
            for name in options.quotas or QUOTAS:
                entity, limits = QUOTAS[name]
                switch = QuotaSwitch(cluster, entity, limits)
                found = compared(
                    broker.pid, partial(ask, block, count), switch, blocks=options.blocks, slice_s=options.slice
                )
                print(f"| {kind}, {name} | {' | '.join(found.cells())} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=120)
    parser.add_argument("--slice", type=float, default=0.03)
    parser.add_argument("--only", nargs="*", help="kinds of requests")
    parser.add_argument("--quotas", nargs="*", choices=tuple(QUOTAS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        broker = BrokerProcess(Path(folder) / "data")
        try:
            measure(broker.start(), options)
        finally:
            broker.close()


if __name__ == "__main__":
    main()
